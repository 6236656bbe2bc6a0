"""pstore: what the firmware kept of a kernel's last words, or the note that there was nothing."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._sheets import body, sheets
from forensics.model import CrashRecord

_HEAD = re.compile(r"^(?:Panic|Oops|Emergency|Console|Shutdown|Restart|Halt|Poweroff)#\d{1,6} Part\d{1,6}\b")
_NOTHING = re.compile(
    r"\(?(?:empty|none|nothing|no (?:files|entries|records|such file or directory).{0,40})\)?|total 0|ls: .{0,100}pstore.{0,60}", re.I
)
TEXT_CHARS = 4000


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        lines = [(number, line) for number, line in sheet.lines() if line.strip()]
        said = [
            (number, line)
            for number, line in lines
            if not re.match(r"total \d|d[rwxtT-]{9}", line) and not _NOTHING.fullmatch(line.strip())
        ]
        first, quote = (said or lines or [(1, "empty")])[0]
        sink.add(
            CrashRecord(
                node=sheet.inp.node,
                at=sheet.inp.at,
                ref=inp.ref(f"line {first}", quote),
                # the end of what was kept is what was said last
                text="\n".join(line for _, line in said)[-TEXT_CHARS:],
            )
        )


def recognise(name: str, head: str) -> bool:
    lines = body(head, 5)
    return bool(lines and _HEAD.match(lines[0])) or ("pstore" in name.lower() and bool(head.strip()))


PARSER = Parser("pstore", ("pstore",), recognise, parse)
