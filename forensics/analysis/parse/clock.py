"""What a node said of its own clock and zone (kind clock)."""

from __future__ import annotations

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import ConfigValue


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
    targets: list[_TargetZone] = []


def read_clock(raw: bytes) -> Clock:
    """Decode clock/clock.json; raises msgspec.MsgspecError when it is not one."""
    return msgspec.json.decode(raw, type=Clock, strict=False)


def parse(inp: Input, sink: Sink) -> None:
    clock = read_clock(bytes(inp.data))
    adjtimex = clock.adjtimex
    value = "unknown" if adjtimex is None or adjtimex.synchronised is None else "yes" if adjtimex.synchronised else "no"
    bound = f", give or take {adjtimex.maxerror_us / 1e6:.3f} s" if adjtimex and adjtimex.maxerror_us is not None else ""
    sink.add(
        ConfigValue(
            node=inp.node,
            at=inp.at,
            ref=inp.ref("adjtimex", f"synchronised: {value}{bound}; zone {clock.zone or '?'}"),
            name="clock-synchronised",
            value=value,
            via="kernel",
        )
    )


PARSER = Parser("clock", ("clock",), lambda name, head: False, parse)
