"""/proc/meminfo as it is mailed, and `free`."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.parse._units import size
from forensics.analysis.parse.procfiles import add_meminfo
from forensics.model import MemorySample

_TOTAL = re.compile(r"^MemTotal:\s+\d+ kB")
_FREE_HEAD = re.compile(r"^\s+total\s+used\s+free\s+shared\s+buff")
_FREE = re.compile(r"^Mem:\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)(?:\s+(\S+))?\s*$")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        if re.search(r"^MemTotal:", sheet.text, re.M):
            add_meminfo(sheet.text, sheet.inp, sheet.inp.at, sink, None, None)
            continue
        for number, line in sheet.lines():
            m = _FREE.match(line)
            if m is None:
                continue
            # plain numbers count whatever -k, -m or -g asked for, and do not say which
            plain = all(cell is None or (cell.isdigit() and cell != "0") for cell in (m[1], m[6]))
            total, available = (None, None) if plain else (size(m[1]), size(m[6] or ""))
            if total is None:
                sink.note(f"{inp.name}: `free` without units: not read")
                continue
            sink.add(
                MemorySample(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    scope="host",
                    total_bytes=total,
                    available_bytes=available,
                    used_bytes=size(m[2]),
                )
            )


def recognise(name: str, head: str) -> bool:
    return any(_TOTAL.match(line) or _FREE_HEAD.match(line) for line in body(head, 5))


PARSER = Parser("meminfo", ("meminfo",), recognise, parse)
