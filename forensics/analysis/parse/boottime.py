"""`uptime`, `uptime -s`, `who -b`, `journalctl --list-boots`, btime of /proc/stat: when the node booted, which dates kernel lines."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.times import SECOND
from forensics.model import BootTime, HostCpu, TimeRange

_SINCE = re.compile(
    r"^\s*(?:system boot\s+|up since |booted(?: at)?:? ?|boot_time:? ?)?"
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\s?(?:Z|[+-]\d\d:?\d\d)?)\s*$"
)
_UPTIME = re.compile(
    r"^\s*\d\d:\d\d:\d\d up {1,9}(?:(\d{1,5}) days?, {1,9})?(?:(\d{1,2}):(\d\d)|(\d{1,2}) min)?"
    r",? {1,9}(?:\d+ users?, {1,9})?load averages?: ([\d.]+)"
)
_LISTED = re.compile(r"^ *0 [0-9a-f]{32} [A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (UTC|GMT|[+-]\d\d:?\d\d))?")
_BTIME = re.compile(r"^btime (\d{9,11})$")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            booted: TimeRange | None = None
            via = "uptime -s"
            if m := _BTIME.match(line.strip()):
                booted, via = TimeRange(earliest_ns=int(m[1]) * SECOND, latest_ns=(int(m[1]) + 1) * SECOND, basis="kernel"), "btime"
            elif m := _UPTIME.match(line):
                at, via = sheet.inp.at, "uptime"
                load = re.fullmatch(r"\d{1,8}(?:\.\d{1,4})?", m[5])
                if load:
                    sink.add(HostCpu(node=sheet.inp.node, at=at, ref=inp.ref(f"line {number}", line), load1=float(m[5])))
                if at is not None and (m[2] or m[4] or m[1]):
                    up = int(m[1] or 0) * 86400 + int(m[2] or 0) * 3600 + int(m[3] or m[4] or 0) * 60
                    booted = TimeRange(
                        earliest_ns=at.earliest_ns - (up + 60) * SECOND, latest_ns=at.latest_ns - up * SECOND, basis="kernel"
                    )
            elif m := _LISTED.match(line):  # the first line of the journal comes some seconds after the kernel began to count
                first = inp.calendar.parse(f"{m[1]}{(m[2] or '').replace('UTC', 'Z').replace('GMT', 'Z')}")
                via = "journal"
                booted = (
                    TimeRange(earliest_ns=first.earliest_ns - 60 * SECOND, latest_ns=first.latest_ns, basis="kernel") if first else None
                )
            elif m := _SINCE.match(line):
                text = m[1] if m[1].count(":") > 1 else m[1] + ":00"
                booted = inp.calendar.parse(text)
            if booted:
                sink.add(BootTime(node=sheet.inp.node, at=sheet.inp.at, ref=inp.ref(f"line {number}", line), booted=booted, via=via))


def recognise(name: str, head: str) -> bool:
    lines = head.split("\n")
    if any(_UPTIME.match(line) for line in body(head, 3)) or any(
        re.match(r"^ *-?\d{1,4} [0-9a-f]{32} [A-Z][a-z]{2} ", line) for line in body(head, 3)
    ):
        return True
    if re.search(r"^btime \d{9,11}$", head, re.M) and re.search(r"^cpu +\d", head, re.M):
        return True
    first = [line for line in lines if line.strip()][:3]
    return (
        bool(first)
        and _SINCE.match(first[0]) is not None
        and ("boot" in first[0] or (len(first) == 1 and bool(re.search("uptime|boot", name))))
    )


PARSER = Parser("uptime", ("uptime",), recognise, parse)
