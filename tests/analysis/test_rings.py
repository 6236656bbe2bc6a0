"""What the analysis makes of rings and load snapshots, also of damaged and hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.analysis import parse
from forensics.analysis.parse import Input, Sink, rings
from forensics.analysis.times import Calendar
from forensics.model import Observation, QueueDepth, RingReading

CALENDAR = Calendar(reference_ns=1_788_256_800_000_000_000)
AT = 1_788_256_800_000_000_000


def read(document: Any, kind: str = "ring-json") -> Sink:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    sink = Sink()
    rings.parse(Input(name="rings/psm_0badcafe.1.json", node="n1", data=raw, kind=kind, sample=1, calendar=CALENDAR), sink)
    return sink


def ring(*looks: str, slots: int = 10, readers: int = 2, **more: Any) -> dict[str, Any]:
    """A ring whose looks are written slot by slot: "110 100 000" is written and read by the first, written, and blank."""
    shown = [{"at_ns": AT + i * 500_000_000, "flags": "".join(f"0{c}" for c in look if c in "01")} for i, look in enumerate(looks)]
    geometry = {"slots": slots, "readers": readers, "chunk_bytes": 16 << 20, "known": True, "refuted": False}
    return {"segment": "psm_0badcafe", "holders": [{"pid": 7, "fd": 3, "how": "fd"}], "geometries": [geometry], "looks": shown, **more}


def only(sink: Sink) -> RingReading:
    (reading,) = sink.observations
    assert isinstance(reading, RingReading) and not sink.notes
    return reading


BLANK = " 000"


@pytest.mark.parametrize(
    ("flags", "written", "unread"),
    [
        (BLANK * 10, (), ((), ())),
        ("111 111 110 100" + BLANK * 6, (0, 1, 2, 3), ((3,), (2, 3))),
        ("110 111 111 111 111 111 111 111 110 110", tuple(range(10)), ((), (8, 9, 0))),
        ("111 " * 10, tuple(range(10)), ((), ())),
        ("100 " * 10, tuple(range(10)), (tuple(range(10)),) * 2),
        # one reader has taken nothing of a whole lap: the other one tells where the lap begins
        ("110 110 110 100 100 110 110 110 110 110", tuple(range(10)), ((3, 4), (5, 6, 7, 8, 9, 0, 1, 2, 3, 4))),
        # slot 4 of the lap before is being written: the oldest come behind it
        ("110 111 111 111 011 111 111 111 110 110", (0, 1, 2, 3, 5, 6, 7, 8, 9), ((), (8, 9, 0))),
    ],
)
def test_who_has_not_taken_what_oldest_first(flags: str, written: tuple[int, ...], unread: tuple[tuple[int, ...], ...]) -> None:
    reading = only(read(ring(flags)))
    assert (reading.written, reading.unread) == (written, unread)
    assert (reading.ring, reading.readers, reading.chunks, reading.holders) == ("psm_0badcafe", 2, 10, (7,))


def test_every_look_is_a_reading_of_its_own_moment() -> None:
    busy, still = "111 100" + BLANK * 8, "111 111" + BLANK * 8
    found = [o for o in read(ring(busy, still, still)).observations if isinstance(o, RingReading)]
    assert [r.at.earliest_ns - AT for r in found if r.at] == [0, 500_000_000, 1_000_000_000]
    assert [r.unread for r in found] == [((1,), (1,)), ((), ()), ((), ())]
    assert {r.sample for r in found} == {1} and found[0].ref.locator == "look 1"


def test_calls_and_how_they_are_quoted() -> None:
    document = ring("111 110 100" + BLANK * 7)
    document["looks"][0]["calls"] = [{"slot": 0, "name": "execute_model"}, {"slot": 1, "overflow": True}, {"slot": 2, "torn": True}]
    reading = only(read(document))
    assert reading.calls[:3] == ("execute_model", rings.OVERFLOW, "")
    assert reading.ref.quote == "reader 0 has not taken 2; reader 1 has not taken 1 ((overflow)), 2"


def test_the_first_geometry_that_is_not_refuted_is_used_and_ambiguity_is_kept() -> None:
    document = ring("10" * 6, slots=6, readers=1, ambiguous=True)
    refuted = {"slots": 10, "readers": 2, "known": False, "refuted": True}
    document["geometries"].insert(0, refuted)
    reading = only(read(document))
    assert reading.ambiguous and (reading.chunks, reading.readers) == (6, 1)


HOSTILE_GEOMETRIES = [
    {"slots": 10**9, "readers": 10**9},
    {"slots": 0, "readers": 2},
    {"slots": -1, "readers": 2},
    {"slots": 10, "readers": 0},
    {"slots": 10, "readers": 2, "refuted": True},
    {"slots": "10", "readers": 2},
    {"slots": 10.5, "readers": 2},
    {"slots": 64, "readers": 1024},
    None,
]


@pytest.mark.parametrize("geometry", HOSTILE_GEOMETRIES)
def test_an_absurd_geometry_is_a_note(geometry: Any) -> None:
    sink = read({**ring("111 " * 10), "geometries": [geometry]})
    assert not sink.observations and len(sink.notes) == 1


@pytest.mark.parametrize("flags", ["", "zz", "0", "02" * 30, "01" * 29, "01" * 31, "ff" * 30, "é" * 60, 7, None, ["01"]])
def test_flags_that_are_none_are_a_note(flags: Any) -> None:
    document = ring("111 " * 10)
    document["looks"][0]["flags"] = flags
    sink = read(document)
    assert not sink.observations and len(sink.notes) == 1


def test_a_bad_look_does_not_take_the_good_ones_with_it() -> None:
    document = ring("111 " * 10, "111 " * 10, "111 " * 10)
    document["looks"][1]["flags"] = "xx"
    sink = read(document)
    assert len(sink.observations) == 2 and "look 2" in sink.notes[0]


def test_hostile_names_times_and_pids_are_left_out() -> None:
    document = ring("110 " * 10)
    document["holders"] = [{"pid": pid} for pid in (-1, 0, 5, 2**40, 5)]
    document["segment"] = "x" * 5000
    document["looks"][0] |= {
        "at_ns": 2**62 * 1000,
        "calls": [
            {"slot": 0, "name": "\x1b]0;owned\x07"},
            {"slot": 1, "name": "a b"},
            {"slot": 99, "name": "x"},
            {"slot": -1, "name": "x"},
        ],
    }
    reading = only(read(document))
    assert (reading.at, reading.holders, set(reading.calls), len(reading.ring)) == (None, (5,), {""}, 80)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["segment", "looks", "slots", "flags", "at_ns", "calls", "slot", "name", "geometries", "values", "timestamp"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(JSON, st.sampled_from(["ring-json", "load-snapshot", ""]))
def test_any_document_is_read_or_noted(document: Any, kind: str) -> None:
    sink = read(document, kind)
    assert sink.notes or all(isinstance(o, Observation) for o in sink.observations)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_note(raw: bytes) -> None:
    assert read(raw).notes


def test_a_damaged_file_is_a_note() -> None:
    whole = json.dumps(ring("111 " * 10)).encode()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        assert read(whole[:cut]).notes
    assert read(b"[" * 100_000).notes


def load(**values: Any) -> dict[str, Any]:
    return {"segment": "sglang_loads_x_0badcafe.shm", "looks": [{"at_ns": AT, "locked": True, "slots": [{"values": values}]}]}


def depths(sink: Sink) -> dict[str, QueueDepth]:
    return {o.queue: o for o in sink.observations if isinstance(o, QueueDepth)}


def test_a_load_snapshot_is_two_queues_and_an_age() -> None:
    found = depths(read(load(timestamp=AT / 1e9 - 12.5, dp_rank=3, num_running_reqs=4, max_running_requests=64), "load-snapshot"))
    assert {name: (q.depth, q.capacity, q.kind) for name, q in found.items()} == {
        "dp 3 running": (4, 64, "load-snapshot"),
        "dp 3 waiting": (0, None, "load-snapshot"),
    }
    at = found["dp 3 running"].at
    assert at and (at.latest_ns - at.earliest_ns) == pytest.approx(12.5e9, rel=1e-6) and at.latest_ns == AT
    assert "said 12.5 s before" in found["dp 3 running"].ref.quote


@pytest.mark.parametrize("timestamp", [None, "soon", -1, 0, 1e300, 10**400, AT / 1e9 + 3600, True, [1]])
def test_a_time_that_cannot_be_is_the_time_of_the_look(timestamp: Any) -> None:
    sink = read(load(timestamp=timestamp, num_running_reqs=1), "load-snapshot")
    at = depths(sink)["dp 0 running"].at if sink.observations else None
    assert sink.notes or (at and at.latest_ns == AT)


@pytest.mark.parametrize("depth", [None, "3", -3, 2**80, 3.5, True, [3], {"x": 3}])
def test_a_depth_that_cannot_be_counts_as_left_out(depth: Any) -> None:
    assert depths(read(load(num_running_reqs=depth), "load-snapshot"))["dp 0 running"].depth == 0


def test_a_slot_that_was_being_written_is_a_note() -> None:
    document = load(num_running_reqs=1)
    document["looks"][0]["slots"].insert(0, {"error": "being written, or never written"})
    sink = read(document, "load-snapshot")
    assert "slot 0: being written" in sink.notes[0] and depths(sink)["dp 1 running"].depth == 1


def test_both_are_recognised_without_a_manifest() -> None:
    for document in (ring("111 " * 10), load(num_running_reqs=1)):
        for raw in (json.dumps(document), json.dumps(document, separators=(",", ":"))):
            parser = parse.find("", "psm_0badcafe.1.json", raw)
            assert parser is rings.PARSER
            sink = Sink()
            parser.parse(Input(name="x", node="n1", data=raw.encode(), calendar=CALENDAR), sink)
            assert sink.observations and not sink.notes
