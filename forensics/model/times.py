"""How a moment is written (always UTC, always with a Z), and how a length of time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND_NS = 1_000_000_000


def iso(ns: int | None) -> str | None:
    """ISO-8601 UTC of nanoseconds since the epoch; milliseconds only when it is not a whole second.

    None for None, and for a number that no calendar knows: a damaged bundle may hold any integer.
    """
    if ns is None:
        return None
    seconds, rest = divmod(ns, _SECOND_NS)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    millis = rest // 1_000_000
    # strftime does not pad years below 1000 on every libc; isoformat does
    return moment.replace(tzinfo=None).isoformat() + (f".{millis:03d}Z" if millis else "Z")


def duration(seconds: float) -> str:
    """ "4.2 s", "12 min 3 s", "3 h 20 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
