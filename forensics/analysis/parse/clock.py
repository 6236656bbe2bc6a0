"""What a node said of its own clock and zone (kind clock)."""

from __future__ import annotations

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import ClockState

TRACKING_FIELDS = 14


class _Adjtimex(msgspec.Struct):
    synchronised: bool | None = None
    maxerror_us: int | None = None


class _TargetZone(msgspec.Struct):
    pid: int = 0
    utc_offset_s: int | None = None


class Clock(msgspec.Struct):
    wall_ns: int | None = None
    boottime_ns: int | None = None
    utc_offset_s: int | None = None
    zone: str = ""
    boot_id: str = ""
    adjtimex: _Adjtimex | None = None
    chronyc: str | None = None
    targets: list[_TargetZone] = []


def read_clock(raw: bytes) -> Clock:
    """Decode clock/clock.json; raises msgspec.MsgspecError when it is not one."""
    return msgspec.json.decode(raw, type=Clock, strict=False)


def parse(inp: Input, sink: Sink) -> None:
    clock = read_clock(bytes(inp.data))
    if (read := clock.adjtimex) is not None and read.synchronised is not None:
        error = read.maxerror_us / 1e6 if read.maxerror_us is not None else None
        _add(inp, sink, "adjtimex", read.synchronised, error, f"zone {clock.zone or '?'}")
    if (tracked := _tracking(clock.chronyc or "")) is not None:
        _add(inp, sink, "chronyc", *tracked, "chronyc tracking")


def _add(inp: Input, sink: Sink, via: str, synchronised: bool, error_s: float | None, more: str) -> None:
    bound = f", give or take {error_s:.3f} s" if error_s is not None else ""
    ref = inp.ref(via, f"synchronised: {'yes' if synchronised else 'no'}{bound}; {more}")
    sink.add(ClockState(node=inp.node, at=inp.at, ref=ref, via=via, synchronised=synchronised, error_s=error_s))


def _tracking(text: str) -> tuple[bool, float | None] | None:
    """(synchronised, error in s) of `chronyc -c tracking`, chrony 3 and 4: 14 fields, of which the third is the stratum, the fifth how far
    the clock is off NTP time, the 11th and 12th the root's delay and dispersion, the last the leap status. None for anything else."""
    cells = text.strip().split(",")
    if len(cells) != TRACKING_FIELDS or not cells[-1]:
        return None
    try:
        off, delay, dispersion = (float(cells[n]) for n in (4, 10, 11))
    except ValueError:
        return None
    # chrony.conf(5): the clock is within offset + dispersion + half of the delay
    return cells[-1] != "Not synchronised", abs(off) + dispersion + delay / 2


PARSER = Parser("clock", ("clock",), lambda name, head: False, parse)
