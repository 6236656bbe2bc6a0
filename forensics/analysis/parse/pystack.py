"""pystack's text, of a living process and of a core file. Outermost frame first; no qualified names, no names of Python threads.

Read in pystack 1.7 (traceback_formatter.py): a header for each thread, then `    (Python) File "F", line N, in NAME`, below it the
line of source where that was found, or `    (C) File "F", line N, in SYMBOL (LIBRARY)`.
"""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import LINE_CHARS, bounded, plain
from forensics.model import Frame, ThreadStack

# the name is that of the kernel: 15 bytes, which may be line ends
_HEAD = re.compile(r"^Traceback for thread (\d+)(?: \((.{0,64}?)\))? (?:\[([^\]\n]*)\] )?\(most recent call last\):$", re.M | re.S)
_PYTHON = re.compile(r'^ {4}\(Python\) File "([^"]*)", line (-?\d+), in (.*)$')
_NATIVE = re.compile(r'^ {4}\(C\) File "([^"]*)", line (-?\d+), in (.*) \(([^()]*)\)$')
_STATUS = re.compile(r"^  (?:In |Not ).*\[([^\]]*)\]$")
_CORE_PID = re.compile(r"^ *pid: (\d+) ppid: ", re.M)
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages|python3\.\d+)/")
KNOWN_TAGS = ("Has the GIL", "Waiting for the GIL", "Dropping the GIL", "Garbage collecting", "Thread terminated")


def short(file: str) -> str:
    """A file as py-spy writes it: without the folder that it was imported from, where that can be told."""
    return plain(_INSTALLED.sub("", file), 300)


def parse(inp: Input, sink: Sink) -> None:
    text = inp.text()
    heads = list(_HEAD.finditer(text))
    core = text[: heads[0].start()] if heads else text
    died = _CORE_PID.search(core) if "Core file information" in core or "Using executable" in core else None
    reader = "core" if "executable:" in core or "Using executable" in core else "pystack"
    pid = inp.pid or (int(died[1]) if died else 0)
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        tags = _tags(head[3])
        frames: list[Frame] = []
        for line in text[head.end() : end].splitlines():
            line = line[:LINE_CHARS]
            if m := _PYTHON.match(line):
                frames.append(Frame(name=plain(m[3]), file=short(m[1]), line=max(0, int(m[2]))))
            elif m := _NATIVE.match(line):
                frames.append(Frame(name=plain(m[3]), file=plain(m[4].rpartition("/")[2]), line=max(0, int(m[2])), native=True))
            elif m := _STATUS.match(line):  # several interpreters in one process: what is told per thread follows in a line of its own
                tags += _tags(m[1])
        frames.reverse()
        python = [f for f in frames if not f.native]
        tid, name = int(head[1]), plain(head[2] or "")
        sink.add(
            ThreadStack(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"thread {tid} ({name})", " < ".join(f"{f.name} ({f.file}:{f.line})" for f in frames[:4]) or "no frames"),
                pid=pid,
                tid=tid,
                name=name,
                gil="Has the GIL" in tags,
                frames=bounded(python),
                mixed=bounded(frames) if len(python) < len(frames) else (),
                tags=tags,
                reader=reader,
                sample=inp.sample,
            )
        )


def _tags(text: str | None) -> tuple[str, ...]:
    return tuple(tag for tag in (text or "").split(",") if tag in KNOWN_TAGS)


PARSER = Parser("pystack", ("pystack-text",), lambda name, head: bool(_HEAD.search(head)) and ' File "' in head, parse)
