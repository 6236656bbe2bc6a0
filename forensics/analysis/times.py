"""Reading the many ways in which logs write a time. All results are ns since the epoch, UTC."""

from __future__ import annotations

import calendar
import functools
import re
import time
from dataclasses import dataclass
from typing import NamedTuple

from forensics.model import TimeRange
from forensics.model.times import duration
from forensics.model.times import iso as written

__all__ = ["SECOND", "Calendar", "duration", "iso", "latest_date_hint"]

SECOND = 1_000_000_000

# Ranked: the most explicit form first, since "2026-11-30 12:00:00" also contains "11-30 12:00:00".
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s?(Z|[+-]\d\d:?\d\d(?!\d)|UTC|GMT)?")
_SLASHED = re.compile(r"(?<![\d/])(20\d\d)/(\d\d)/(\d\d)[T -](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_US = re.compile(r"(?<![\d/])(\d\d)/(\d\d)/(20\d\d)[ -](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CTIME = re.compile(rf"\b{_MONTH} {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:[.,](\d{{1,9}}))? (?:(UTC|GMT) |[A-Z]{{3,4}} )?(20\d\d)(?!\d)")
_MONTH_DAY = re.compile(r"(?<![\d-])(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(r"(?<![\w])[IWEFDV]?(20\d\d)?(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3,9})")
_SYSLOG = re.compile(rf"\b{_MONTH} {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:[.,](\d{{1,9}}))?")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_EPOCH = re.compile(r"([0-9]{9,19})(?:\.([0-9]{1,9})[0-9]*)?")
_MONTHS = {name: i for i, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}
_YEAR_HINT = re.compile(rb"(?<!\d)(20[2-4]\d)[-/](0[1-9]|1[0-2])[-/]([0-3]\d)(?!\d)")
_CTIME_HINT = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2})"
    rb" \d\d:\d\d:\d\d (?:[A-Z]{3,5} )?(20[2-4]\d)\b"
)
_ZONED = re.compile(r"(?:Z|[+-]\d\d:?\d\d|UTC|GMT)(?: 20\d\d)?$")
_OFFSET = re.compile(r"(?<=\d)[+-]\d\d:?\d\d$")
_DAY = 86400 * SECOND


class Stamp(NamedTuple):
    """A time as it stands in a line, not yet read: most lines are never asked for theirs."""

    form: str
    """One of FORMS."""
    text: str

    @property
    def zoned(self) -> bool:
        """Whether it names its zone, so that nothing about it has to be assumed."""
        return self.form == "epoch" or (self.form in ("iso", "ctime") and bool(_ZONED.search(self.text)))

    @property
    def zone_s(self) -> int | None:
        """The offset from UTC that it names by its figures; None for "Z", which a runtime writes in whatever zone it stands."""
        m = _OFFSET.search(self.text) if self.form == "iso" else None
        return _zone(m[0]) if m else None


FORMS = ("iso", "month-day", "us", "slash", "ctime", "syslog", "glog", "clock", "epoch", "boot")
"""iso: 2026-09-01T10:00:00.5Z, with a blank, a comma, without zone; month-day: 09-01 10:00:00; us: 09/01/2026-10:00:00;
slash: 2026/09/01 10:00:00.5; ctime: Tue Sep  1 10:00:00 2026; syslog: Sep  1 10:00:00; glog: 0901 10:00:00.123456 or 901 …;
clock: 10:00:00, its day told by the neighbours; epoch: seconds, milli-, micro- or nanoseconds since 1970 by their size;
boot: seconds since the machine started."""


@dataclass(frozen=True)
class Calendar:
    """What a node's bare times leave out: the year and the zone."""

    reference_ns: int
    """A time near which the evidence was made: a line without a year belongs to the year that brings it closest."""
    utc_offset_s: int = 0
    latest_ns: int | None = None
    """No line is later than this, where that is known: a log is not written after its file was last changed."""

    def parse(self, text: str, limit: int = 96) -> TimeRange | None:
        """The first time within the first `limit` characters, with the precision of its form; None when there is none."""
        head = text[:limit]
        if m := _ISO.search(head):
            year, month, day, hour, minute, second = (int(m[i]) for i in range(1, 7))
            offset = _zone(m[8]) if m[8] else self.utc_offset_s
            return _range(year, month, day, hour, minute, second, m[7], offset)
        if (m := _SLASHED.search(head)) or (m := _US.search(head)):
            return self._dated(m)
        if m := _CTIME.search(head):
            return self._ctime(m)
        if m := _MONTH_DAY.search(head):
            month, day, hour, minute, second = (int(m[i]) for i in range(1, 6))
            return self._without_year(month, day, hour, minute, second, m[6])
        if m := _SYSLOG.search(head):
            return self._without_year(_MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]), m[6])
        if m := _GLOG.search(head):
            month, day, hour, minute, second = (int(m[i]) for i in range(2, 7))
            if m[1] and len(m[2]) == 2:
                return _range(int(m[1]), month, day, hour, minute, second, m[7], self.utc_offset_s)
            return self._without_year(month, day, hour, minute, second, m[7])
        return None

    def read(self, stamp: Stamp, near: TimeRange | None = None, boot_ns: int | None = None) -> TimeRange | None:
        """A stamp of a known form. `near` tells the day of a bare clock, `boot_ns` when the machine started: without them None."""
        form, text = stamp
        if form == "month-day" and len(text) == 14:
            return self.stamp(text)
        if form == "clock":
            return self._clock(text, near)
        if form == "epoch":
            return _epoch(text)
        if form == "boot":
            return _since_boot(text, boot_ns)
        return self.parse(text)

    def _dated(self, m: re.Match[str]) -> TimeRange | None:
        """A date with slashes: the year stands first, or else last after month and day."""
        first, second, third, hour, minute, sec = (int(m[i]) for i in range(1, 7))
        year, month, day = (first, second, third) if first > 31 else (third, first, second)
        return _range(year, month, day, hour, minute, sec, m[7], self.utc_offset_s)

    def _ctime(self, m: re.Match[str]) -> TimeRange | None:
        offset = 0 if m[7] else self.utc_offset_s
        return _range(int(m[8]), _MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]), m[6], offset)

    def _clock(self, text: str, near: TimeRange | None) -> TimeRange | None:
        """A time of day, on the day that brings it closest to its neighbour."""
        m = _CLOCK.match(text)
        if m is None or near is None:
            return None
        hour, minute, second = int(m[1]), int(m[2]), int(m[3])
        if not (hour < 24 and minute < 60 and second < 61):
            return None
        offset = self.utc_offset_s * SECOND
        midnight = (near.earliest_ns + offset) // _DAY * _DAY - offset
        start = midnight + (hour * 3600 + minute * 60 + second) * SECOND
        start = min((start - _DAY, start, start + _DAY), key=lambda ns: abs(ns - near.earliest_ns))
        found = _precise(start, m[4])
        return TimeRange(earliest_ns=found.earliest_ns, latest_ns=found.latest_ns, basis="inferred")

    def stamp(self, text: str) -> TimeRange | None:
        """Exactly "MM-DD HH:MM:SS": the form that most lines of an engine's log carry, read without a search."""
        try:
            month, day, hour, minute, second = int(text[:2]), int(text[3:5]), int(text[6:8]), int(text[9:11]), int(text[12:14])
        except ValueError:
            return None
        return self._without_year(month, day, hour, minute, second, None)

    def _without_year(self, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> TimeRange | None:
        midnight = _midnight(self.reference_ns, self.utc_offset_s, self.latest_ns, month, day)
        if midnight is None or not (hour < 24 and minute < 60 and second < 61):
            return None
        return _precise(midnight + (hour * 3600 + minute * 60 + second) * SECOND, fraction)


@functools.lru_cache(maxsize=512)
def _midnight(reference_ns: int, utc_offset_s: int, latest_ns: int | None, month: int, day: int) -> int | None:
    """Start (ns) of that day in the year that brings it closest to the reference, not later than the latest where a year allows."""
    near = time.gmtime(reference_ns / SECOND).tm_year
    days = (_range(year, month, day, 0, 0, 0, None, utc_offset_s) for year in (near, near - 1, near + 1))
    found = [r.earliest_ns for r in days if r]
    possible = [ns for ns in found if latest_ns is None or ns <= latest_ns]
    return min(possible or found, key=lambda ns: abs(ns - reference_ns), default=None)


def _range(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None, offset_s: int) -> TimeRange | None:
    if not (year and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60 and second < 61):
        return None
    return _precise((calendar.timegm((year, month, day, hour, minute, second)) - offset_s) * SECOND, fraction)


def _precise(start_ns: int, fraction: str | None) -> TimeRange:
    """The instant with the precision that its digits give it."""
    if fraction:
        start_ns += int(fraction.ljust(9, "0"))
        return TimeRange(earliest_ns=start_ns, latest_ns=start_ns + 10 ** (9 - len(fraction)) - 1, basis="logged")
    return TimeRange(earliest_ns=start_ns, latest_ns=start_ns + SECOND - 1, basis="logged")


def _epoch(text: str) -> TimeRange | None:
    """Seconds, milli-, micro- or nanoseconds since 1970: their number of digits tells which, from 2001 to 2286."""
    m = _EPOCH.fullmatch(text)
    if m is None:
        return None
    whole, fraction = m[1], m[2] or ""
    unit = {0: 9, 1: 6, 2: 3, 3: 0}.get((len(whole) - 9) // 3, -1)
    if unit < 0 or len(whole) > 19:
        return None
    start = int(whole) * 10**unit
    if not fraction:
        return TimeRange(earliest_ns=start, latest_ns=start + 10**unit - 1, basis="logged")
    kept = fraction[:unit]
    start += int(kept.ljust(unit, "0") or "0")
    return TimeRange(earliest_ns=start, latest_ns=start + 10 ** (unit - len(kept)) - 1, basis="logged")


def _since_boot(text: str, boot_ns: int | None) -> TimeRange | None:
    """Seconds since the machine started. The kernel's clock stands still in sleep and is not slewed: a second of doubt."""
    whole, _, fraction = text.strip().partition(".")
    if boot_ns is None or not (whole.isdecimal() and len(whole) < 10 and (not fraction or fraction.isdecimal())):
        return None
    at = boot_ns + int(whole) * SECOND + int(fraction[:9].ljust(9, "0"))
    return TimeRange(earliest_ns=at, latest_ns=at + SECOND, basis="kernel")


def _zone(text: str) -> int:
    if text in ("Z", "UTC", "GMT"):
        return 0
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def latest_date_hint(raw: bytes) -> int | None:
    """End (ns) of the latest full date named anywhere in `raw`, or None: it tells the year of lines that carry none."""
    best = None
    dates = [(int(m[1]), int(m[2]), int(m[3])) for m in _YEAR_HINT.finditer(raw)]
    dates += [(int(m[3]), _MONTHS[m[1].decode()], int(m[2])) for m in _CTIME_HINT.finditer(raw)]
    for year, month, day in dates:
        day = min(day or 1, calendar.monthrange(year, month)[1])
        at = (calendar.timegm((year, month, day, 0, 0, 0)) + 86399) * SECOND
        best = at if best is None else max(best, at)
    return best


def iso(ns: int | None) -> str:
    """A moment in words for sentences: "2026-09-01T10:02:00Z"."""
    return written(ns) or "an unknown time"
