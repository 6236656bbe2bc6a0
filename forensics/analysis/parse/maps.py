"""Libraries that a process has mapped: /proc/PID/maps, or only the paths out of it."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.model import MappedLibrary

_MAP = re.compile(r"^[0-9a-f]{6,16}-[0-9a-f]{6,16} [r-][w-][x-][ps] [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ \d+(?: +(.*))?$")
_PATH = re.compile(r"^\s*(/\S.*)$")
_LIBRARY = re.compile(r"\.so(?:[.\d]|$|-)|\.so\b")
_RANK = re.compile(r"(?:^|[._-])rank[-_]?(\d{1,5})(?=\D|$)")


def parse(inp: Input, sink: Sink) -> None:
    rank = _RANK.search(inp.name.rsplit("/", 1)[-1])
    for sheet in sheets(inp):
        seen: set[str] = set()
        for number, line in sheet.lines():
            m = _MAP.match(line) or _PATH.match(line)
            path = (m[1] or "").strip().removesuffix(" (deleted)") if m else ""
            if not path.startswith("/") or path in seen or not _LIBRARY.search(path.rpartition("/")[2]):
                continue
            seen.add(path)
            sink.add(
                MappedLibrary(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    pid=sheet.inp.pid,
                    path=plain(path, 400),
                    rank=int(rank[1]) if rank else None,
                )
            )


def recognise(name: str, head: str) -> bool:
    lines = body(head, 60)
    if len(head) >= 8000:
        lines = lines[:-1]
    if any(_MAP.match(line) for line in lines[:3]):
        return True
    return (
        bool(lines)
        and all(_PATH.match(line) and " " not in line.strip() for line in lines)
        and any(_LIBRARY.search(line) for line in lines)
    )


PARSER = Parser("maps", ("maps",), recognise, parse)
