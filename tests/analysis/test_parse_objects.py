"""Live objects: what the collector writes is read whole, and whatever else comes under that name costs a note."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forensics import engines
from forensics.analysis import parse
from forensics.analysis.parse import Input, Sink
from forensics.analysis.times import Calendar
from forensics.model import EventWait, LiveValue, LockReading, QueueDepth, Role

CALENDAR = Calendar(reference_ns=1_788_256_800_000_000_000)
LIVE: dict[str, Any] = {
    "at_ns": 5,
    "python": "3.11",
    "ms": 41.5,
    "values": [
        {"name": "running_requests", "expr": "len(EngineCore.scheduler.running)", "type": "int", "value": 8, "torn": False},
        {"name": "batch_queue", "expr": "EngineCore.batch_queue", "type": "NoneType", "value": None, "torn": True},
        {"name": "execute_timeout_s", "expr": 'os.environ["X"]', "type": "bytes", "value": "300", "torn": False},
    ],
    "queues": [
        {
            "address": 140_000,
            "kind": "queue.Queue",
            "place": "request_queue (offload.py:75)",
            "depth": 4,
            "maxsize": 4,
            "unfinished": 5,
            "putting": [11],
            "getting": [],
            "takers": [12],
        },
        {"address": 150_000, "kind": "_queue.SimpleQueue", "place": "", "depth": 0, "maxsize": None, "unfinished": None},
    ],
    "locks": [
        {
            "address": 7,
            "kind": "Lock",
            "place": "table_lock (offload.py:52)",
            "owner": None,
            "owner_known": True,
            "count": None,
            "waiters": [11],
            "inside": [12],
        },
        {
            "address": 8,
            "kind": "RLock",
            "place": "T.l (offload.py:9)",
            "owner": 11,
            "owner_known": True,
            "count": 2,
            "waiters": [12],
            "inside": [],
        },
    ],
    "waits": [
        {"tid": 12, "address": 9, "kind": "threading.Event", "place": "ReadyEvent._event (offload.py:31)", "flag": False},
        {"tid": 13, "address": 10, "kind": "join", "place": "t (offload.py:31)", "target": 12},
    ],
    "notes": [],
}


def read(data: bytes, pid: int | None = 4243) -> Sink:
    parser = parse.find("live-json", "pid-4243.2.json", data[:8192].decode("utf-8", "replace"))
    assert parser is not None
    sink = Sink()
    parser.parse(Input(name="objects/pid-4243.2.json", node="n1", data=data, kind="live-json", pid=pid, sample=2, calendar=CALENDAR), sink)
    return sink


def of(sink: Sink, kind: type) -> list[Any]:
    return [o for o in sink.observations if isinstance(o, kind)]


def test_all_that_the_collector_writes() -> None:
    sink = read(json.dumps(LIVE).encode())
    assert sink.notes == [] and {(o.node, o.pid, o.sample) for o in sink.observations} == {("n1", 4243, 2)}
    assert [(v.name, v.value, v.torn) for v in of(sink, LiveValue)] == [
        ("running_requests", "8", False),
        ("batch_queue", "null", True),
        ("execute_timeout_s", '"300"', False),
    ]
    full, simple = of(sink, QueueDepth)
    assert (full.queue, full.kind, full.depth, full.capacity, full.putting, full.takers, full.address) == (
        "request_queue (offload.py:75)",
        "live",
        4,
        4,
        (11,),
        (12,),
        140_000,
    )
    assert (simple.queue, simple.capacity) == ("_queue.SimpleQueue", None)
    assert [(k.kind, k.owner, k.count, k.waiters, k.inside) for k in of(sink, LockReading)] == [
        ("Lock", None, None, (11,), (12,)),
        ("RLock", 11, 2, (12,), ()),
    ]
    assert [(w.tid, w.kind, w.flag, w.target) for w in of(sink, EventWait)] == [
        (12, "threading.Event", "false", None),
        (13, "join", "", 12),
    ]
    quote = of(sink, LockReading)[0].ref
    assert quote.source == "objects/pid-4243.2.json" and quote.locator == "lock 0" and "table_lock" in quote.quote


def test_it_is_recognised_without_a_manifest() -> None:
    parser = parse.find("", "pid-4243.1.json", json.dumps(LIVE)[:8192])
    assert parser is not None and parser.name == "live objects"


def test_an_unread_source_is_told_where_a_holder_is_missing() -> None:
    notes = {"notes": ["/opt/pool.py: changed after the process started"]}
    assert read(json.dumps({**LIVE, **notes}).encode()).notes == []
    alone = {**LIVE["locks"][0], "inside": []}
    (note,) = read(json.dumps({**LIVE, **notes, "locks": [alone]}).encode()).notes
    assert "changed after the process started" in note


HOSTILE: list[dict[str, Any]] = [
    {"queues": [{"address": 1, "depth": -1}, {"address": 1, "depth": 2**70}, {"address": 1, "depth": "4"}, {"depth": 1}, 5, None, []]},
    {"locks": [{"address": 1, "waiters": ["a"]}, {"address": -5}, {"address": 1, "waiters": list(range(10_001))}, {"address": 1.5}]},
    {"values": [{"name": 5}, {"value": 1}, {"name": "x", "value": {"deep": [[[]]]}}, {"name": "x", "value": [1]}]},
    {"waits": [{"tid": None}, {"tid": 1, "flag": {}}, {"tid": 1, "target": -1}]},
]


@pytest.mark.parametrize("parts", HOSTILE)
def test_an_entry_that_is_not_what_it_should_be_costs_a_note(parts: dict[str, Any]) -> None:
    ((key, entries),) = parts.items()
    sink = read(json.dumps({**LIVE, key: [*entries, *LIVE[key]]}).encode())
    assert len(sink.observations) == len(read(json.dumps(LIVE).encode()).observations)
    (note,) = sink.notes
    assert f"{len(entries)} entries were not read" in note


def test_long_and_odd_texts_are_cut() -> None:
    long = {"name": "n" * 10_000, "expr": "e" * 10_000, "type": "\x1b[31m", "value": "v" * 10_000}
    sink = read(json.dumps({**LIVE, "values": [long, {"name": "big", "value": 10**100}]}).encode())
    first, *rest = of(sink, LiveValue)
    assert (len(first.name), len(first.expr), first.value) == (300, 300, "")
    assert [v.value for v in rest] in ([], ["1" + "0" * 100])  # read whole or not at all
    crowd = read(json.dumps({**LIVE, "waits": [{"tid": 1, "kind": "k"}] * 10_002}).encode())
    assert len(of(crowd, EventWait)) == 10_000 and len(crowd.notes) == 1


def test_of_no_process_nothing_is_told() -> None:
    sink = read(json.dumps(LIVE).encode(), pid=None)
    assert sink.observations == [] and len(sink.notes) == 1


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"values": 5}', b"[" * 100_000, b'{"values": ' + b"[" * 5000 + b"]" * 5000 + b"}", b"\xff\xfe"]
)
def test_what_is_no_such_file_raises_what_the_ingest_expects(raw: bytes) -> None:
    """The ingest turns these into a line of the report; anything else would be a crash."""
    try:
        sink = read(raw)
    except (ValueError, RecursionError):
        return
    assert sink.observations == []


def test_declarations_of_engines_are_harmless_and_begin_with_a_name() -> None:
    """Nothing is declared that could be a text or an item of a user; roles and clocks are those that exist."""
    for profile in engines.PROFILES:
        for live in profile.live:
            assert live.role in Role and live.clock in ("", "age", "left")
            assert live.name.isidentifier() and live.expr.lstrip("len(")[0].isalpha()
            assert not any(word in live.expr for word in ("prompt", "token_ids", "request_id", "text"))
    names = {(live.name, live.role) for live in engines.profile("vllm").live}
    assert {
        ("async_scheduling", Role.CORE),
        ("async_scheduling", Role.WORKER),
        ("running_requests", Role.CORE),
        ("rank", Role.WORKER),
    } <= names
    assert engines.profile("python").live == () and engines.profile("torchrun").live == ()
