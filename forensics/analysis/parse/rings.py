"""Shared-memory rings and load snapshots as the rings collector read them: see collectors/_rings.py and _loads.py for the layouts.

A ring's slots are reused in turn. Nothing in it says where the writer is; it follows where a slot is being written, where the first
lap is not over, or where a reader lags: the writer then comes next after that reader's last unread slot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import QueueDepth, RingReading, TimeRange

OVERFLOW = "(overflow)"
"""Stands for the call of a slot whose payload went through the socket."""
OTHER = "(other)"
"""Stands for a call whose name is not of vLLM's own: the collector keeps such words to itself."""
LOOKS_MAX, SLOTS_MAX, READERS_MAX, HOLDERS_MAX, RANKS_MAX = 64, 64, 1024, 4096, 1024
_WORD = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_TIME_MAX_NS = 2**63 - 1
LOAD_FIELDS = {"running": "num_running_reqs", "waiting": "num_waiting_reqs"}


class _Geometry(msgspec.Struct):
    slots: int
    readers: int
    known: bool = False
    refuted: bool = False


class _Call(msgspec.Struct):
    slot: int
    name: str = ""
    overflow: bool = False


class _RingLook(msgspec.Struct):
    at_ns: int
    flags: str
    calls: list[_Call] = []


class _Holder(msgspec.Struct):
    pid: int


class _Ring(msgspec.Struct):
    segment: str
    geometries: list[_Geometry]
    looks: list[_RingLook]
    holders: list[_Holder] = []
    ambiguous: bool = False


class _Slot(msgspec.Struct):
    values: dict[str, Any] = {}
    error: str = ""


class _LoadLook(msgspec.Struct):
    at_ns: int
    slots: list[_Slot]
    locked: bool = True


class _Load(msgspec.Struct):
    segment: str
    looks: list[_LoadLook]


def parse(inp: Input, sink: Sink) -> None:
    try:
        if inp.kind == "load-snapshot" or (not inp.kind and bytes(inp.data[:64]).startswith(_LOAD_HEADS)):
            _load(inp, sink, msgspec.json.decode(bytes(inp.data), type=_Load))
        else:
            _ring(inp, sink, msgspec.json.decode(bytes(inp.data), type=_Ring))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        sink.note(f"{inp.name}: no {inp.kind or 'ring'} that can be read: {str(error)[:200]}")


# rings


def _ring(inp: Input, sink: Sink, ring: _Ring) -> None:
    geometry = next((g for g in ring.geometries if not g.refuted), None)
    if geometry is None or not (1 <= geometry.slots <= SLOTS_MAX and 1 <= geometry.readers <= READERS_MAX):
        sink.note(f"{inp.name}: no ring has such a geometry: {_words(geometry) if geometry else 'none is left'}")
        return
    holders = tuple(sorted({h.pid for h in ring.holders[:HOLDERS_MAX] if 0 < h.pid < 2**31}))
    for number, look in enumerate(ring.looks[:LOOKS_MAX], 1):
        flags = _flags(look.flags)
        if flags is None or len(flags) != geometry.slots * (1 + geometry.readers):
            sink.note(f"{inp.name}: look {number}: its flags are not those of {_words(geometry)}")
            continue
        calls = [""] * geometry.slots
        for call in look.calls[:SLOTS_MAX]:
            if 0 <= call.slot < geometry.slots:
                calls[call.slot] = OVERFLOW if call.overflow else call.name if call.name == OTHER or _WORD.fullmatch(call.name) else ""
        written, unread = read_flags(flags, geometry.readers)
        sink.add(
            RingReading(
                node=inp.node,
                at=_moment(inp, look.at_ns),
                ref=inp.ref(f"look {number}", _quote(written, unread, calls)),
                pid=inp.pid,
                ring=ring.segment[:80],
                holders=holders,
                readers=geometry.readers,
                chunks=geometry.slots,
                written=written,
                unread=unread,
                calls=tuple(calls),
                ambiguous=ring.ambiguous,
                sample=inp.sample,
            )
        )


def _words(g: _Geometry) -> str:
    return f"{g.slots} slots with {g.readers} readers"


def _flags(text: str) -> bytes | None:
    """The flag bytes; None for what is no hex or holds anything but 0 and 1."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    return raw if not raw.strip(b"\0\1") else None


def read_flags(flags: bytes, readers: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """(written slots, for each reader the written slots that it has not taken, from the oldest) of whole flag bytes."""
    width = 1 + readers
    slots = [flags[i : i + width] for i in range(0, len(flags), width)]
    count = len(slots)
    written = tuple(i for i, slot in enumerate(slots) if slot[0])
    unread = [[i for i in written if not slots[i][1 + reader]] for reader in range(readers)]
    oldest = _writer(slots, unread) or 0
    return written, tuple(tuple(sorted(mine, key=lambda i: (i - oldest) % count)) for mine in unread)


def _writer(slots: Sequence[bytes], unread: Sequence[Sequence[int]]) -> int | None:
    """The slot that is written next, which is where the oldest slots begin; None when it cannot be told."""
    count = len(slots)
    blank = [i for i, slot in enumerate(slots) if not slot[0]]
    if blank:  # in the first lap the first of them; afterwards only the one that is being written right now
        return blank[0]
    longest = max(unread, key=lambda mine: len(mine) % count)
    if not 0 < len(longest) < count:
        return None
    mine = set(longest)
    return next((i + 1) % count for i in longest if (i + 1) % count not in mine)


def _quote(written: Sequence[int], unread: Sequence[Sequence[int]], calls: Sequence[str]) -> str:
    behind = [
        f"reader {reader} has not taken " + ", ".join(f"{i} ({calls[i]})" if calls[i] else str(i) for i in mine)
        for reader, mine in enumerate(unread)
        if mine
    ]
    return "; ".join(behind) or f"every reader has taken all {len(written)} written slots"


def _moment(inp: Input, at_ns: int) -> TimeRange | None:
    return TimeRange(earliest_ns=at_ns, latest_ns=at_ns, basis="sampled") if 0 < at_ns <= _TIME_MAX_NS else inp.at


# load snapshots


def _load(inp: Input, sink: Sink, load: _Load) -> None:
    for number, look in enumerate(load.looks[:LOOKS_MAX], 1):
        for index, slot in enumerate(look.slots[:RANKS_MAX]):
            if slot.error:
                sink.note(f"{inp.name}: look {number}: slot {index}: {slot.error[:100]}")
                continue
            rank = _count(slot.values.get("dp_rank"), index)
            at, age = _said(inp, look.at_ns, slot.values.get("timestamp"))
            capacity = _count(slot.values.get("max_running_requests"), 0) or None
            depths = {name: _count(slot.values.get(field), 0) for name, field in LOAD_FIELDS.items()}
            quote = ", ".join(f"{name} {depth}" for name, depth in depths.items()) + age
            for name, depth in depths.items():
                sink.add(
                    QueueDepth(
                        node=inp.node,
                        at=at,
                        ref=inp.ref(f"look {number} slot {index}", quote),
                        pid=inp.pid,
                        queue=f"dp {rank} {name}",
                        kind="load-snapshot",
                        depth=depth,
                        capacity=capacity if name == "running" else None,
                        unit="requests",
                        sample=inp.sample,
                    )
                )


def _said(inp: Input, at_ns: int, timestamp: Any) -> tuple[TimeRange | None, str]:
    """From when the scheduler said so to when it was read: a scheduler that turns says it anew with every step."""
    seen = _moment(inp, at_ns)
    if seen is None or not isinstance(timestamp, (int, float)) or not 0 < timestamp <= seen.latest_ns / 1e9:
        return seen, ""
    since = int(timestamp * 1e9)
    return TimeRange(earliest_ns=since, latest_ns=seen.latest_ns, basis="sampled"), f", said {(seen.latest_ns - since) / 1e9:.1f} s before"


def _count(value: Any, otherwise: int) -> int:
    """A number of things; a field that was left out is zero, and nonsense counts as left out."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else otherwise


_LOAD_HEADS = (b'{"segment":"sglang_loads_', b'{"segment": "sglang_loads_')
_HEADS = ('{"segment":"psm_', '{"segment": "psm_', *(head.decode() for head in _LOAD_HEADS))

PARSER = Parser("rings", ("ring-json", "load-snapshot"), lambda name, head: head.startswith(_HEADS), parse)
