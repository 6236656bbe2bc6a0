"""A bundle that wants to harm us: nothing escapes, nothing explodes, nothing raises, and what is honest in it is still read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.bundle import BundleError, Source, _gzip, _inflate, _tar, open_source
from forensics.bundle.manifest import decode_manifest


def _tar_of(path: Path, *members: tarfile.TarInfo | tuple[str, bytes], mode: str = "w:gz", form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, mode, format=form) as tar:  # type: ignore[call-overload]
        for member in members:
            info, data = (member, b"") if isinstance(member, tarfile.TarInfo) else (tarfile.TarInfo(member[0]), member[1])
            info.size = len(data) if data else info.size
            tar.addfile(info, io.BytesIO(data) if data else None)
    return path


def _info(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def _read_all(source: Source) -> dict[str, bytes]:
    return {item.name: item.read() for item in source.items()}


def test_names_that_want_out_are_refused_and_listed(tmp_path: Path) -> None:
    names = ["../up.log", "/etc/cron.d/x", "a/../../b.log", "..", "c:\\windows\\x", "\\\\host\\share", "a\x1b[2Jb.log", "honest.log"]
    path = _tar_of(tmp_path / "x.tar.gz", *[(name, b"data") for name in names], form=tarfile.GNU_FORMAT)
    with open_source(path) as source:
        assert set(_read_all(source)) == {"a\\x1b[2Jb.log", "honest.log"}
        assert len([loss for loss in source.losses if "outside the bundle" in loss]) == 6
        assert not any("\x1b" in loss for loss in source.losses)
    assert sorted(os.listdir(tmp_path)) == ["x.tar.gz"]


def test_links_devices_and_pipes_are_refused_and_listed(tmp_path: Path) -> None:
    kinds = {
        "soft": _info("soft", tarfile.SYMTYPE, "/etc/shadow"),
        "hard": _info("hard", tarfile.LNKTYPE, "honest.log"),
        "char": _info("char", tarfile.CHRTYPE),
        "block": _info("block", tarfile.BLKTYPE),
        "fifo": _info("fifo", tarfile.FIFOTYPE),
        "odd": _info("odd", b"Z"),
        "sparse": _info("sparse", tarfile.GNUTYPE_SPARSE),
    }
    path = _tar_of(tmp_path / "x.tar.gz", *kinds.values(), _info("folder", tarfile.DIRTYPE), ("honest.log", b"ok"))
    with open_source(path) as source:
        assert _read_all(source) == {"honest.log": b"ok"}
        assert [name for name in kinds if not any(f": {name} is " in loss and "refused" in loss for loss in source.losses)] == []


def test_a_link_that_claims_content_does_not_shift_the_archive(tmp_path: Path) -> None:
    link = _info("soft", tarfile.SYMTYPE, "/etc/shadow")
    link.size = 1_000_000
    with open_source(_tar_of(tmp_path / "x.tar.gz", link, ("honest.log", b"ok"))) as source:
        assert _read_all(source) == {"honest.log": b"ok"}


def test_a_name_twice(tmp_path: Path) -> None:
    with open_source(_tar_of(tmp_path / "x.tar.gz", ("a.log", b"1"), ("a.log", b"2"), ("a.log", b"3"))) as source:
        assert _read_all(source) == {"a.log": b"1", "a.log (2)": b"2", "a.log (3)": b"3"}
        assert any("occurs twice" in loss for loss in source.losses)


def test_a_bomb_is_cut_and_what_stood_before_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gzip, "RATIO_FREE_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(_inflate, "RATIO_FREE_BYTES", 4 * 1024 * 1024)
    zeros = bytes(64 * 1024 * 1024)
    with open_source(_tar_of(tmp_path / "x.tar.gz", ("honest.log", b"ok"), ("bomb.log", zeros), ("behind.log", b"lost"))) as source:
        sizes = {item.name: item.size for item in source.items()}
        assert sizes["honest.log"] == 2 and sizes["bomb.log"] < 16 * 1024 * 1024 and "behind.log" not in sizes
        assert any("a bomb" in loss for loss in source.losses)
        assert sum(len(data) for data in _read_all(source).values()) < 16 * 1024 * 1024
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "bomb.log.gz").write_bytes(gzip.compress(zeros, 9))
    with open_source(tmp_path / "bare") as source:
        assert len(next(source.items()).read()) < 16 * 1024 * 1024
        assert any("a bomb" in loss for loss in source.losses)


def test_bounds_hold_in_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gzip, "TOTAL_LIMIT_BYTES", 100_000)
    noise = random.Random(1).randbytes(60_000)
    with open_source(_tar_of(tmp_path / "x.tar.gz", ("a", noise), ("b", noise), ("c", noise))) as source:
        assert source.losses and sum(item.size for item in source.items()) <= 100_000 + _gzip._OUT
    monkeypatch.setattr(_tar, "MAX_MEMBERS", 50)
    with open_source(_tar_of(tmp_path / "y.tar", *[(f"f{i}", b"") for i in range(100)], mode="w")) as source:
        assert len(list(source.items())) == 50 and any("more than 50 members" in loss for loss in source.losses)


def test_very_many_empty_gzip_members(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(b"") * 100_000)
    with open_source(tmp_path / "x.tar.gz") as source:
        assert list(source.items()) == [] and source.losses


def _header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % (sum(block) + 8 * 32)
    return bytes(block)


@pytest.mark.parametrize(
    "size", [b"77777777777", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"-1", b"9x", b"\x80" + b"\0" * 7 + b"\x7f\xff\xff\xff"]
)
def test_a_size_that_lies_costs_no_memory(tmp_path: Path, size: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in (b"0", b"x", b"L", b"g"):
        (tmp_path / "x.tar").write_bytes(_header(b"a.log", size, kind) + b"some content")
        with open_source(tmp_path / "x.tar") as source:
            assert source.losses
            assert all(len(data) <= 12 for data in _read_all(source).values())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_endless_headers_stop(tmp_path: Path) -> None:
    pax = _header(b"x", b"%011o" % 0, b"x") * 10_000
    (tmp_path / "x.tar").write_bytes(pax)
    with open_source(tmp_path / "x.tar") as source:
        assert list(source.items()) == [] and any("larger or longer" in loss for loss in source.losses)


# a manifest that lies, or that wants to kill the parser


def _bundle_of(path: Path, manifest: bytes, files: dict[str, bytes] | None = None) -> Path:
    files = {"stacks/a.json": b"[]"} if files is None else files
    members = [("b/manifest.json", manifest), *((f"b/{name}", data) for name, data in files.items())]
    return _tar_of(path, *members, ("b/attempts.jsonl", b""), ("b/manifest-sha256.txt", b""))


DEEP = b'{"schema":"forensics.bundle/1","engines":' + b"[" * 200_000
HOSTILE_MANIFESTS = [
    b"",
    b"null",
    b"[]",
    b'{"schema": NaN}',
    b'{"schema":"forensics.bundle/1","started_ns":Infinity}',
    b'{"schema":"forensics.bundle/1","started_ns":' + b"9" * 100_000 + b"}",
    b'{"schema":"forensics.bundle/1","utc_offset_s":1e999}',
    DEEP,
    DEEP + b"]" * 200_000 + b"}",
    b'{"schema":"forensics.bundle/1","evidence":[{"path":"stacks/a.json","collector":"c","kind":"k","size_bytes":'
    + b"9" * 400
    + b',"sha256":""}]}',
    b'{"schema":"forensics.bundle/1","attempts":[{"collector":"c","target":"t","outcome":"A WORD OF THE FUTURE"},7,{}]}',
    b'{"schema":"forensics.bundle/1","evidence":{"a":1},"node":5,"redactions":[],"attempts":"x"}',
    b'{"schema":"forensics.bundle/1","evidence":['
    + b'{"path":"../../etc/passwd","collector":"c","kind":"k","size_bytes":-5,"sha256":"\\u0000"},' * 50
    + b"0]}",
    b'{"schema":"forensics.bundle/99","node":"\xff\xfe","unknown":{"x":[1,2]}}',
    b"\xff" * 1000,
]


@pytest.mark.parametrize("raw", HOSTILE_MANIFESTS)
def test_no_manifest_kills_the_reader(tmp_path: Path, raw: bytes) -> None:
    with open_source(_bundle_of(tmp_path / "x.tar.gz", raw)) as source:
        assert source.losses
        assert _read_all(source) == {"stacks/a.json": b"[]"}
    decode_manifest(raw)


def test_what_can_be_read_of_a_bad_manifest_is_read() -> None:
    attempt = {"collector": "c", "target": "t", "outcome": "OK", "from_the_future": [1]}
    raw = json.dumps({"schema": "forensics.bundle/1", "node": "n", "boot_id": 5, "attempts": [attempt, {"outcome": "?"}, attempt]}).encode()
    decoded = decode_manifest(raw)
    assert decoded.manifest and decoded.manifest.node == "n" and len(decoded.manifest.attempts) == 2
    assert len(decoded.losses) == 2


def test_a_manifest_that_lies_about_its_files_is_told_so(tmp_path: Path) -> None:
    def record(path: str, size: int, digest: str) -> dict[str, object]:
        return {"path": path, "collector": "c", "kind": "log", "size_bytes": size, "sha256": digest}

    digest = hashlib.sha256(b"abc").hexdigest()
    evidence = [
        record("c/honest", 3, digest),
        record("c/size", 10**15, digest),
        record("c/content", 3, "0" * 64),
        record("c/absent", 3, digest),
        record("c/honest", 99, "1" * 64),
    ]
    raw = json.dumps({"schema": "forensics.bundle/1", "evidence": evidence}).encode()
    files = {"c/honest": b"abc", "c/size": b"abc", "c/content": b"abd", "c/unlisted": b"x"}
    with open_source(_bundle_of(tmp_path / "x.tar.gz", raw, files)) as source:
        assert _read_all(source) == files
        said = " | ".join(source.losses)
        assert "c/size: has 3 bytes, the manifest says 1000000000000000" in said
        assert "c/content: the content does not match" in said
        assert "c/absent: known to the bundle, but not in it" in said
        assert "c/unlisted: not known to the manifest" in said
        assert "c/honest" not in said


# whatever else


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from bundle_samples import fill

    from forensics.bundle import BundleWriter

    with BundleWriter(tmp_path_factory.mktemp("archive"), "b") as writer:
        fill(writer, logs=2)
        writer.seal()
        return writer.pack().read_bytes()


def _mutate(raw: bytes, edits: list[tuple[int, int]], cut: int, compressed: bool) -> bytes:
    data = bytearray(raw if compressed else gzip.decompress(raw))
    for position, value in edits:
        data[position % len(data)] = value
    return bytes(data[: len(data) - cut % len(data)])


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6),
    cut=st.one_of(st.just(0), st.integers(0, 10**6)),
    compressed=st.booleans(),
)
def test_no_mutation_of_a_bundle_raises(archive: bytes, tmp_path: Path, edits: list[tuple[int, int]], cut: int, compressed: bool) -> None:
    (tmp_path / "x.tar.gz").write_bytes(_mutate(archive, edits, cut, compressed))
    with open_source(tmp_path / "x.tar.gz") as source:
        _read_all(source)
        assert source.sealed or source.losses


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2000), st.sampled_from(["x.tar.gz", "x.tar", "x.log", "x.log.gz", "x.xz"]))
def test_no_bytes_raise(tmp_path: Path, raw: bytes, name: str) -> None:
    for prefix in (b"", b"\x1f\x8b\x08\0", b"\xfd7zXZ\0", b"BZh9"):
        (tmp_path / name).write_bytes(prefix + raw)
        with open_source(tmp_path / name) as source:
            _read_all(source)


def _unreadable(folder: Path) -> None:
    (folder / "deep").mkdir()
    place = folder / "deep"
    for _ in range(20):
        place = place / "d"
    place.mkdir(parents=True)
    (place / "too-deep.log").write_text("x")


def _loop(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")


@pytest.mark.parametrize("build", [_unreadable, _loop])
def test_folders_that_lead_astray(tmp_path: Path, build: Callable[[Path], None]) -> None:
    (tmp_path / "honest.log").write_text("ok")
    build(tmp_path)
    with open_source(tmp_path) as source:
        assert _read_all(source) == {"honest.log": b"ok"}


def test_a_bundle_directory_with_planted_links(sealed: Path) -> None:
    (sealed / "stacks" / "extra.json").symlink_to("/etc/passwd")
    (sealed / "attempts.jsonl").unlink()
    (sealed / "attempts.jsonl").symlink_to("/etc/passwd")
    (sealed / "kernel" / "dmesg.txt").unlink()
    os.mkfifo(sealed / "kernel" / "dmesg.txt")
    with open_source(sealed) as source:
        got = _read_all(source)
        assert "stacks/pid-7.1.json" in got and "stacks/extra.json" not in got and "kernel/dmesg.txt" not in got
        said = " | ".join(source.losses)
        assert "stacks/extra.json is a symbolic link" in said and "kernel/dmesg.txt is not a regular file" in said
        assert not any(b"root:" in data for data in got.values())


def test_an_endless_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from forensics.bundle import read

    monkeypatch.setattr(read, "STDIN_LIMIT_BYTES", 100_000)
    zero = os.open("/dev/zero", os.O_RDONLY)
    try:
        with read._open_spooled(zero, "stdin") as source:
            assert next(source.items()).size == 100_000 and "only the first" in source.losses[0]
    finally:
        os.close(zero)
    with pytest.raises(BundleError):
        open_source("/dev/zero")
