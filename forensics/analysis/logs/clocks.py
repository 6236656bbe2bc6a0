"""Which clock dates the lines of one file, where a wrapper's stands beside the process's own.

A wrapper's clock dates every line, also those that the process did not date, and is often finer; the process's clock is the
one that its neighbours' files share. So the wrapper's is used, brought into the zone that the processes write in: by the zone
that it names itself, else by the whole quarters of an hour that it is constantly ahead. One clock for each layer, and the
offset is said.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from forensics.analysis.buffers import Buffer
from forensics.analysis.logs._format import Peeled
from forensics.analysis.logs.peel import Hint, peel
from forensics.analysis.times import SECOND, Calendar, Stamp
from forensics.model import TimeRange

SURVEY_BYTES = 64 * 1024
"""Read at the head, in the middle and at the end of a file to learn about its clocks."""
SURVEY_LINES = 400
LEAST_LINES = 3
"""Fewer lines with both clocks prove no constant offset."""
QUARTER_S = 900
"""Zones differ by whole quarters of an hour."""
ZONE_SLACK_S = 150
"""How far a zone's offset may be from whole quarters: what buffering and drift add to it."""
MACHINES_OWN = ("syslog", "systemd")
"""Wrappers that stand in the same zone as the kernel's lines of that machine."""
DRIFT_S = 2.0
"""A smaller constant offset is what passing a line on takes."""


@dataclass(frozen=True)
class Clocks:
    """How the lines of one file are dated. Times in ns since the epoch (UTC), offsets in seconds."""

    calendar: Calendar
    boot_ns: int | None = None
    offset_s: float | None = None
    """What the wrapper is constantly ahead of the process's clock, as the two stand on the lines; None where they agree."""
    zone_s: int = 0
    """What is taken off a wrapper's time that names no zone."""
    behind_s: float = 0.0
    """What is added to the process's clock where it stands alone on a line, so that all lines are on the wrapper's."""
    pairs: int = 0
    """Lines of the survey that carry both clocks."""
    wrapper: str = ""
    """The format that the wrapper's clock came with."""
    zoned: bool = False
    """The wrapper names its zone."""

    @property
    def outer(self) -> Calendar:
        """The calendar for lines that the wrapper alone dates."""
        return replace(self.calendar, utc_offset_s=self.calendar.utc_offset_s + self.zone_s)

    def at(self, line: Peeled, near: TimeRange | None = None) -> TimeRange | None:
        """When a line was written. `near` is the time of a neighbour: it tells the day of a bare clock and bounds nothing else."""
        outer, inner = line.wrapper_time, line.inner_time
        if outer is not None and (found := self._outer(outer, near)):
            return found
        if inner is None:
            return None
        found = self.calendar.read(inner, near, self.boot_ns)
        return (
            _moved(found, self.behind_s) if found and self.behind_s and inner.form not in ("clock", "boot") and not inner.zoned else found
        )

    def _outer(self, stamp: Stamp, near: TimeRange | None) -> TimeRange | None:
        found = self.calendar.read(stamp, near, self.boot_ns)
        if found is None or not self.zone_s or stamp.zoned:
            return found
        return _moved(found, -self.zone_s)


def _moved(at: TimeRange, seconds: float) -> TimeRange:
    by = round(seconds * SECOND)
    return TimeRange(earliest_ns=at.earliest_ns + by, latest_ns=at.latest_ns + by, basis=at.basis)


def survey(data: Buffer, calendar: Calendar, boot_ns: int | None = None, hint: Hint | None = None) -> Clocks:
    """Learn a file's clocks from lines of its head, middle and end (`data` is the file: bytes or a memory map)."""
    hint = hint or Hint()
    return measure((peel(line, hint) for line in _some_lines(data)), calendar, boot_ns)


def local_zone(head: bytes, calendar: Calendar) -> int | None:
    """The zone of the machine that a file was written on, as an offset from UTC (s): None where it does not tell.

    Its wrappers name it; or the machine's own syslog is whole quarters of an hour off the processes in it.
    """
    hint = Hint()
    lines = [peel(line, hint) for line in _some_lines(head)]
    named = _named_zone(lines)
    if named is not None:
        return named
    clocks = measure(lines, calendar)
    return calendar.utc_offset_s + clocks.zone_s if clocks.zone_s and clocks.wrapper in MACHINES_OWN else None


def measure(lines: Iterable[Peeled], calendar: Calendar, boot_ns: int | None = None) -> Clocks:
    """The offset that explains the lines: constant over several of them, and more than passing a line on may take."""
    lines = list(lines)
    named = _named_zone(lines)
    if named is not None:
        # a runtime that names its zone stands in it, and mostly so do the processes beside it
        calendar = replace(calendar, utc_offset_s=named)
    ahead: list[float] = []
    wrapper, zoned = "", False
    for line in lines:
        outer, inner = line.wrapper_time, line.inner_time
        if outer is None or inner is None or inner.form in ("boot", "clock"):
            continue
        passed = calendar.read(outer, None, boot_ns)
        if passed is None:
            continue
        # the wrapper mostly has a year: the process's own date is the nearest one to it
        written = replace(calendar, reference_ns=passed.earliest_ns).read(inner)
        if written is None:
            continue
        ahead.append((passed.earliest_ns - written.earliest_ns) / SECOND)
        wrapper, zoned = wrapper or (line.wrappers[0] if line.wrappers else ""), zoned or outer.zoned
    offset = _constant(ahead)
    zone = round(offset / QUARTER_S) * QUARTER_S if offset is not None else 0
    is_zone = offset is not None and zone != 0 and abs(offset - zone) <= ZONE_SLACK_S
    return Clocks(
        calendar,
        boot_ns,
        offset_s=offset,
        zone_s=zone if is_zone and not zoned else 0,
        behind_s=(float(zone) if zoned else 0.0) if is_zone else offset or 0.0,
        pairs=len(ahead),
        wrapper=wrapper,
        zoned=zoned,
    )


def _constant(ahead: list[float]) -> float | None:
    """The median of the differences where it is an offset, and not the time that lines spent in a buffer."""
    if len(ahead) < LEAST_LINES:
        return None
    middle = statistics.median(ahead)
    spread = sorted(abs(a - middle) for a in ahead)[round(0.9 * (len(ahead) - 1))]
    zone = round(middle / QUARTER_S) * QUARTER_S
    if zone and abs(middle - zone) <= ZONE_SLACK_S and spread <= ZONE_SLACK_S:
        return middle
    # a second of doubt lies in each clock that shows whole seconds
    return middle if abs(middle) > max(DRIFT_S, 4 * spread) and spread <= DRIFT_S else None


def _named_zone(lines: list[Peeled]) -> int | None:
    """What most wrappers name; None where they name none, or several (a fleet's log, a change of summer time)."""
    named = Counter(zone for line in lines if line.wrapper_time and (zone := line.wrapper_time.zone_s) is not None)
    if not named:
        return None
    zone, count = named.most_common(1)[0]
    return zone if count >= LEAST_LINES and count > 0.9 * sum(named.values()) else None


def _some_lines(data: Buffer) -> Iterable[str]:
    size = len(data)
    starts = (0,) if size <= 3 * SURVEY_BYTES else (0, size // 2, size - SURVEY_BYTES)
    length = size if len(starts) == 1 else SURVEY_BYTES
    for start in starts:
        lines = bytes(data[start : start + length]).split(b"\n", SURVEY_LINES + 1)
        # the first and the last of a piece are cut
        for line in lines[1 if start else 0 : SURVEY_LINES]:
            yield line[:2048].decode("utf-8", "replace")
