"""The table of `py-spy top` (and `record --format`-less screens of it): where a program spends its time."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.parse._units import number
from forensics.model import FunctionShare

_SUMMARY = re.compile(r"GIL: +([\d.]+)%, Active: +([\d.]+)%, Threads: +\d+")
_HEAD = re.compile(r"^\s*%Own\s+%Total\s+OwnTime\s+TotalTime\s+Function")
_ROW = re.compile(r"^\s*([\d.]{1,8})%\s+([\d.]{1,8})%\s+([\d.]{1,12})s\s+([\d.]{1,12})s\s+(\S.*?) \(([^()]*)\)\s*$")
_COLLECTING = re.compile(r"from '.{0,300}' \((?:pid:? ?)?(\d{1,9})\)|\bpid:? (\d{1,9})")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        gil = active = None
        pid = sheet.inp.pid
        for number_, line in sheet.lines():
            if m := _SUMMARY.search(line):
                gil, active = number(m[1]), number(m[2])
            elif m := _ROW.match(line):
                own, total = number(m[1]), number(m[2])
                if own is None or total is None:
                    continue
                sink.add(
                    FunctionShare(
                        node=sheet.inp.node,
                        at=sheet.inp.at,
                        ref=inp.ref(f"line {number_}", line),
                        pid=pid,
                        function=plain(m[5]),
                        file=plain(m[6], 300),
                        own_percent=own,
                        total_percent=total,
                        own_seconds=number(m[3]),
                        total_seconds=number(m[4]),
                        gil_percent=gil,
                        active_percent=active,
                    )
                )
            elif pid is None and (m := _COLLECTING.search(line)):
                pid = int(m[1] or m[2])


PARSER = Parser("py-spy top", ("pyspy-top",), lambda name, head: any(_HEAD.match(line) for line in body(head)), parse)
