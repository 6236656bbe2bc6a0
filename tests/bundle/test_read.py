"""Reading what we wrote, what others wrote, and what is cut, in any order."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest
from bundle_samples import ORDER

from forensics.bundle import BundleError, BundleWriter, Source, open_source, open_sources
from forensics.model import Evidence


def _contents(source: Source) -> dict[str, bytes]:
    return {item.name: item.read() for item in source.items()}


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "/" in str(path.relative_to(folder))
    }


def test_most_volatile_first_and_the_process_table_before_all(packed: Path) -> None:
    with tarfile.open(packed) as tar:
        names = [member.name.split("/", 1)[1] for member in tar]
    assert names[:2] == ["manifest.json", "discovery/processes.json"]
    collectors = [name.split("/")[0] for name in names[2:-2]]
    assert collectors == sorted(collectors, key=ORDER.index)
    assert names[-2:] == ["attempts.jsonl", "manifest-sha256.txt"]


def test_directory_and_archive_say_the_same(sealed: Path, packed: Path) -> None:
    with open_source(sealed) as folder, open_source(str(packed)) as archive:
        assert _contents(folder) == _contents(archive) == _files(sealed)
        assert {i.name: i.evidence for i in folder.items()} == {i.name: i.evidence for i in archive.items()}
        assert folder.sealed and archive.sealed
        assert folder.label == archive.label == "node7-20260102T030405Z"


def _members(raw: bytes) -> list[tuple[int, str, bytes]]:
    """(end offset in the archive, name, content) of every gzip member, by plain means."""
    found, at = [], 0
    while at < len(raw):
        inflate = zlib.decompressobj(wbits=31)
        data = inflate.decompress(raw[at:])
        at = len(raw) - len(inflate.unused_data)
        if data.strip(b"\0"):
            with tarfile.open(fileobj=io.BytesIO(data + bytes(1024))) as tar:
                member = tar.getmembers()[0]
                file = tar.extractfile(member)
                assert file
                found.append((at, member.name.split("/", 1)[1], file.read()))
    return found


def _check_cut(raw: bytes, cut: int, members: list[tuple[int, str, bytes]], path: Path) -> None:
    path.write_bytes(raw[:cut])
    with open_source(path) as source:
        assert not source.sealed
        assert source.losses
        got = _contents(source)
        before = {name: data for end, name, data in members if end <= cut and "/" in name}
        assert {name: got[name] for name in before} == before
        beyond = [name for name in got if name not in before]
        assert len(beyond) <= 1  # the file in which the cut fell
        for name in beyond:
            whole = next(data for _, other, data in members if other == name)
            assert whole.startswith(got[name])
        for item in source.items():
            assert isinstance(item.evidence, Evidence)
            size = next(len(data) for _, other, data in members if other == item.name)
            assert item.evidence.truncated == (len(got[item.name]) < size or item.name.startswith("kernel/"))
            assert item.evidence.pid == (7 if item.name.startswith("stacks/") else item.evidence.pid)
        if any(name == "manifest.json" and end <= cut for end, name, _ in members):
            assert source.manifest and source.manifest.node == "node7"
            named = " ".join(source.losses)
            gone = [name for end, name, _ in members if end > cut and "/" in name and name not in got]
            assert all(name in named for name in gone[:10])


def test_a_cut_at_every_percent_loses_only_the_tail(packed: Path, tmp_path: Path) -> None:
    raw = packed.read_bytes()
    members = _members(raw)
    assert len(members) == 13
    for percent in range(100):
        _check_cut(raw, len(raw) * percent // 100, members, tmp_path / "cut.tar.gz")


def test_a_cut_at_and_beside_every_seam(packed: Path, tmp_path: Path) -> None:
    raw = packed.read_bytes()
    members = _members(raw)
    for end, _, _ in members:
        for cut in (end - 9, end - 1, end, end + 1, end + 2, end + 11):
            if cut < len(raw):
                _check_cut(raw, cut, members, tmp_path / "cut.tar.gz")


def test_a_cut_bundle_without_its_manifest_still_knows_its_files(packed: Path, tmp_path: Path) -> None:
    raw = packed.read_bytes()
    first = _members(raw)[0][0]
    (tmp_path / "x.tar.gz").write_bytes(raw[first : len(raw) * 2 // 3])
    with open_source(tmp_path / "x.tar.gz") as source:
        assert source.bundle and not source.sealed and source.manifest is None
        stack = next(item for item in source.items() if item.name == "stacks/pid-7.2.json")
        assert stack.evidence and (stack.evidence.kind, stack.evidence.pid, stack.evidence.sample) == ("pyspy-json", 7, 2)
        assert stack.evidence.at_ns == 1_700_000_000_000_000_000 and stack.mtime_ns == 1_700_000_000_000_000_000


def test_a_damaged_spot_costs_one_file(packed: Path, tmp_path: Path) -> None:
    raw = packed.read_bytes()
    members = _members(raw)
    for index in range(1, len(members) - 1):
        start, end = members[index - 1][0], members[index][0]
        broken = bytearray(raw)
        for offset in range(start + (end - start) // 2, start + (end - start) // 2 + 8):
            broken[offset] ^= 0xFF
        (tmp_path / "x.tar.gz").write_bytes(broken)
        with open_source(tmp_path / "x.tar.gz") as source:
            got = _contents(source)
            intact = {name: data for position, (_, name, data) in enumerate(members) if position != index and "/" in name}
            assert {name: got.get(name) for name in intact} == intact
            assert any(word in " ".join(source.losses) for word in ("damaged", "does not match"))


def test_an_unsealed_bundle_is_read_from_directory_and_archive(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "b", head={"node": "n1", "boot_id": "x"}) as writer:
        writer.add("stacks/a.json", "pyspy-json", "[]", collector="stacks", pid=4)
        (writer.path / "attempts.jsonl").open("a").write('{"collector":"cut')
        packed = writer.pack(keep=True)
    for path in (writer.path, packed):
        with open_source(path) as source:
            assert source.bundle and not source.sealed
            assert source.manifest and source.manifest.node == "n1"
            assert [item.evidence and item.evidence.pid for item in source.items()] == [4]
            assert any("records cannot be read" in loss for loss in source.losses)


def test_a_foreign_archive_is_read_in_any_order(tmp_path: Path) -> None:
    """One gzip stream over everything, larger than the distance of two checkpoints."""
    logs = tmp_path / "logs"
    logs.mkdir()
    chance = random.Random(5)
    contents = {f"logs/node{n}.log": b"".join(b"%d %x\n" % (n, chance.getrandbits(160)) for _ in range(40_000)) for n in range(5)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for flags, name in (("czf", "x.tgz"), ("cf", "x.tar"), ("czf", "no-suffix")):
        subprocess.run(["tar", flags, str(tmp_path / name), "-C", str(tmp_path), "logs"], check=True)
        with open_source(tmp_path / name) as source:
            assert not source.bundle and source.manifest is None and source.losses == []
            items = {item.name: item for item in source.items()}
            order = [*items, *items][:7]
            chance.shuffle(order)
            for item in order:
                assert items[item].read() == contents[item]
                assert items[item].evidence is None
            one, other = items["logs/node1.log"].open(), items["logs/node4.log"].open()
            for _ in range(50):  # two readers that alternate
                assert one.readline().startswith(b"1 ") and other.readline().startswith(b"4 ")


def test_long_and_foreign_names(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=form) as tar:
            for name in ("d/" * 60 + "x.log", "n" * 150 + ".log", "grüße.log", "./dot.log"):
                tar.addfile(tarfile.TarInfo(name))
        with open_source(tmp_path / "x.tar") as source:
            assert [item.name for item in source.items()] == ["d/" * 60 + "x.log", "n" * 150 + ".log", "grüße.log", "dot.log"]


def test_a_folder_of_bare_logs(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    (folder / "deep").mkdir(parents=True)
    (folder / "node0.log").write_text("a\n")
    (folder / "deep" / "node1.log").write_text("b\n")
    (folder / ".hidden").write_text("no")
    (folder / "current.log").symlink_to(folder / "node0.log")
    (folder / "passwd.log").symlink_to("/etc/passwd")
    (folder / "etc").symlink_to("/etc")
    os.mkfifo(folder / "pipe.log")
    with open_source(folder) as source:
        assert _contents(source) == {"deep/node1.log": b"b\n", "node0.log": b"a\n"}
        assert (source.label, source.bundle, source.sealed, source.manifest) == ("case", False, False, None)
        assert sorted(source.losses) == [
            "etc is a symbolic link out of the folder: refused",
            "passwd.log is a symbolic link out of the folder: refused",
            "pipe.log is not a regular file: refused",
        ]


def test_a_file_that_turns_into_something_else_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a\n")
    with open_source(tmp_path) as source:
        (tmp_path / "a.log").unlink()
        (tmp_path / "a.log").symlink_to("/etc/passwd")
        with pytest.raises(OSError, match=r"symbolic link|Too many levels"):
            next(source.items()).read()
        (tmp_path / "a.log").unlink()
        os.mkfifo(tmp_path / "a.log")
        with pytest.raises(OSError, match="no longer a regular file"):
            next(source.items()).read()


def test_compressed_logs_are_opened(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % i for i in range(50_000))
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(data[:1000]) + gzip.compress(data[1000:]))
    (tmp_path / "b.log.xz").write_bytes(lzma.compress(data[:1000]) + lzma.compress(data[1000:]))
    (tmp_path / "c.log.bz2").write_bytes(bz2.compress(data[:1000]) + bz2.compress(data[1000:]))
    with open_source(tmp_path) as source:
        assert _contents(source) == dict.fromkeys(["a.log", "b.log", "c.log"], data)
        assert source.losses == []
    for name in ("a.log.gz", "b.log.xz", "c.log.bz2"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / "one").mkdir(exist_ok=True)
        cut = tmp_path / "one" / name
        cut.write_bytes(whole[: len(whole) * 2 // 3])
        with open_source(cut) as source:
            got = next(source.items()).read()
            assert data.startswith(got) and (got or name.endswith("bz2"))
            assert [loss.split(":")[1].strip() for loss in source.losses] == [f"unpacked up to byte {len(got)}, then the file is cut"]


def test_single_file_stdin_and_pipe(tmp_path: Path, packed: Path) -> None:
    log = tmp_path / "node3.log"
    log.write_text("one\ntwo\n")
    with open_source(log) as source:
        item = next(source.items())
        first, second = item.open(), item.open()
        assert (first.readline(), second.readline(), first.readline()) == (b"one\n", b"one\n", b"two\n")
        assert (item.name, item.size, source.label) == ("node3.log", 8, "node3.log")
    code = "import sys\nfrom forensics.bundle import open_source\ns = open_source(sys.argv[1])\nprint(s.sealed, [(i.name, len(i.read())) for i in s.items()])"
    piped = subprocess.run([sys.executable, "-c", code, "-"], input=packed.read_bytes(), capture_output=True, check=True)
    assert piped.stdout.startswith(b"True [('discovery/processes.json', ")
    plain = subprocess.run([sys.executable, "-c", code, "-"], input=b"hello\n", capture_output=True, check=True)
    assert plain.stdout == b"False [('stdin', 6)]\n"
    shell = subprocess.run(["bash", "-c", '"$0" -c "$1" <(cat "$2")', sys.executable, code, str(packed)], capture_output=True, check=True)
    assert shell.stdout.startswith(b"True [")


def test_a_folder_of_bundles_is_opened_as_such(tmp_path: Path, sealed: Path, packed: Path) -> None:
    (tmp_path / "loose.log").write_text("x\n")
    sources = open_sources([tmp_path])
    try:
        assert sorted((source.label, source.bundle) for source in sources) == [
            ("node7-20260102T030405Z", True),
            ("node7-20260102T030405Z", True),
            (tmp_path.name, False),
        ]
        assert all(source.losses in ([], ["kernel/dmesg.txt: was cut at capture"]) for source in sources)
    finally:
        for source in sources:
            source.close()
    with open_source(tmp_path) as source:
        assert list(_contents(source)) == ["loose.log"]
        assert len([loss for loss in source.losses if "was not opened" in loss]) == 2


@pytest.mark.parametrize("path", ["/nonexistent/x", "/dev/null"])
def test_nothing_to_open_is_an_error_with_a_cure(path: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_source(path)
    assert path in caught.value.message and caught.value.cure


def test_a_tar_packed_otherwise_is_read_and_a_zip_is_named_not_misread(tmp_path: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.log"))
    (tmp_path / "x.tar.xz").write_bytes(lzma.compress(raw.getvalue()))
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 and so on")
    with open_source(tmp_path / "x.tar.xz") as source:
        assert [item.name for item in source.items()] == ["a.log"]
    with open_source(tmp_path / "x.zip") as source:
        assert list(source.items()) == [] and "unpack it" in source.losses[0]
