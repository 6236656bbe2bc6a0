"""`df`: how full the file systems are, in any of its block sizes."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.parse._units import size
from forensics.model import FileSystemUse

_HEAD = re.compile(
    r"^Filesystem\s+(?:Type\s+)?(1K-blocks|1B-blocks|1M-blocks|1G-blocks|(?:512|1024|1048576)-blocks|Size|Inodes)\s+I?Used\b.*Mounted on"
)
_ROW = re.compile(r"^(\S.*?)?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d{1,3}%|-)\s+(/\S*(?: \S+)*)\s*$")
_UNITS = {
    "1K-blocks": 1024,
    "1024-blocks": 1024,
    "1B-blocks": 1,
    "1M-blocks": 1 << 20,
    "1048576-blocks": 1 << 20,
    "1G-blocks": 1 << 30,
    "512-blocks": 512,
}


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        unit: int | None = None
        counting = ""
        began = ""
        for number, line in sheet.lines():
            if m := _HEAD.match(line):
                counting, unit, began = m[1], _UNITS.get(m[1], 1), ""
                continue
            if not counting or counting == "Inodes":
                continue
            row = _ROW.match(f"{began} {line.strip()}" if began else line)
            if row is None:  # a long device stands on a line of its own
                began = line.strip() if len(line.split()) == 1 else ""
                continue
            began = ""
            total, used, free = (size(row[i], unit or 1) for i in (2, 3, 4))
            mount = plain(row[6], 300)
            sink.add(
                FileSystemUse(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    pid=sheet.inp.pid,
                    mount=mount,
                    total_bytes=total,
                    used_bytes=used,
                    available_bytes=free,
                )
            )


PARSER = Parser("df", ("df",), lambda name, head: any(_HEAD.match(line) for line in body(head)), parse)
