"""Writing: created by us alone, readable by us alone, bounded, and readable whatever happens half-way."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from bundle_samples import HEAD, fill
from hypothesis import given
from hypothesis import strategies as st

from forensics.bundle import BundleError, BundleWriter, NullRedactor, open_source
from forensics.bundle._names import MAX_COMPONENT_BYTES, MAX_DEPTH, MAX_PATH_BYTES, printable, safe_path, unique_path
from forensics.model import Attempt, Evidence, Outcome


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_only_the_owner_may_read(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with BundleWriter(tmp_path / "new" / "deep", "b", redactor=NullRedactor()) as writer:
            writer.add("a/b/c.txt", "log", "x", collector="a")
            writer.attempt(Attempt(collector="a", target="t", outcome=Outcome.OK))
            writer.seal()
            archive = writer.pack(keep=True)
    finally:
        os.umask(before)
    folders = [writer.path, *(path for path in writer.path.rglob("*") if path.is_dir())]
    files = [archive, *(path for path in writer.path.rglob("*") if path.is_file())]
    assert len(folders) == 3 and len(files) == 5
    assert {_mode(path) for path in folders} == {0o700}
    assert {_mode(path) for path in files} == {0o600}


def test_a_planted_link_is_never_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "b").symlink_to(elsewhere)
    (tmp_path / "b-2.tar.gz").symlink_to(elsewhere / "stolen")
    with BundleWriter(tmp_path, "b") as writer:
        assert writer.path == tmp_path / "b-3"
        (writer.path / "stacks").symlink_to(elsewhere)
        record = writer.add("stacks/x.json", "pyspy-json", "[]", collector="stacks")
        assert record.truncated and record.sha256 == ""
        assert "EEXIST" in writer.losses[0] or "EEXIST" in writer.attempts[0].reason
        writer.seal()
        writer.pack()
    assert list(elsewhere.iterdir()) == []


@given(st.text(max_size=300))
def test_any_name_becomes_a_safe_one(name: str) -> None:
    safe = safe_path(name)
    parts = safe.split("/")
    assert safe and len(safe) <= MAX_PATH_BYTES and len(parts) <= MAX_DEPTH
    assert all(part and part[0] not in ".-" and len(part) <= MAX_COMPONENT_BYTES for part in parts)
    assert printable(safe) == safe and not safe.startswith("/") and "\\" not in safe
    assert safe_path(safe) == safe


def test_names_stay_apart(tmp_path: Path) -> None:
    assert unique_path("a/b.json", {"a/b.json", "a/b-2.json"}) == "a/b-3.json"
    with BundleWriter(tmp_path, "b") as writer:
        wanted = ["../../etc/passwd", "/etc/passwd", "a", "a/b", "a", "x\0y\x1b[31m.log", "manifest.json", "attempts.jsonl", "n" * 5000]
        paths = [writer.add(name, "log", name, collector="c").path for name in wanted]
        assert paths[:7] == ["etc/passwd", "etc/passwd-2", "a", "a_/b", "a-2", "x_y__31m.log", "manifest-2.json"]
        assert len(set(paths)) == len(wanted)
        for path, name in zip(paths, wanted, strict=True):
            assert (writer.path / path).read_text() == name
        writer.seal()
        assert subprocess.run(["sha256sum", "--quiet", "-c", "manifest-sha256.txt"], cwd=writer.path, check=False).returncode == 0


def test_attempts_are_on_disk_at_once_under_the_final_names(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b") as writer:
        writer.add("s/x.json", "log", "1", collector="s")
        writer.add("s/x.json", "log", "2", collector="s")
        writer.attempt(Attempt(collector="s", target="pid 7", outcome=Outcome.OK, evidence=("s/x.json",)))
        lines = (writer.path / "attempts.jsonl").read_text().splitlines()
        assert [json.loads(line)["evidence"] for line in lines] == [["s/x-2.json"]]


def test_chunks_and_a_death_in_the_middle(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b") as writer:
        stream = writer.stream("l/a.log", "log", collector="l", pid=3, source="/var/log/a")
        stream.write(b"one\ntw")
        stream.write(b"o\nthr")
        assert (writer.path / "l/a.log").read_bytes() == b"one\ntwo\n"
        record = stream.close(truncated=True)
        assert stream.close() is record
        assert (record.size_bytes, record.truncated, record.pid, record.source) == (11, True, 3, "/var/log/a")
        with pytest.raises(RuntimeError), writer.stream("l/b.log", "log", collector="l") as other:
            other.write(b"half")
            raise RuntimeError("the reader of the child failed")
        assert writer.evidence[-1].truncated and writer.evidence[-1].size_bytes == 4


def test_what_is_still_open_is_closed_by_the_seal(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b") as writer:
        stream = writer.stream("l/a.log", "log", collector="l")
        stream.write(b"line\n")
        writer.seal()
        stream.write(b"too late\n")
        late = writer.add("l/late.log", "log", "x", collector="l")
        assert late.sha256 == "" and not (writer.path / "l/late.log").exists()
        assert (writer.path / "l/a.log").read_bytes() == b"line\n"
        assert [e.truncated for e in writer.evidence] == [True]
        assert any("still being written" in loss for loss in writer.losses)
        assert subprocess.run(["sha256sum", "--quiet", "-c", "manifest-sha256.txt"], cwd=writer.path, check=False).returncode == 0


def test_the_byte_bound_cuts_and_says_so(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b", redactor=NullRedactor(), max_bytes=1000) as writer:
        whole = writer.add("a.log", "log", b"x" * 600, collector="a")
        cut = writer.add("b.log", "log", b"y" * 600, collector="b")
        nothing = writer.add("c.log", "log", b"z", collector="c")
        assert [(e.size_bytes, e.truncated) for e in (whole, cut, nothing)] == [(600, False), (400, True), (0, True)]
        assert [(a.collector, a.outcome) for a in writer.attempts] == [("bundle", Outcome.PARTIAL)]
        assert "b.log" in writer.attempts[0].reason
        writer.seal()
        assert subprocess.run(["sha256sum", "--quiet", "-c", "manifest-sha256.txt"], cwd=writer.path, check=False).returncode == 0


def test_several_threads_write_at_once(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b", head=HEAD) as writer:

        def one(number: int) -> None:
            for i in range(20):
                writer.add("same/name.log", "log", f"thread {number} file {i} token='abc123def{number}'\n", collector="c")
                writer.attempt(Attempt(collector="c", target=f"{number}/{i}", outcome=Outcome.OK))

        threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.seal()
        archive = writer.pack()
    with open_source(archive) as source:
        assert source.sealed and source.losses == []
        assert len(list(source.items())) == len(source.attempts) == 120
        assert len({item.read() for item in source.items()}) == 120


def test_a_seal_refuses_fields_that_nobody_reads(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b") as writer, pytest.raises(TypeError, match="nodename"):
        writer.seal(nodename="x")


@pytest.mark.parametrize("parent", ["/proc/forensics", "/sys/kernel/forensics"])
def test_an_unwritable_place_is_an_error_with_a_cure(parent: str) -> None:
    with pytest.raises(BundleError) as caught:
        BundleWriter(Path(parent), "b")
    assert parent in caught.value.message and "--out" in caught.value.cure


def test_a_file_in_the_way_is_an_error_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError) as caught:
        BundleWriter(tmp_path / "file", "b")
    assert "--out" in caught.value.cure


KILLED = """
import os, sys
from pathlib import Path
from forensics.bundle import BundleWriter
from forensics.model import Attempt, Outcome
w = BundleWriter(Path(sys.argv[1]), "b", head={"node": "node7", "boot_id": "b-1"})
w.add("stacks/pid-7.1.json", "pyspy-json", "[]", collector="stacks", pid=7, sample=1)
w.attempt(Attempt(collector="stacks", target="pid 7", outcome=Outcome.OK))
s = w.stream("rpclogs/a.log", "log", collector="rpclogs", pid=8, source="/var/log/a.log")
s.write(b"first line\\nsecond")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_capture_that_is_killed_leaves_a_readable_bundle(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout and child.stdout.readline() == "ready\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with open_source(tmp_path / "b") as source:
        assert source.bundle and not source.sealed
        assert source.manifest and source.manifest.node == "node7"
        assert [attempt.target for attempt in source.attempts] == ["pid 7"]
        items = {item.name: item for item in source.items()}
        assert items["rpclogs/a.log"].read() == b"first line\n"
        partial = items["rpclogs/a.log"].evidence
        assert partial and (partial.kind, partial.pid, partial.source, partial.truncated) == ("log", 8, "/var/log/a.log", True)
        whole = items["stacks/pid-7.1.json"].evidence
        assert whole and (whole.pid, whole.sample, whole.truncated) == (7, 1, False)
        assert any("manifest is missing" in loss for loss in source.losses)


# a full disk


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=False, capture_output=True).returncode
    ):
        pytest.skip("needs the right to mount a tmpfs: run as root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _fill_disk(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(65536))


def test_a_disk_that_fills_up_leaves_a_readable_sealed_bundle(tiny_disk: Path) -> None:
    with BundleWriter(tiny_disk, "b", redactor=NullRedactor(), head=HEAD) as writer:
        writer.add("stacks/a.json", "pyspy-json", "[1]", collector="stacks")
        _fill_disk(tiny_disk)
        for number in range(8):
            writer.add(f"rpclogs/{number}.log", "log", os.urandom(300_000), collector="rpclogs")
            writer.attempt(Attempt(collector="rpclogs", target=f"{number}", outcome=Outcome.OK))
        writer.seal(ended_ns=9)
        assert writer.losses and all("ENOSPC" in loss or "disk is full" in loss or "not packed" in loss for loss in writer.losses)
        assert writer.sealed
        path = writer.pack()
    with open_source(path) as source:
        items = {item.name: item for item in source.items()}
        assert items["stacks/a.json"].read() == b"[1]"
        full = [attempt for attempt in source.attempts if attempt.collector == "bundle"]
        assert len(full) == 2 and "ENOSPC" in full[0].reason and "free some space" in full[0].cure
        cut = [item for item in items.values() if item.evidence and item.evidence.truncated]
        assert cut and all(item.evidence and item.size == item.evidence.size_bytes for item in cut)


def test_no_room_to_pack_keeps_the_directory(tiny_disk: Path) -> None:
    with BundleWriter(tiny_disk, "b", redactor=NullRedactor()) as writer:
        writer.add("a.bin", "log", os.urandom(1_000_000), collector="a")
        writer.seal()
        _fill_disk(tiny_disk)
        assert writer.pack() == writer.path
        assert "not packed" in writer.losses[-1]
    with open_source(writer.path) as source:
        assert source.sealed and source.losses == []
    assert sorted(path.name for path in tiny_disk.iterdir()) == ["b", "filler"]


def test_a_disk_that_is_full_already_is_an_error_with_a_cure(tiny_disk: Path) -> None:
    _fill_disk(tiny_disk)
    with pytest.raises(BundleError) as caught:
        BundleWriter(tiny_disk, "b")
    assert "free some space" in caught.value.cure
    assert sorted(path.name for path in tiny_disk.iterdir()) == ["filler"]


LIMITED = """
import resource, sys
from pathlib import Path
from forensics.bundle import BundleWriter, NullRedactor
w = BundleWriter(Path(sys.argv[1]), "b", redactor=NullRedactor())
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
w.add("a.log", "log", b"x" * 150_000, collector="a")
w.add("b.log", "log", b"y" * 50_000, collector="b")
w.seal(node="n")
print(w.sealed, w.pack())
"""


def test_a_file_size_limit_is_a_full_disk_for_one_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    sealed, path = done.stdout.split()
    assert sealed == "True"
    with open_source(path) as source:
        found = {item.name: (item.size, item.evidence and item.evidence.truncated) for item in source.items()}
        assert found == {"a.log": (100_000, True), "b.log": (50_000, False)}
        assert ["EFBIG" in attempt.reason for attempt in source.attempts] == [True]


def test_memory_does_not_grow_with_the_evidence(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with BundleWriter(tmp_path, "b") as writer:
        line = b"(Worker pid=1) INFO 01-02 03:04:05 [x.py:1] an ordinary line of an engine's log, number 12345\n" * 5000
        with writer.stream("a.log", "log", collector="a") as stream:
            for _ in range(120):
                stream.write(line)
        writer.seal()
        archive = writer.pack()
    with open_source(archive) as source, next(source.items()).open() as file:
        assert sum(len(piece) for piece in iter(lambda: file.read(65536), b"")) == 120 * len(line)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000  # KiB; the evidence has 57 MB


def test_records_survive_the_journey(sealed: Path, packed: Path) -> None:
    for path in (sealed, packed):
        with open_source(path) as source:
            manifest = source.manifest
            assert source.sealed and manifest
            assert (manifest.node, manifest.boot_id, manifest.incident, manifest.utc_offset_s) == ("node7", "b-1", "INC-7", 7200)
            assert (manifest.started_ns, manifest.ended_ns, manifest.profile, manifest.reason) == (5, 9, "standard", "a test")
            assert [a.outcome for a in source.attempts] == [Outcome.OK, Outcome.ABSENT]
            assert source.losses == ["kernel/dmesg.txt: was cut at capture"]
            for item in source.items():
                assert isinstance(item.evidence, Evidence) and item.evidence.path == item.name
                assert item.size == item.evidence.size_bytes == len(item.read())
    raw = msgspec.json.decode((sealed / "manifest.json").read_bytes())
    assert raw["schema"] == "forensics.bundle/1" and len(raw["evidence"]) == 10


def test_filling_twice_makes_no_difference(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b") as writer:
        fill(writer)
        fill(writer)
        assert len({record.path for record in writer.evidence}) == len(writer.evidence) == 20
