"""A terminal session in one file: commands behind prompts or headings, each with its output. Every output goes to its own parser.

Known: "$ df -h", "root@node3:~# df -h", "+ df -h", "=== df -h ===", "--- nvidia-smi ---", and what `tail` and `head` put above files.
Only behind a command that is known here does a line count as a heading: logs draw lines of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import is_head, stamped

LINE_CHARS = 400
SECTIONS_MAX = 5000
_COMMANDS = (
    "cat|curl|date|df|dmesg|docker|env|export|for|free|gdb|head|hostname|ibstat|ibstatus|ibv_devinfo|ip|ipcs|journalctl|kubectl|ls|lscpu|lsmod|lsof"
    "|lspci|mount|ncclras|netstat|nproc|numactl|nvidia-smi|perfquery|printenv|ps|py-spy|pystack|rdma|ss|sysctl|tail|timedatectl|top|ulimit|uname"
    "|uptime|vmstat|who|crictl|podman|eu-stack|grep"
)
_HEADING = re.compile(
    r"^(?:\(?[\w.-]{0,60}\)? ?\[?[\w.-]{1,40}@[\w.-]{1,80}[^$#]{0,100}[$#] ?|[$#+>] ?|={2,20} ?|-{2,20} ?|#{2,20} ?|\*{2,20} ?)"
    rf"(?:sudo |time |timeout \S+ |command: ?|output of )?((?:{_COMMANDS})\b.{{0,300}}?)(?: ?[=#*-]{{2,20}})?:?\s*$"
)
_FILE = re.compile(r"^==> (\S.{0,300}?) <==\s*$")
_PROC_PID = re.compile(r"/proc/(\d{1,9})/|(?:-p|--pid)[ =](\d{1,9})\b")


def command_of(line: str) -> str:
    """The command that a line shows, or the file that `tail` names; "" where it is neither."""
    line = line[:LINE_CHARS].rstrip()
    m = _HEADING.match(line) or _FILE.match(line)
    return m[1].strip() if m else ""


def parser(find: Callable[[str, str, str], Parser | None]) -> Parser:
    """The parser of transcripts, which asks `find` for the parser of each output."""

    def parse(inp: Input, sink: Sink) -> None:
        lines = inp.text().split("\n")
        heads = [(number, command) for number, line in enumerate(lines) if (command := command_of(line))][:SECTIONS_MAX]
        now = inp
        taken: Counter[str] = Counter()
        for index, (number, command) in enumerate(heads):
            end = heads[index + 1][0] if index + 1 < len(heads) else len(lines)
            output = lines[number + 1 : end]
            text = "\n".join(output)
            if not text.strip():
                continue
            if command.split()[0] == "date":
                if (at := stamped(text.strip(), inp)) is not None:
                    now = replace(now, at=at)
                continue
            name = re.sub(r"[^\w.-]+", "_", command)[:100]
            if re.match(r"(?:ls|df)\b.*(?:/dev/shm|pstore)", command):
                name = "pstore" if "pstore" in command else "devshm"
            found = find("", name, text[:8192])
            if found is None:
                sink.note(f"{inp.name}: line {number + 1}: what `{plain(command, 80)}` printed was not recognised by any parser")
                continue
            pid = _PROC_PID.search(command)
            part = replace(
                now,
                data=text.encode(),
                sample=inp.sample + taken[found.name],
                pid=int(pid[1] or pid[2]) if pid else now.pid,
                parts=((-number, inp.name),),  # lines are counted in the file
            )
            taken[found.name] += 1
            found.run(part, sink)

    def recognise(name: str, head: str) -> bool:
        lines = [line for line in head.split("\n") if line.strip() and not is_head(line)]
        if not lines or not command_of(lines[0]):
            return False
        # "# free" may be a comment: something that it could have printed must follow
        text = head.split(lines[0], 1)[1]
        first = next((i for i, line in enumerate(lines[1:], 1) if command_of(line)), 0)
        if first > 0:
            return True
        found = find("", re.sub(r"[^\w.-]+", "_", command_of(lines[0]))[:100], text)
        return found is not None and found.name != "log"

    return Parser("transcript", (), recognise, parse)


__all__ = ["command_of", "parser"]
