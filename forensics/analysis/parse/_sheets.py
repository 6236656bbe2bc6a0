"""What people write above the output of a tool: when it was taken, where, and of which process. Several sheets may lie in one file.

Known: comment lines ("# captured_at 2026-09-01T10:04:00Z host node0", "# 2026-08-11T09:15:07Z", "# sampled_at …", "# host node3"), the
line that `date` prints, and the head of `watch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from forensics.analysis.parse._base import Input
from forensics.analysis.times import SECOND
from forensics.model import TimeRange

LINE_CHARS = 4096
"""Of a line: patterns are searched in no more."""
SHEETS_MAX = 20_000

_HEAD = re.compile(
    r"#+ ?(?:(?:captured|sampled|taken|collected|recorded|dumped|read)(?:_at| at)?\b|(?:at|time|date|host|node|hostname|pid)\b"
    r"|\d{4}-\d\d-\d\d[T ])"
)
_STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s?(?:Z|[+-]\d\d:?\d\d)?")
_HOST = re.compile(r"\b(?:host|node|hostname)[ =:]+([A-Za-z0-9][A-Za-z0-9._-]{0,252})")
_PID = re.compile(r"\bpid[ =:]+(\d{1,9})\b")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DATE = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:({_MONTHS}) +(\d{{1,2}})|(\d{{1,2}}) ({_MONTHS})) (\d\d:\d\d:\d\d)(?: ([AP]M))?"
    rf"(?: (?!\d{{4}}\b)([A-Z]{{1,5}}|[+-]\d\d(?:\d\d)?))? (\d{{4}})"
)
_WATCH = re.compile(r"Every [\d.,]+s: ")
_WATCHED = re.compile(r"\s([A-Za-z0-9][A-Za-z0-9._-]{0,100}): (?=[A-Z][a-z]{2} )")
_AGE = re.compile(r"(\d{1,6})([smhdy])")
_AGE_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 31536000}
_NUMBER = {name: i for i, name in enumerate(_MONTHS.split("|"), 1)}


@dataclass(frozen=True)
class Sheet:
    """The output of one run of a tool: `inp` knows its node, time and sample, `line` the number of its first line in the file."""

    inp: Input
    text: str
    line: int

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number in the file, line without its end, of bounded length)"""
        for offset, line in enumerate(self.text.split("\n")):
            yield self.line + offset, line[:LINE_CHARS].rstrip("\r")

    def aged(self, age: str) -> TimeRange | None:
        """ "5m12s" before the sheet was taken, as coarse as its last unit; None where nobody says when that was."""
        parts, at = _AGE.findall(age), self.inp.at
        if at is None or not parts:
            return None
        back = sum(int(n) * _AGE_S[unit] for n, unit in parts) * SECOND
        return TimeRange(earliest_ns=at.earliest_ns - back - _AGE_S[parts[-1][1]] * SECOND, latest_ns=at.latest_ns - back, basis="inferred")


def is_head(line: str) -> bool:
    """Whether a line says when or where what follows was taken."""
    line = line[:300].strip()
    return bool(_HEAD.match(line) or _WATCH.match(line) or _DATE.fullmatch(line))


def body(head: str, most: int = 60) -> list[str]:
    """The first lines of a file that are neither empty nor such a head: what a recogniser looks at. The last may be cut."""
    found: list[str] = []
    for line in head.split("\n"):
        if line.strip() and not is_head(line):
            found.append(line[:LINE_CHARS].rstrip("\r"))
            if len(found) >= most:
                break
    return found


def sheets(inp: Input, text: str | None = None) -> list[Sheet]:
    """The sheets of a file, in order. Text above the first head is one too, unless it is empty. Never none."""
    lines = (inp.text() if text is None else text).split("\n")
    found: list[Sheet] = []
    now, start, rows = inp, 1, 0

    def finish(end: int) -> None:
        chunk = lines[start - 1 : end]
        if any(line.strip() for line in chunk):
            found.append(Sheet(replace(now, sample=inp.sample + len(found)), "\n".join(chunk), start))

    for number, line in enumerate(lines, 1):
        if not line or not (line[0] == "#" or line[:3].isalpha()) or not is_head(line) or len(found) >= SHEETS_MAX:
            rows += bool(line.strip())
            continue
        if rows:
            finish(number - 1)
            if stamped(line, inp) is not None:  # a new time: nothing said above is true of it but the node
                now = replace(now, at=None)
        now, start, rows = _told(line, now), number + 1, 0
    finish(len(lines))
    return found or [Sheet(inp, "", 1)]


def _told(line: str, inp: Input) -> Input:
    line = line[:300]
    # "Every 2.0s: nvidia-smi      node3: Sun Mar  2 16:20:31 2026"
    host = (_WATCHED if _WATCH.match(line) else _HOST).search(line)
    pid = _PID.search(line)
    at = stamped(line, inp)
    return replace(
        inp,
        node=host[1] if host else inp.node,
        pid=int(pid[1]) if pid else inp.pid,
        at=at or inp.at,
    )


def stamped(line: str, inp: Input) -> TimeRange | None:
    """The time that a line names: ISO, with slashes, or as `date` and ctime write it."""
    line = line[:300]
    if m := _STAMP.search(line):
        return inp.calendar.parse(m[0].replace("/", "-"), 64)
    return ctime(line, inp)


def ctime(text: str, inp: Input) -> TimeRange | None:
    """ "Sun Mar  2 16:20:31 2026", with or without a zone, and the order that other locales use. None where there is none."""
    m = _DATE.search(text[:300])
    if m is None:
        return None
    month, day = (_NUMBER[m[1]], int(m[2])) if m[1] else (_NUMBER[m[4]], int(m[3]))
    clock = m[5]
    if m[6]:
        try:
            clock = datetime.strptime(f"{clock} {m[6]}", "%I:%M:%S %p").strftime("%H:%M:%S")
        except ValueError:
            return None
    zone = m[7] or ""
    if zone in ("UTC", "GMT", "Z"):
        zone = "Z"
    elif zone[:1] in ("+", "-"):
        zone = zone if len(zone) == 5 else zone + "00"
    else:  # CET and such: which offset they mean is for the node to say
        zone = ""
    return inp.calendar.parse(f"{m[8]}-{month:02d}-{day:02d} {clock}{zone}")
