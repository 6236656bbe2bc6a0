"""The ring reader against real processes that write and read rings in the engine's layout, and against a scheduler's snapshot."""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import pickle
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Collected, Started, needs_root
from hypothesis import given
from hypothesis import strategies as st

from collectors._calls import METHODS, OTHER, RESPONSE, call_name
from collectors._loads import LOOK_BYTES_MAX, NUMBERS_MAX, LoadSnapshot, unpack
from collectors._rings import MIB, READERS_MAX, Ring, geometries
from collectors._segments import SEGMENTS_MAX, Segment
from forensics.analysis.parse import Input, Sink, rings
from forensics.analysis.times import Calendar
from forensics.bundle import BundleWriter
from forensics.model import QueueDepth, RingReading

Collect = Callable[..., Collected]
Start = Callable[..., Started]
MEMBER = (Path(__file__).parent / "ring_member.py").read_text()
CALENDAR = Calendar(reference_ns=1_788_256_800_000_000_000)
QUICK = {"look_interval_s": 0.01}


class Member:
    """A process of a ring that does one command at a time, each past its answer."""

    def __init__(self, started: Started) -> None:
        self.started = started
        self.pid = started.pid

    def do(self, command: str) -> str:
        stdin, stdout = self.started.process.stdin, self.started.process.stdout
        assert stdin and stdout
        stdin.write(command.encode() + b"\n")
        stdin.flush()
        answer = stdout.readline().decode().strip()
        assert answer, f"it died of {command!r}"
        return answer


class Broadcast:
    """A writer and its readers, in the geometry of the executor's broadcast unless told otherwise."""

    def __init__(self, start: Start, readers: int = 2, slots: int = 10, mib: int = 16) -> None:
        self.writer = Member(start(MEMBER))
        self.name = self.writer.do(f"create {slots} {mib} {readers}")
        self.readers = [Member(start(MEMBER)) for _ in range(readers)]
        for reader in self.readers:
            assert reader.do(f"attach {self.name} {slots} {mib} {readers}") == self.name
        self.pids = [self.writer.pid, *(reader.pid for reader in self.readers)]

    def put(self, *names: str) -> None:
        for name in names:
            self.writer.do(f"put ({name!r}, (), {{}}, 0)")

    def take(self, reader: int, count: int) -> None:
        self.readers[reader].do(f"take {reader} {count}")


def request(*pids: int, **options: Any) -> dict[str, Any]:
    return {"targets": [{"pid": pid} for pid in pids], "samples": 1, "options": {**QUICK, **options}}


def readings(found: Collected, name: str, kind: type[Any] = RingReading) -> list[Any]:
    """What the analysis makes of a file as it was sent."""
    sink = Sink()
    head = found.heads[name]
    rings.parse(Input(name=name, node="n1", data=found.content[name], kind=head["kind"], pid=head["pid"], calendar=CALENDAR), sink)
    assert not sink.notes, sink.notes
    return [o for o in sink.observations if isinstance(o, kind)]


def of(found: Collected, pid: int, sample: int = 1) -> dict[str, Any]:
    """The attempt at a process: there are others at the segments that were reached through it."""
    (attempt,) = [a for a in found.of(pid, sample) if a["target"] == f"pid {pid}"]
    return attempt


def told(found: Collected, segment: str) -> tuple[str, str]:
    (attempt,) = [a for a in found.attempts if a["target"] == f"segment {segment}"]
    return attempt["outcome"], attempt["reason"]


def test_a_reader_that_lags_and_what_it_has_not_taken(collect: Collect, start: Start) -> None:
    ring = Broadcast(start)
    ring.put("execute_model", "sample_tokens", "execute_model", "sample_tokens")
    ring.take(0, 4)
    ring.take(1, 2)
    found = collect("rings", {**request(*ring.pids), "samples": 2, "interval_s": 0.05})
    for sample in (1, 2):
        name = f"rings/{ring.name}.{sample}.json"
        for pid in ring.pids:
            assert (of(found, pid, sample)["outcome"], of(found, pid, sample)["evidence"]) == ("OK", [name])
        sent = found.json(name)
        assert (found.heads[name]["kind"], found.heads[name]["source"]) == ("ring-json", f"/dev/shm/{ring.name}")
        assert (sent["segment"], sent["deleted"], sent["size"]) == (ring.name, False, (16 * MIB + 3) * 10)
        assert sent["inode"] == os.stat(f"/dev/shm/{ring.name}").st_ino
        assert [(h["pid"], h["how"]) for h in sent["holders"]] == [(pid, "fd") for pid in ring.pids]
        assert all(os.readlink(f"/proc/{h['pid']}/fd/{h['fd']}") == f"/dev/shm/{ring.name}" for h in sent["holders"])
        best = sent["geometries"][0]
        assert (best["slots"], best["readers"], best["chunk_bytes"], best["known"]) == (10, 2, 16 * MIB, True)
        assert not sent["ambiguous"] and len(sent["geometries"]) > 1, "what else the size would fit is kept"
        assert [look["flags"] for look in sent["looks"]] == ["010101" * 2 + "010100" * 2 + "000000" * 6] * 3
        three = readings(found, name)
        assert len(three) == 3
        assert [(r.written, r.unread, r.calls[:4]) for r in three] == [
            ((0, 1, 2, 3), ((), (2, 3)), ("execute_model", "sample_tokens", "execute_model", "sample_tokens"))
        ] * 3
        assert three[0].holders == tuple(sorted(ring.pids)) and three[0].pid in ring.pids
        assert "reader 1 has not taken 2 (execute_model), 3 (sample_tokens)" in three[0].ref.quote


def test_looks_lie_half_a_second_apart_unless_told_otherwise(collect: Collect, start: Start) -> None:
    ring = Broadcast(start, readers=1, mib=1)
    found = collect("rings", {"targets": [{"pid": ring.writer.pid}], "samples": 1})
    moments = [look["at_ns"] for look in found.json(f"rings/{ring.name}.1.json")["looks"]]
    assert len(moments) == 3 and moments[-1] - moments[0] >= 950_000_000  # the wall clock may be slewed meanwhile


def test_a_fresh_ring_and_its_first_lap(collect: Collect, start: Start) -> None:
    ring = Broadcast(start, readers=3)
    found = collect("rings", request(ring.writer.pid, looks=1))
    (fresh,) = readings(found, f"rings/{ring.name}.1.json")
    assert (fresh.written, fresh.unread, fresh.calls) == ((), ((), (), ()), ("",) * 10)
    ring.put("load_model", "check_health")
    found = collect("rings", request(ring.writer.pid, looks=1))
    (lap,) = readings(found, f"rings/{ring.name}.1.json")
    assert (lap.written, lap.unread) == ((0, 1), ((0, 1),) * 3)


def test_unread_slots_are_in_ring_order_across_the_end(collect: Collect, start: Start) -> None:
    ring = Broadcast(start)
    ring.put(*["execute_model"] * 8)
    ring.take(0, 8)
    ring.take(1, 8)
    ring.put(*["sample_tokens"] * 4)
    ring.take(0, 3)
    found = collect("rings", request(*ring.pids, looks=1))
    (reading,) = readings(found, f"rings/{ring.name}.1.json")
    assert reading.unread == ((1,), (8, 9, 0, 1)) and len(reading.written) == 10


def test_a_full_ring_and_one_in_the_middle_of_a_write(collect: Collect, start: Start) -> None:
    ring = Broadcast(start)
    ring.put(*["execute_model"] * 3)
    ring.take(0, 3)
    ring.take(1, 3)
    ring.put(*["execute_model"] * 10)
    ring.take(0, 4)
    (full,) = readings(collect("rings", request(*ring.pids, looks=1)), f"rings/{ring.name}.1.json")
    assert full.unread == ((7, 8, 9, 0, 1, 2), (3, 4, 5, 6, 7, 8, 9, 0, 1, 2)), "the other reader tells where the writer is"
    ring.take(0, 6)
    ring.take(1, 9)
    ring.writer.do("begin")  # slot 3, of the lap before, is written anew
    found = collect("rings", request(*ring.pids, looks=1))
    (writing,) = readings(found, f"rings/{ring.name}.1.json")
    assert 3 not in writing.written and writing.unread == ((), (2,))


def test_overflow_and_answers_and_what_is_no_call(collect: Collect, start: Start) -> None:
    ring = Broadcast(start, readers=1, mib=24)
    ring.put("load_model")
    ring.take(0, 1)
    ring.writer.do("overflow")
    ring.writer.do("put (ResponseStatus.SUCCESS, 'hunter2')")
    for message in (
        "'hunter2'",
        "('hunter2',)",
        "('hunter2', 'hunter2')",
        "('hunter2', 1, 2)",
        "['hunter2', 7]",
        "{'hunter2': 1}",
        "(b'code', ('hunter2',), {}, 0)",
        "frozenset({'hunter2'})",
    ):
        ring.writer.do(f"put {message}")
    found = collect("rings", request(*ring.pids, looks=1))
    name = f"rings/{ring.name}.1.json"
    (reading,) = readings(found, name)
    assert reading.calls == ("", rings.OVERFLOW, "ResponseStatus", *[""] * 7), "the tenth stands where the call was"
    assert b"hunter2" not in found.content[name]


def test_an_unlinked_ring_is_read_through_its_holder(collect: Collect, start: Start) -> None:
    ring = Broadcast(start, readers=1)
    ring.put("execute_model")
    ring.writer.do("unlink")
    assert not Path(f"/dev/shm/{ring.name}").exists()
    found = collect("rings", request(*ring.pids, looks=1))
    sent = found.json(f"rings/{ring.name}.1.json")
    assert sent["deleted"] and sent["path"] == f"/dev/shm/{ring.name}"
    assert readings(found, f"rings/{ring.name}.1.json")[0].unread == ((0,),)


@pytest.mark.parametrize("unlinked", [False, pytest.param(True, marks=needs_root)])
def test_a_ring_that_is_only_mapped(collect: Collect, start: Start, unlinked: bool) -> None:
    ring = Broadcast(start, readers=1)
    ring.put("execute_model")
    mapper = Member(start(MEMBER))
    mapper.do(f"map {ring.name}")
    assert not any("psm_" in os.readlink(link) for link in Path(f"/proc/{mapper.pid}/fd").iterdir())
    if unlinked:
        ring.writer.do("unlink")
    found = collect("rings", request(mapper.pid, looks=1))
    sent = found.json(f"rings/{ring.name}.1.json")
    assert (sent["holders"], sent["deleted"]) == ([{"pid": mapper.pid, "how": "map"}], unlinked)
    assert readings(found, f"rings/{ring.name}.1.json")[0].calls[0] == "execute_model"
    assert of(found, mapper.pid)["outcome"] == "OK"


def test_a_segment_that_is_no_ring_says_so(collect: Collect, start: Start) -> None:
    odd, small, other = (Member(start(MEMBER)) for _ in range(3))
    odd_name, small_name = odd.do(f"bare {5 * MIB + 500_001}"), small.do("bare 4096")
    other_name = other.do(f"bare {(MIB + 2) * 10}")
    other.do("fill " + b"hunter2 hunter2 hunt".hex())  # where a ring of that size would have its flags
    found = collect("rings", request(odd.pid, small.pid, other.pid))
    assert f"{5 * MIB + 500_001} bytes fits no ring" in of(found, odd.pid)["reason"]
    assert told(found, other_name)[0] == "UNSUPPORTED" and "other than 0 and 1" in told(found, other_name)[1]
    assert not found.content, "bytes that are not flags go nowhere"
    for member, name, outcome in ((odd, odd_name, "UNSUPPORTED"), (small, small_name, "EMPTY"), (other, other_name, "UNSUPPORTED")):
        assert of(found, member.pid)["outcome"] == outcome and name in of(found, member.pid)["reason"]


def test_a_process_without_rings_is_empty(collect: Collect, start: Start) -> None:
    member = Member(start(MEMBER))
    assert of(collect("rings", request(member.pid)), member.pid)["outcome"] == "EMPTY"


def test_nothing_of_a_payload_leaves_and_the_rest_survives_redaction(collect: Collect, start: Start, tmp_path: Path) -> None:
    ring = Broadcast(start)
    secret, tokens = "sk-proj-9hGTqW7LkZ3vXn5RbY2m", list(range(151_000, 151_400))
    ring.put("execute_model", "sample_tokens", "hunter2", "my_own_method")
    ring.writer.do(
        f"put ('add_request', ({{'prompt': 'My password is {secret}', 'prompt_token_ids': {tokens}}},), {{'api_key': '{secret}'}}, 0)"
    )
    ring.writer.do(f"put ({secret!r}, (), {{}}, 0)")
    ring.writer.do("put ('AKIA0123456789ABCDEF', (), {}, 0)")
    ring.take(0, 5)
    found = collect("rings", request(*ring.pids))
    name = f"rings/{ring.name}.1.json"
    sent = found.content[name]
    assert not any(word in sent for word in (secret.encode(), b"password", b"15100", b"AKIA", b"hunter2", b"add_request"))
    with BundleWriter(tmp_path, "b") as writer:
        record = writer.add(name, "ring-json", sent, collector="rings")
        assert (writer.path / record.path).read_bytes() == sent, "redaction has nothing to do here"
    assert not record.redactions
    assert readings(found, name)[0].calls[:7] == ("execute_model", "sample_tokens", *[rings.OTHER] * 5)


def test_looking_allocates_nothing_and_outlives_the_holders(start: Start) -> None:
    ring = Broadcast(start)
    ring.put("execute_model")
    fd = os.open(f"/dev/shm/{ring.name}", os.O_RDONLY)
    try:
        before = os.fstat(fd)
        watched = Ring(fd, before.st_size)
        watched.look()
        for member in (ring.writer, *ring.readers):
            member.started.process.kill()
            member.started.process.wait(10)
        watched.look()
        assert os.fstat(fd).st_blocks == before.st_blocks
        assert watched.looks[0]["flags"] == watched.looks[1]["flags"]
    finally:
        os.close(fd)


MANY = """
import os, sys
for i in range(int(sys.argv[1])):
    path = f"/dev/shm/psm_many{os.getpid()}_{i}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink(path)
    os.ftruncate(fd, int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
"""
needs_descriptors = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[0] < SEGMENTS_MAX + 100, reason="needs more open files than this machine allows"
)


@needs_descriptors
@pytest.mark.parametrize("size", [4096, 5 * MIB + 500_001])
def test_segments_that_are_no_ring_take_no_place_from_one(collect: Collect, start: Start, size: int) -> None:
    many, ring = start(MANY, SEGMENTS_MAX + 50, size), Broadcast(start, readers=1)
    ring.put("execute_model")
    found = collect("rings", request(many.pid, ring.writer.pid, looks=1))
    assert of(found, ring.writer.pid)["outcome"] == "OK" and f"rings/{ring.name}.1.json" in found.content
    crowd = of(found, many.pid)
    assert crowd["outcome"] == ("EMPTY" if size < MIB else "UNSUPPORTED") and "more" in crowd["reason"]
    assert not any(a["target"] == "further segments" for a in found.attempts)


@needs_descriptors
def test_what_was_left_out_is_never_called_empty(collect: Collect, start: Start) -> None:
    many, ring = start(MANY, SEGMENTS_MAX + 50, (16 * MIB + 2) * 10), Broadcast(start, readers=1)
    found = collect("rings", request(many.pid, ring.writer.pid, looks=1))
    assert (of(found, ring.writer.pid)["outcome"], of(found, ring.writer.pid)["reason"][:18]) == ("PARTIAL", "1 more segments of")
    assert (of(found, many.pid)["outcome"], of(found, many.pid)["reason"][:10]) == ("PARTIAL", "50 more se")
    (further,) = [a for a in found.attempts if a["target"] == "further segments"]
    assert further["reason"].startswith("51 more")


def test_a_target_that_is_named_twice_holds_its_ring_twice(collect: Collect, start: Start) -> None:
    ring = Broadcast(start, readers=1)
    found = collect("rings", request(ring.writer.pid, ring.writer.pid, looks=1))
    assert [a["outcome"] for a in found.attempts if a["target"] == f"pid {ring.writer.pid}"] == ["OK", "OK"]


def test_what_took_the_place_of_a_segment_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a pipe wakes its writer, opening a device may do anything."""
    regular, fifo = tmp_path / "psm_a", tmp_path / "psm_b"
    regular.write_bytes(b"x")
    os.mkfifo(fifo)
    real, opened = os.open, []

    def watched(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        opened.append((str(path), flags & os.O_PATH))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    about = regular.stat()
    for door, identity in ((fifo, (fifo.stat().st_dev, fifo.stat().st_ino)), (regular, (about.st_dev, about.st_ino + 1))):
        segment = Segment("/dev/shm/psm_a", identity)
        segment.doors.append((1, str(door)))
        with pytest.raises(OSError) as caught:
            segment.open()
        assert caught.value.errno == errno.ENOENT
    assert opened == [(str(fifo), os.O_PATH), (str(regular), os.O_PATH)]
    segment = Segment("/dev/shm/psm_a", (about.st_dev, about.st_ino))
    segment.doors.append((7, str(regular)))
    fd, size, pid = segment.open()
    assert (os.read(fd, 9), size, pid) == (b"x", 1, 7)
    os.close(fd)


@needs_root
def test_somebody_elses_process_is_denied_with_the_cure(collect: Collect, start: Start) -> None:
    ring = Broadcast(start)
    found = collect("rings", request(*ring.pids), as_nobody=True)
    assert not found.content
    for pid in ring.pids:
        attempt = of(found, pid)
        assert attempt["outcome"] == "DENIED" and "CAP_SYS_PTRACE" in attempt["cure"]


@needs_root
def test_a_ring_in_another_mount_namespace(collect: Collect, start: Start, tmp_path: Path) -> None:
    """A holder whose /dev/shm is its own: the name exists for it alone."""
    code = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 1 << 14, 1 << 18
if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or libc.mount(b"x", b"/dev/shm", b"tmpfs", 0, None):
    raise OSError(ctypes.get_errno(), "no namespace of its own")
"""
    member = Member(start(code + MEMBER))
    name = member.do("create 10 16 1")
    member.do("put ('execute_model', (), {}, 0)")
    assert not Path(f"/dev/shm/{name}").exists()
    found = collect("rings", request(member.pid, looks=1))
    assert readings(found, f"rings/{name}.1.json")[0].calls[0] == "execute_model"


def test_a_recorded_tree_is_read_and_never_our_own_memory(collect: Collect, start: Start, tmp_path: Path) -> None:
    ring = Broadcast(start, readers=1)
    ring.put("execute_model")
    proc = tmp_path / "proc/4243"
    (proc / "fd").mkdir(parents=True)
    (proc / "stat").write_text("4243 (x) S 1 " + "0 " * 17 + "500 " + "0 " * 30)
    (proc / "maps").write_text("")
    (proc / "fd/7").symlink_to(f"/dev/shm/{ring.name}")
    assert collect("rings", {**request(4243), "sysroot": str(tmp_path)}).one(4243)["outcome"] == "EMPTY"
    (tmp_path / "dev/shm").mkdir(parents=True)
    with open(tmp_path / "dev/shm" / ring.name, "wb") as file:
        file.truncate((4 * MIB + 2) * 6)
    found = collect("rings", {**request(4243, looks=1), "sysroot": str(tmp_path)})
    assert readings(found, f"rings/{ring.name}.1.json")[0].written == ()
    (proc / "fd/7").unlink()
    (proc / "maps").write_text(f"7f0000000000-7f0001800000 rw-s 00000000 00:1a 99 /dev/shm/{ring.name}\n")
    found = collect("rings", {**request(4243, looks=1), "sysroot": str(tmp_path)})
    assert found.json(f"rings/{ring.name}.1.json")["holders"] == [{"pid": 4243, "how": "map"}]


@pytest.mark.parametrize(("slots", "mib"), [(10, 16), (10, 24), (10, 1), (10, 64), (6, 4), (8, 256)])
@pytest.mark.parametrize("readers", [1, 2, 3, 7, 8, 16, 72, READERS_MAX])
def test_every_size_that_the_engine_makes_is_told(slots: int, mib: int, readers: int) -> None:
    found = geometries((mib * MIB + 1 + readers) * slots)
    assert found[0] == (slots, readers, mib * MIB, True)
    assert [g for g in found if g.known] == found[:1]


@pytest.mark.parametrize("size", [0, 1, MIB, 10 * MIB, 2**62, 16 * MIB + 2 * READERS_MAX + 3])
def test_other_sizes_are_no_ring(size: int) -> None:
    assert geometries(size) == []


@given(st.binary(max_size=600))
def test_any_bytes_name_nothing_that_is_not_listed(raw: bytes) -> None:
    assert call_name(raw) in {"", OTHER, RESPONSE, *METHODS}


class Step(enum.Enum):
    ONE = 1


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    ("message", "name"),
    [
        (("execute_model", (), {}, None), "execute_model"),
        (("execute_model", (Step.ONE, [1, 2], {"a": {3}}), {"b": ("c", "d", "e", "f")}, 7), "execute_model"),
        (("sleep", (1, 2, 3, 4, 5), {"level": 1}, 300), "sleep"),
        (("take_draft_token_ids", (["x"] * 5000,), {}, 0), "take_draft_token_ids"),
        (("hunter2", (), {}, None), OTHER),
        (("password_of_user", "x", "y", "z"), ""),
        (("execute_model", "x", "y", "z"), ""),
        (("execute_model", (), {}, "x"), ""),
        (("execute_model", (), {}), ""),
        (("execute_model", (), {}, None, None), ""),
        (["execute_model", (), {}, None], ""),
        ((("execute_model", (), {}, None),), ""),
        (frozenset({"hunter2"}), ""),
        (frozenset({"execute_model"}), ""),
        ({"execute_model": 1}, ""),
        ("execute_model", ""),
        (Step.ONE, ""),
    ],
)
def test_a_call_is_told_by_its_whole_form(message: Any, name: str, protocol: int) -> None:
    raw = pickle.dumps(message, protocol)
    assert call_name(raw) == name
    if name in METHODS:
        begun = raw.index(name.encode()) + len(name) + 1
        assert {call_name(raw[:cut]) for cut in range(begun, min(len(raw), begun + 80))} == {name}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_value_error(raw: bytes) -> None:
    try:
        unpack(raw)
    except ValueError:
        pass


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner, max_size=20),
    max_leaves=40,
)


@given(VALUES)
def test_msgpack_is_read_as_it_was_written(value: Any) -> None:
    try:
        assert unpack(msgspec.msgpack.encode(value)) == value
    except ValueError as error:
        assert "more than a load snapshot holds" in str(error)


# SGLang

SCHEDULER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
print("ready", flush=True)
for line in sys.stdin:
    command, _, rest = line.strip().partition(" ")
    if command == "lock":
        fcntl.flock(fd, fcntl.LOCK_EX)
    elif command == "unlock":
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        at, data = rest.split()
        os.pwrite(fd, bytes.fromhex(data), int(at))
    print("done", flush=True)
"""
SLOT = 16384


@pytest.fixture
def snapshot() -> Any:
    path = Path(f"/dev/shm/sglang_loads_test-{os.getpid()}_0badcafe.shm")
    path.write_bytes(struct.pack("<4sHHI", b"SLNS", 2, 2, SLOT) + bytes(2 * SLOT))
    yield path
    path.unlink()


def say(scheduler: Member, rank: int, **values: Any) -> None:
    raw = msgspec.msgpack.encode(values)
    scheduler.do(f"write {12 + rank * SLOT} {(struct.pack('<I', len(raw)) + raw).hex()}")


def test_a_load_snapshot_and_its_age(collect: Collect, start: Start, snapshot: Path) -> None:
    scheduler = Member(start(SCHEDULER, snapshot))
    said = time.time() - 60
    say(scheduler, 0, timestamp=said, num_running_reqs=3, num_waiting_reqs=7, max_running_requests=128, queues=[7, 0, 0, 1], note="hunter2")
    say(scheduler, 1, timestamp=said, dp_rank=1, token_usage=0.25, num_used_tokens=4096, big="x" * 3000)
    found = collect("rings", request(scheduler.pid))
    name = f"rings/{snapshot.name}.1.json"
    assert (found.heads[name]["kind"], of(found, scheduler.pid)["outcome"]) == ("load-snapshot", "OK")
    sent = found.json(name)
    assert len(sent["looks"]) == 3
    first, second = (slot["values"] for slot in sent["looks"][0]["slots"])
    assert first["queues"] == [7, 0, 0, 1] and second["token_usage"] == 0.25
    assert b"hunter2" not in found.content[name] and b"xxx" not in found.content[name]
    depths = readings(found, name, QueueDepth)
    assert [(d.queue, d.depth, d.capacity, d.kind) for d in depths[:4]] == [
        ("dp 0 running", 3, 128, "load-snapshot"),
        ("dp 0 waiting", 7, None, "load-snapshot"),
        ("dp 1 running", 0, None, "load-snapshot"),
        ("dp 1 waiting", 0, None, "load-snapshot"),
    ]
    assert all(d.at.earliest_ns == int(said * 1e9) and d.at.latest_ns - d.at.earliest_ns >= 59e9 for d in depths)
    assert len(depths) == 12 and depths[0].pid == scheduler.pid


def test_a_writer_in_the_middle_makes_it_partial(collect: Collect, start: Start, snapshot: Path) -> None:
    scheduler = Member(start(SCHEDULER, snapshot))
    say(scheduler, 0, num_running_reqs=1)
    found = collect("rings", request(scheduler.pid, looks=1))
    assert told(found, snapshot.name) == ("PARTIAL", "slot 1: being written, or never written")
    say(scheduler, 1, num_running_reqs=2)
    scheduler.do("lock")
    scheduler.started.stop()  # while it holds the lock, and between two writes
    found = collect("rings", request(scheduler.pid, looks=1))
    assert told(found, snapshot.name) == ("OK", "")
    assert [d.depth for d in readings(found, f"rings/{snapshot.name}.1.json", QueueDepth)] == [1, 0, 2, 0]


def test_no_scheduler_waits_for_us(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the lock at any moment of a look gets it."""
    fd, other = os.open(snapshot, os.O_RDONLY), os.open(snapshot, os.O_RDWR)
    real, granted = os.pread, 0

    def pread(*arguments: int) -> bytes:
        nonlocal granted
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        granted += 1
        return real(*arguments)

    try:
        monkeypatch.setattr(os, "pread", pread)
        LoadSnapshot(fd, os.fstat(fd).st_size).look()
        assert granted > 2
    finally:
        os.close(fd)
        os.close(other)


def test_a_slot_that_changes_is_read_until_two_reads_agree(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd, other = os.open(snapshot, os.O_RDONLY), os.open(snapshot, os.O_RDWR)
    real, changes = os.pread, 0

    def write(running: int) -> None:
        raw = msgspec.msgpack.encode({"num_running_reqs": running})
        os.pwrite(other, struct.pack("<I", len(raw)) + raw, 12)

    def pread(file: int, count: int, offset: int) -> bytes:
        nonlocal changes
        answer = real(file, count, offset)
        if offset == 12 and changes:
            changes -= 1
            write(changes)
        return answer

    try:
        write(99)
        watched = LoadSnapshot(fd, os.fstat(fd).st_size)
        monkeypatch.setattr(os, "pread", pread)
        changes = 3
        watched.look()
        changes = 100
        watched.look()
        assert watched.looks[0]["slots"][0] == {"values": {"num_running_reqs": 0}}
        assert watched.looks[1]["slots"][0] == {"error": "it changed each time while it was read"}
    finally:
        os.close(fd)
        os.close(other)


def test_only_known_fields_leave(collect: Collect, start: Start, snapshot: Path) -> None:
    scheduler = Member(start(SCHEDULER, snapshot))
    say(scheduler, 0, num_running_reqs=1, hunter2=7, memory={"hunter2": 1, "token_usage": 0.5}, queues=[5] * 1000)
    found = collect("rings", request(scheduler.pid, looks=1))
    values = found.json(f"rings/{snapshot.name}.1.json")["looks"][0]["slots"][0]["values"]
    assert values == {"num_running_reqs": 1, "memory": {"token_usage": 0.5}, "queues": [5] * 16}


HUGE = """
import os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
slots, size = 1024, 1024 * 1024
os.ftruncate(fd, 12 + slots * size)
os.pwrite(fd, struct.pack("<4sHHI", b"SLNS", 1, slots, size), 0)
for i in range(slots):
    os.pwrite(fd, struct.pack("<I", int(sys.argv[2])) + b"\\xdc\\x3f\\x00", 12 + i * size)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("payload", "reason"), [(MIB - 4, "more than a load snapshot holds"), (16_000, "more than a load snapshot holds")])
def test_a_huge_snapshot_takes_no_memory(start: Start, snapshot: Path, payload: int, reason: str) -> None:
    start(HUGE, snapshot, payload)
    code = (
        "import os, resource, sys\n"
        "from collectors._loads import LoadSnapshot\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (96 << 20,) * 2)\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "one = LoadSnapshot(fd, os.fstat(fd).st_size); one.look(); print(one.outcome())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(snapshot)], capture_output=True, text=True, timeout=60, check=False)
    assert reason in done.stdout, done.stderr
    assert LOOK_BYTES_MAX < 1024 * 16_000


def test_numbers_are_bounded_over_all_looks(snapshot: Path) -> None:
    raw = msgspec.msgpack.encode({"queues": [[1] * 16] * 16})
    with open(snapshot, "r+b") as file:
        file.seek(12)
        file.write(struct.pack("<I", len(raw)) + raw)
        file.flush()
        watched = LoadSnapshot(file.fileno(), 12 + 2 * SLOT)
        for _ in range(3):
            watched.look()
        assert "values" in watched.looks[-1]["slots"][0]
        watched._numbers = NUMBERS_MAX
        watched.look()
    assert watched.looks[-1]["slots"][0] == {"error": f"more than {NUMBERS_MAX} numbers in all"}


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (0, b"NOPE", "does not begin with SLNS"),
        (6, struct.pack("<H", 60_000), "60000 slots"),
        (8, struct.pack("<I", 4), "slots of 4 bytes"),
    ],
)
def test_a_header_of_another_form_is_unsupported(collect: Collect, start: Start, snapshot: Path, at: int, data: bytes, reason: str) -> None:
    scheduler = Member(start(SCHEDULER, snapshot))
    scheduler.do(f"write {at} {data.hex()}")
    outcome, why = told(collect("rings", request(scheduler.pid, looks=1)), snapshot.name)
    assert outcome == "UNSUPPORTED" and reason in why


def test_a_slot_of_nonsense_is_told_and_the_others_are_kept(collect: Collect, start: Start, snapshot: Path) -> None:
    scheduler = Member(start(SCHEDULER, snapshot))
    say(scheduler, 0, num_running_reqs=5)
    scheduler.do(f"write {12 + SLOT} {(struct.pack('<I', SLOT) + b'x').hex()}")
    found = collect("rings", request(scheduler.pid, looks=1))
    outcome, why = told(found, snapshot.name)
    assert outcome == "PARTIAL" and "slot 1: a payload of 16384 bytes is more than a load snapshot holds" in why
    assert found.json(f"rings/{snapshot.name}.1.json")["looks"][0]["slots"][0] == {"values": {"num_running_reqs": 5}}
