"""Reading the many ways in which logs write a time. All results are ns since the epoch, UTC."""

from __future__ import annotations

import calendar
import functools
import re
import time
from dataclasses import dataclass

from forensics.model import TimeRange
from forensics.model.times import iso as written

SECOND = 1_000_000_000

# Ranked: the most explicit form first, since "2026-11-30 12:00:00" also contains "11-30 12:00:00".
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
_MONTH_DAY = re.compile(r"(?<![\d-])(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_SYSLOG = re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)")
_MONTHS = {name: i for i, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}
_YEAR_HINT = re.compile(rb"(?<!\d)(20[2-4]\d)-(0[1-9]|1[0-2])-([0-3]\d)(?!\d)")


@dataclass(frozen=True)
class Calendar:
    """What a node's bare times leave out: the year and the zone."""

    reference_ns: int
    """A time near which the evidence was made: a line without a year belongs to the year that brings it closest."""
    utc_offset_s: int = 0

    def parse(self, text: str, limit: int = 96) -> TimeRange | None:
        """The first time within the first `limit` characters, with the precision of its form; None when there is none."""
        head = text[:limit]
        if m := _ISO.search(head):
            year, month, day, hour, minute, second = (int(m[i]) for i in range(1, 7))
            offset = _zone(m[8]) if m[8] else self.utc_offset_s
            return _range(year, month, day, hour, minute, second, m[7], offset)
        if m := _MONTH_DAY.search(head):
            month, day, hour, minute, second = (int(m[i]) for i in range(1, 6))
            return self._without_year(month, day, hour, minute, second, m[6])
        if m := _SYSLOG.search(head):
            return self._without_year(_MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]), None)
        return None

    def stamp(self, text: str) -> TimeRange | None:
        """Exactly "MM-DD HH:MM:SS": the form that most lines of an engine's log carry, read without a search."""
        try:
            month, day, hour, minute, second = int(text[:2]), int(text[3:5]), int(text[6:8]), int(text[9:11]), int(text[12:14])
        except ValueError:
            return None
        return self._without_year(month, day, hour, minute, second, None)

    def _without_year(self, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> TimeRange | None:
        midnight = _midnight(self.reference_ns, self.utc_offset_s, month, day)
        if midnight is None or not (hour < 24 and minute < 60 and second < 61):
            return None
        return _precise(midnight + (hour * 3600 + minute * 60 + second) * SECOND, fraction)


@functools.lru_cache(maxsize=512)
def _midnight(reference_ns: int, utc_offset_s: int, month: int, day: int) -> int | None:
    """Start (ns) of that day in the year that brings it closest to the reference; None when no year has such a day."""
    near = time.gmtime(reference_ns / SECOND).tm_year
    days = (_range(year, month, day, 0, 0, 0, None, utc_offset_s) for year in (near, near - 1, near + 1))
    found = [r.earliest_ns for r in days if r]
    return min(found, key=lambda ns: abs(ns - reference_ns), default=None)


def _range(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None, offset_s: int) -> TimeRange | None:
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60 and second < 61):
        return None
    return _precise((calendar.timegm((year, month, day, hour, minute, second)) - offset_s) * SECOND, fraction)


def _precise(start_ns: int, fraction: str | None) -> TimeRange:
    """The instant with the precision that its digits give it."""
    if fraction:
        start_ns += int(fraction.ljust(9, "0"))
        return TimeRange(earliest_ns=start_ns, latest_ns=start_ns + 10 ** (9 - len(fraction)) - 1, basis="logged")
    return TimeRange(earliest_ns=start_ns, latest_ns=start_ns + SECOND - 1, basis="logged")


def _zone(text: str) -> int:
    if text == "Z":
        return 0
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def latest_date_hint(raw: bytes) -> int | None:
    """End (ns) of the latest full date named anywhere in `raw`, or None: it tells the year of lines that carry none."""
    best = None
    for m in _YEAR_HINT.finditer(raw):
        day = min(int(m[3]) or 1, calendar.monthrange(int(m[1]), int(m[2]))[1])
        at = (calendar.timegm((int(m[1]), int(m[2]), day, 0, 0, 0)) + 86399) * SECOND
        best = at if best is None else max(best, at)
    return best


def iso(ns: int | None) -> str:
    """A moment in words for sentences: "2026-09-01T10:02:00Z"."""
    return written(ns) or "an unknown time"


def duration(seconds: float) -> str:
    """ "4.2 s", "12 min 3 s", "3 h 20 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
