"""Times as people and programs read them: always UTC, always with a Z."""

from __future__ import annotations

from forensics.model import TimeRange
from forensics.model.times import duration, iso

__all__ = ["begin", "clock", "day", "duration", "end", "iso", "range_words"]

_SECOND_NS = 1_000_000_000


def begin(when: TimeRange | None) -> str | None:
    """The one instant that stands for the beginning of a state: the earliest that is possible."""
    return iso(when.earliest_ns) if when else None


def end(when: TimeRange | None) -> str | None:
    """The one instant that stands for the end of a state: the latest that is possible, so that from..to encloses it.

    A log line is an instant known to the second: there the line's own time is the one that people look for.
    """
    if when is None:
        return None
    return iso(when.earliest_ns if when.basis == "logged" else when.latest_ns)


def clock(ns: int | None) -> str:
    """Only the time of day ("10:02:00Z"), for tables that state the date once; "?" when unknown."""
    text = iso(ns)
    return text.split("T")[1] if text else "?"


def day(ns: int | None) -> str:
    text = iso(ns)
    return text.split("T")[0] if text else ""


def range_words(when: TimeRange | None) -> str:
    """ "10:02:00Z", or "10:02:00Z to 10:02:45Z" when it is not known more closely than that."""
    if when is None:
        return "?"
    first = clock(when.earliest_ns)
    if when.latest_ns - when.earliest_ns < _SECOND_NS:
        return first
    same_day = day(when.earliest_ns) == day(when.latest_ns)
    return f"{first} to {clock(when.latest_ns) if same_day else iso(when.latest_ns) or '?'}"
