"""Folders as people mail them: packed, rotated, nested, closed, broken. Nothing that is in one may end an analysis, or vanish from it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis import NothingToAnalyze, analyze
from forensics.analysis.nodes import by_folder, node_of
from forensics.analysis.rotated import base_of
from forensics.model import Report

P = "(EngineCore pid=7) ERROR 09-01 {at} [core.py:1] "
FATAL = P.format(at="09:30:00") + "EngineCore encountered a fatal error.\n"
WAIT = "(EngineCore pid=7) INFO 09-01 {at} [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.\n"
READY = "(APIServer pid=1) INFO 09-01 08:00:00 [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000\n"


def quotes(report: Report) -> set[tuple[str, str]]:
    refs = [ref for f in report.findings for ref in f.because] + [e.ref for e in report.timeline]
    return {(ref.source, ref.locator) for ref in refs}


def zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd as library

        return library.compress(data)
    import zstandard

    return zstandard.compress(data)


PACKERS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstd}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_log_reads_like_the_plain_one(tmp_path: Path, ending: str) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder, name, data in ((plain, "n0.log", FATAL.encode()), (packed, f"n0.log.{ending}", PACKERS[ending](FATAL.encode()))):
        folder.mkdir()
        (folder / name).write_bytes(data)
    told = quotes(analyze([packed]))
    assert told == quotes(analyze([plain])) and ("n0.log", "line 1") in told


@pytest.mark.parametrize("ending", PACKERS)
def test_a_cut_packed_log_is_read_to_where_it_breaks(tmp_path: Path, ending: str) -> None:
    noise = "".join(f"(EngineCore pid=7) INFO 09-01 09:40:00 [x.py:1] {os.urandom(40).hex()}\n" for _ in range(20_000))
    data = PACKERS[ending]((FATAL + noise).encode())
    (tmp_path / f"n0.log.{ending}").write_bytes(data[: len(data) * 3 // 4])
    report = analyze([tmp_path])
    if ending != "bz2":  # of which the first block may be all there is
        assert ("n0.log", "line 1") in quotes(report)
    assert any("cut" in line or "damaged" in line for line in report.unread)


def test_a_zstd_bomb_is_no_trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forensics.bundle import _inflate

    monkeypatch.setattr(_inflate, "RATIO_FREE_BYTES", 4 << 20)
    (tmp_path / "n0.log.zst").write_bytes(zstd(FATAL.encode() + bytes(300 << 20)))
    report = analyze([tmp_path])
    assert any("bomb" in line for line in report.unread)


@pytest.mark.parametrize(
    "names",
    [
        ("engine0.log.2.gz", "engine0.log.1", "engine0.log"),
        ("engine0.log.10", "engine0.log.9", "engine0.log"),
        ("engine0.log-20260831", "engine0.log-20260901.gz", "engine0.log"),
        ("0.log.20260831-101010.gz", "0.log.20260901-000000", "0.log"),
        ("abc-json.log.2", "abc-json.log.1", "abc-json.log"),
        ("node0.log.2026-08-31_23", "node0.log.2026-09-01_00", "node0.log"),
    ],
)
def test_rotated_files_are_one_log_and_quoted_as_what_they_are(tmp_path: Path, names: tuple[str, ...]) -> None:
    texts = (READY + "x\n", WAIT.format(at="09:28:00"), "y\n" + WAIT.format(at="09:29:00") + FATAL)
    for name, text in zip(names, texts, strict=True):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    told = quotes(analyze([tmp_path]))
    assert (names[2], "line 3") in told, "the fatal line, in the newest file"
    assert (names[1], "line 1") in told or (names[2], "line 2") in told
    assert len(analyze([tmp_path]).engines) == 1


@pytest.mark.parametrize("name", ["stacks.1.json", "node1.log", "metrics.1", "top.2", "py-spy.3.txt", "run-20260901.log"])
def test_other_numbers_are_no_rotation(name: str) -> None:
    assert base_of(name)[0] == name


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        (("node0/engine.log", "node1/engine.log"), ("node0", "node1")),
        (("mail/a/logs/engine.log", "mail/b/logs/engine.log.1"), ("a", "b")),
        (("node0/engine.log", "node1/engine.log", "node0/dmesg.txt"), ("node0", "node1", "node0")),
        (("node1-worker.log", "prefill-2.log"), ("node1", "prefill-2")),
        (("logs/node0.log", "logs/node1.log"), ("node0", "node1")),
    ],
)
def test_nodes_of_folders(names: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    node = by_folder(names)
    assert tuple(map(node, names)) == nodes


def test_a_name_of_many_words_is_read_at_once() -> None:
    assert node_of("node1_engine-core_a-b.log") == "node1"
    assert node_of("x1" + "_a" * 100 + "!.log") == "x1" + "_a" * 100 + "!"


def test_the_host_of_a_syslog_names_the_node_of_a_file_that_says_none(tmp_path: Path) -> None:
    (tmp_path / "journal.log").write_text("".join(f"Sep  1 09:30:0{n} gpu-7 vllm[7]: {FATAL}" for n in range(5)))
    assert {f.nodes for f in analyze([tmp_path]).findings if f.id == "engine-died"} == {("gpu-7",)}


def test_kernel_lines_in_a_syslog_of_everything(tmp_path: Path) -> None:
    lines = [f"Sep  1 09:29:{n:02d} gpu-7 vllm[7]: (EngineCore pid=7) INFO 09-01 09:29:{n:02d} [x.py:1] step\n" for n in range(50)] * 8
    lines.append("Sep  1 09:30:00 gpu-7 kernel: Out of memory: Killed process 7 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n")
    lines.append(f"Sep  1 09:30:05 gpu-7 vllm[7]: {FATAL}")
    (tmp_path / "syslog.log").write_text("".join(lines))
    assert ("syslog.log", "line 401") in quotes(analyze([tmp_path]))


def test_nothing_vanishes(tmp_path: Path) -> None:
    (tmp_path / "n0.log").write_text(FATAL)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "notes.bin").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty.log").touch()
    (tmp_path / "link.log").symlink_to("/etc/hostname")
    unread = analyze([tmp_path]).unread
    for name in ("deep/er/notes.bin", "empty.log", "link.log"):
        assert any(name in line for line in unread), (name, unread)
    empty = tmp_path / "none"
    empty.mkdir()
    with pytest.raises(NothingToAnalyze):
        analyze([empty])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything; tests/test_bad_bundle.py gives that up")
def test_what_may_not_be_read_is_denied(tmp_path: Path) -> None:
    (tmp_path / "n0.log").write_text(FATAL)
    (tmp_path / "n1.log").write_text(FATAL)
    (tmp_path / "n1.log").chmod(0)
    assert any(line.startswith("n1.log: DENIED") and "cure" in line for line in analyze([tmp_path]).unread)


def test_a_pipe_larger_than_the_memory_bound_is_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forensics.analysis import buffers

    monkeypatch.setattr(buffers, "MEMORY_BYTES", 1000)
    read, write = os.pipe()
    os.write(write, (WAIT.format(at="09:29:00") * 100 + FATAL).encode())
    os.close(write)
    saved = os.dup(0)
    try:
        os.dup2(read, 0)
        assert ("stdin", "line 101") in quotes(analyze(["-"]))
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(read)


@pytest.mark.parametrize("ending", ["xz", "zst", "bz2"])
def test_a_packed_tar(tmp_path: Path, ending: str) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        info = tarfile.TarInfo("n0.log")
        info.size = len(FATAL)
        tar.addfile(info, io.BytesIO(FATAL.encode()))
    (tmp_path / f"mail.tar.{ending}").write_bytes(PACKERS[ending](whole.getvalue()))
    assert ("n0.log", "line 1") in quotes(analyze([tmp_path / f"mail.tar.{ending}"]))


def test_a_tar_of_packed_logs(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "mail.tar.gz", "w:gz") as tar:
        for name, data in (("a/n0.log.gz", gzip.compress(FATAL.encode())), ("a/n1.log", FATAL.encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    assert {("a/n0.log", "line 1"), ("a/n1.log", "line 1")} <= quotes(analyze([tmp_path / "mail.tar.gz"]))


# ---- fuzz

HEADS = (
    FATAL,
    READY,
    WAIT.format(at="09:29:00"),
    "Traceback (most recent call last):\n",
    '  File "a.py", line 1, in f\n',
    "ValueError: x\n",
    '{"log":"' + FATAL.strip().replace('"', "'") + '\\n","stream":"stderr","time":"2026-09-01T09:30:00.1Z"}\n',
    "2026-09-01T09:30:00.1Z stderr P (EngineCore pid=7) ERROR ",
    "Sep  1 09:30:00 n0 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=7\n",
    "[  123.456789] Out of memory: Killed process 7 (python3)\n",
    "[2026-09-01 09:30:00 TP0] Scheduler hit an exception: x\n",
    "[09/01/2026-09:30:00] [TRT-LLM] [E] Hang detected after 300 seconds.\n",
    "n0:7:9 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n",
    "(RayWorkerWrapper pid=9, ip=192.0.2.1) ERROR 09-01 09:30:00 [x.py:1] boom\n",
    "99-99 99:99:99 9999-99-99T99:99:99Z\n",
    "\x1b[31mred\x1b[0m\0\n",
)
PIECE = st.one_of(
    st.sampled_from(HEADS).map(str.encode),
    st.tuples(st.sampled_from(HEADS), st.integers(0, 120)).map(lambda t: t[0][: t[1]].encode()),
    st.binary(max_size=80),
    st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")),
)
CONTENT = st.lists(PIECE, max_size=25).map(b"".join)
NAMES = (
    "n0.log",
    "n0.log.1",
    "n1.log.2.gz",
    "n1.log",
    "x.json",
    "dmesg.txt",
    "node0/engine.log",
    "node1/engine.log.1",
    "a.zst",
    "patches.toml",
    "nvidia-smi.csv",
)
PACK = st.sampled_from([bytes, bytes, gzip.compress, zstd, lambda d: gzip.compress(d)[:-5], lambda d: b"\x28\xb5\x2f\xfd" + d])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(CONTENT, PACK), min_size=1, max_size=5))
def test_no_folder_ends_an_analysis(tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, object]]) -> None:
    folder = tmp_path_factory.mktemp("mail")
    for name, (content, pack) in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(pack(content))  # type: ignore[operator]
    try:
        report = analyze([folder])
    except NothingToAnalyze:
        return
    assert not [r for r in report.rules if r.status.value == "ERRORED"]
    assert not [line for line in report.unread if "gave up" in line]
