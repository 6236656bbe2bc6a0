"""`ls -l` of /dev/shm: which segments lie there, how large, and since when."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.parse._units import size
from forensics.analysis.times import SECOND
from forensics.model import ShmSegment, TimeRange

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ROW = re.compile(
    r"^\s*(?:\d+ +)?(?:[\d.]+[KMGT]? +)?(-)[rwxsStT-]{9}[.+@]? +\d+ +(\S+)(?: +\S+)? +(\d[\d.,]*[KMGT]?i?B?) +"
    rf"({_MONTH} +\d{{1,2}} +(?:\d\d:\d\d|\d{{4}})"
    rf"|\d{{4}}-\d\d-\d\d \d\d:\d\d(?::\d\d(?:\.\d{{1,9}})?)?(?: [+-]\d{{4}})?|\d\d-\d\d \d\d:\d\d) (.*)$"
)
_OURS = re.compile(
    r"^(?:psm_|sem\.|nccl-|torch_|cuda\.|vllm|sglang|loky-|wnsm_|__KMP_|mp-|pym-|ray|plasma|gloo|nvshmem|open_mpi|vader_segment|trtllm|ucx)",
    re.I,
)
DAY = 86400 * SECOND


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            m = _ROW.match(line)
            if m is None:
                continue
            sink.add(
                ShmSegment(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    name=plain(m[5].strip().removeprefix("/dev/shm/"), 300),
                    size_bytes=size(m[3]) or 0,
                    changed=_changed(m[4], inp),
                    owner=plain(m[2]),
                )
            )


def _changed(text: str, inp: Input) -> TimeRange | None:
    """As coarse as it is printed: a minute, or a day where `ls` prints the year in place of the time."""
    text = " ".join(text.split())
    if re.fullmatch(rf"{_MONTH} \d{{1,2}} \d{{4}}", text):
        month, day, year = text.split()
        found = inp.calendar.parse(f"{year}-{_NUMBERS[month]:02d}-{int(day):02d} 00:00:00")
        long = DAY
    elif text[-3:-2] == ":" and text.count(":") == 1:
        found = inp.calendar.parse(text + ":00")
        long = 60 * SECOND
    else:
        found = inp.calendar.parse(text)
        long = 0
    if found is None:
        return None
    return TimeRange(earliest_ns=found.earliest_ns, latest_ns=max(found.latest_ns, found.earliest_ns + long - 1), basis="file time")


_NUMBERS = {name: i for i, name in enumerate(_MONTH[3:-1].split("|"), 1)}


def recognise(name: str, head: str) -> bool:
    lines = body(head, 200)
    rows = [m[5] for line in lines if (m := _ROW.match(line))]
    if not rows:
        # an empty folder is an answer too, but only its name says of what
        return "shm" in name.lower() and bool(lines) and all(re.match(r"total \d|d[rwxtT-]{9}|ls: ", line) for line in lines)
    ours = "shm" in name.lower() or any("/dev/shm" in line for line in lines) or any(_OURS.match(row) for row in rows)
    return ours and len(rows) * 2 >= sum(not re.match(r"d|total \d|/\S*:$|ls: ", line) for line in lines)


PARSER = Parser("shm", ("shm-list",), recognise, parse)
