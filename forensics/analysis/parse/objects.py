"""Live objects of a process, as the objects collector read them in its memory: values, queues, locks, waits for events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import EventWait, EvidenceRef, LiveValue, LockReading, QueueDepth

T = TypeVar("T")
ENTRIES_MAX = 10_000
"""Of one list. An honest file holds dozens."""
TEXT_CHARS = 300
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Tids = Annotated[list[Count], msgspec.Meta(max_length=10_000)]


class _Value(msgspec.Struct):
    name: str
    expr: str = ""
    type: str = ""
    value: str | float | int | bool | None = None
    torn: bool = False


class _Queue(msgspec.Struct):
    address: Count
    kind: str = ""
    place: str = ""
    depth: Count = 0
    maxsize: Count | None = None
    unfinished: Count | None = None
    putting: Tids = []
    getting: Tids = []
    takers: Tids = []
    givers: Tids = []


class _Lock(msgspec.Struct):
    address: Count
    kind: str = ""
    place: str = ""
    owner: Count | None = None
    count: Count | None = None
    waiters: Tids = []
    inside: Tids = []


class _Wait(msgspec.Struct):
    tid: Count
    address: Count | None = None
    kind: str = ""
    place: str = ""
    flag: str | bool | None = None
    target: Count | None = None


class _Live(msgspec.Struct):
    values: list[msgspec.Raw] = []
    queues: list[msgspec.Raw] = []
    locks: list[msgspec.Raw] = []
    waits: list[msgspec.Raw] = []
    notes: list[str] = []


def parse(inp: Input, sink: Sink) -> None:
    live = msgspec.json.decode(bytes(inp.data), type=_Live)
    if inp.pid is None:
        sink.note(f"{inp.name}: live objects of no known process")
        return
    reader = _Reader(inp, sink, inp.pid)
    reader.each(live.values, _Value, reader.value)
    reader.each(live.queues, _Queue, reader.queue)
    reader.each(live.locks, _Lock, reader.lock)
    if live.notes and any(isinstance(o, LockReading) and o.owner is None and not o.inside for o in sink.observations):
        sink.note(f"{inp.name}: a lock without a known holder, and not every source could be read: {'; '.join(live.notes)[:TEXT_CHARS]}")
    reader.each(live.waits, _Wait, reader.wait)


class _Reader:
    def __init__(self, inp: Input, sink: Sink, pid: int) -> None:
        self.inp, self.sink, self.pid = inp, sink, pid

    def each(self, raws: list[msgspec.Raw], kind: type[T], take: Callable[[T, EvidenceRef], None]) -> None:
        """Each entry by itself: one that is not what it should be costs a note and not the others."""
        wrong = 0
        for index, raw in enumerate(raws[:ENTRIES_MAX]):
            try:
                entry = msgspec.json.decode(raw, type=kind)
            except msgspec.MsgspecError:
                wrong += 1
                continue
            what = kind.__name__.strip("_").lower()
            take(entry, self.inp.ref(f"{what} {index}", bytes(raw)[: 2 * TEXT_CHARS].decode("utf-8", "replace")))
        if wrong or len(raws) > ENTRIES_MAX:
            self.sink.note(f"{self.inp.name}: {wrong + max(0, len(raws) - ENTRIES_MAX)} entries were not read")

    def value(self, v: _Value, ref: EvidenceRef) -> None:
        text = json.dumps(v.value, allow_nan=False)
        self.sink.add(
            LiveValue(
                node=self.inp.node,
                at=self.inp.at,
                ref=ref,
                pid=self.pid,
                name=v.name[:TEXT_CHARS],
                expr=v.expr[:TEXT_CHARS],
                type=v.type[:TEXT_CHARS],
                value=text if len(text) <= TEXT_CHARS else "",
                torn=v.torn,
                sample=self.inp.sample,
            )
        )

    def queue(self, q: _Queue, ref: EvidenceRef) -> None:
        self.sink.add(
            QueueDepth(
                node=self.inp.node,
                at=self.inp.at,
                ref=ref,
                pid=self.pid,
                queue=(q.place or q.kind)[:TEXT_CHARS],
                kind="live",
                depth=q.depth,
                capacity=q.maxsize if q.maxsize and q.maxsize > 0 else None,
                putting=tuple(q.putting),
                getting=tuple(q.getting),
                takers=tuple(q.takers),
                givers=tuple(q.givers),
                address=q.address,
                sample=self.inp.sample,
            )
        )

    def lock(self, k: _Lock, ref: EvidenceRef) -> None:
        self.sink.add(
            LockReading(
                node=self.inp.node,
                at=self.inp.at,
                ref=ref,
                pid=self.pid,
                address=k.address,
                kind=k.kind[:TEXT_CHARS],
                place=k.place[:TEXT_CHARS],
                owner=k.owner,
                count=k.count,
                waiters=tuple(k.waiters),
                inside=tuple(k.inside),
                sample=self.inp.sample,
            )
        )

    def wait(self, w: _Wait, ref: EvidenceRef) -> None:
        self.sink.add(
            EventWait(
                node=self.inp.node,
                at=self.inp.at,
                ref=ref,
                pid=self.pid,
                tid=w.tid,
                kind=w.kind[:TEXT_CHARS],
                place=w.place[:TEXT_CHARS],
                address=w.address,
                flag="" if w.flag is None else json.dumps(w.flag)[:TEXT_CHARS],
                target=w.target,
                sample=self.inp.sample,
            )
        )


def recognise(name: str, head: str) -> bool:
    return head.lstrip().startswith("{") and '"python"' in head and '"values"' in head and '"queues"' in head


PARSER = Parser("live objects", ("live-json",), recognise, parse)
