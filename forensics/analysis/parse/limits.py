"""Resource limits: /proc/PID/limits and `ulimit -a`."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._sheets import body, sheets
from forensics.model import ConfigValue

_HEAD = re.compile(r"^Limit\s+Soft Limit\s+Hard Limit\s+Units")
_ROW = re.compile(r"^(Max [a-z -]{2,24}?)\s{2,}(unlimited|\d{1,20})\s+(unlimited|\d{1,20})\b")
_ULIMIT = re.compile(r"^([a-z][a-z -]{2,30}?)\s+\((?:[a-z0-9 -]{1,20}, )?(-[a-zA-Z])\) (unlimited|\d{1,20})$")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            if m := _ROW.match(line):
                name, value = m[1].removeprefix("Max "), m[2] if m[2] == m[3] else f"{m[2]}, at most {m[3]}"
            elif m := _ULIMIT.match(line):
                name, value = m[1], m[3]
            else:
                continue
            sink.add(
                ConfigValue(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    pid=sheet.inp.pid,
                    name=f"limit of {name}",
                    value=value,
                    via="limits",
                )
            )


def recognise(name: str, head: str) -> bool:
    lines = body(head, 20)
    return any(_HEAD.match(line) for line in lines) or sum(bool(_ULIMIT.match(line)) for line in lines) >= 3


PARSER = Parser("limits", ("limits",), recognise, parse)
