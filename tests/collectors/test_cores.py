from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, Started, needs_root

from collectors import _pystack
from collectors._elfcore import Core, identify
from collectors.cores import SYSTEMD, pattern_name

Collect = Callable[..., Collected]
Start = Callable[..., Started]

needs_pystack = pytest.mark.skipif(_pystack.find() is None, reason="pystack is not installed: pip install pystack")

HERE = "import os, sys; os.chdir(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
CRASHING = """
import os, resource, signal, sys, threading
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
os.chdir(sys.argv[1])
def inner():
    os.kill(os.getpid(), signal.SIGABRT)
inner()
"""


def note(kind: int, content: bytes) -> bytes:
    return struct.pack("<III", 5, len(content), kind) + b"CORE\0\0\0\0" + content + b"\0" * (-len(content) % 4)


def core(comm: str, pid: int, number: int) -> bytes:
    """The head of a core file as the kernel writes it: ELF header, one PT_NOTE segment, its notes."""
    status = struct.pack("<i", number) + b"\0" * 332
    info = struct.pack("<4B4xQ6i16s80s", 0, 0, 0, 0, 0, 0, 0, pid, 1, pid, pid, comm.encode(), b"python serve.py --api-key sk-secret")
    notes = note(1, status) + note(3, info)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(notes), 0, 4) + notes


def listed(found: Collected) -> list[dict[str, Any]]:
    cores: list[dict[str, Any]] = found.json("cores/list.json")["cores"]
    return cores


def look(collect: Collect, target: Started, **options: Any) -> Collected:
    return collect("cores", {"targets": [{"pid": target.pid}], "options": options})


def of(found: Collected, word: str) -> dict[str, Any]:
    (attempt,) = [a for a in found.attempts if word in a["target"]]
    return attempt


def test_cores_in_the_folder_of_a_target_are_told_from_what_is_only_called_so(collect: Collect, start: Start, tmp_path: Path) -> None:
    names = {"core": core("python", 41, 6), "core.42": core("VLLM::EngineCor", 42, 11), "x.core": core("bash", 43, 0)}
    names |= {"core.py": b"import os", "core.sock.txt": b"\x7fELF\x02\x01", "score": core("python", 44, 6), "core-empty": b""}
    for age, (name, content) in enumerate(names.items()):
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (10**9 - age, 10**9 - age))
    (tmp_path / "core.d").mkdir()
    (tmp_path / "core.link").symlink_to(tmp_path / "core")
    os.mkfifo(tmp_path / "core.fifo")
    found = look(collect, start(HERE, tmp_path), pystack="/nonexistent")
    here = [c for c in listed(found) if c["path"].startswith(str(tmp_path))]
    assert [(c["path"].rpartition("/")[2], c["executable"], c["pid"], c["signal"]) for c in here] == [
        ("core", "python", 41, 6),
        ("core.42", "VLLM::EngineCor", 42, 11),
        ("x.core", "bash", 43, None),
    ]
    assert here[0]["size_bytes"] == len(names["core"]) and here[0]["mtime_ns"] == 10**18
    assert b"secret" not in found.content["cores/list.json"]
    assert str(tmp_path) in found.json("cores/list.json")["looked"]
    tried = [a for a in found.attempts if a["target"] in (f"core {tmp_path}/core", f"core {tmp_path}/core.42")]
    assert [(a["outcome"], "pip install" in a["cure"]) for a in tried] == [("SKIPPED", True)] * 2
    assert not [a for a in found.attempts if "x.core" in a["target"]], "no interpreter of an engine"


def real_core(folder: Path) -> Path:
    """A core that this kernel writes of a crashing Python; skips where it goes elsewhere or may not be written."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or pattern.startswith("|") or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip(f"core files go elsewhere here: core_pattern is {pattern}, or the hard limit is 0")
    died = subprocess.run([sys.executable, "-c", CRASHING, str(folder)], capture_output=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGABRT
    (made,) = [path for path in folder.iterdir() if pattern_name(pattern)(path.name)] or [None]
    if made is None:
        pytest.skip("the kernel wrote no core file")
    return made


@needs_pystack
def test_a_core_of_an_interpreter_is_read(collect: Collect, start: Start, tmp_path: Path) -> None:
    made = real_core(tmp_path)
    found = look(collect, start(HERE, tmp_path))
    (about,) = [c for c in listed(found) if c["path"] == str(made)]
    assert about["executable"].startswith("python") and about["signal"] == signal.SIGABRT
    attempt = of(found, str(made))
    assert attempt["outcome"] == "OK"
    (name,) = attempt["evidence"]
    assert name == f"cores/pystack-pid-{about['pid']}.1.txt"
    assert found.heads[name]["kind"] == "pystack-text" and found.heads[name]["at_ns"] == about["mtime_ns"]
    assert b"in inner" in found.content[name] and b"SIGABRT" in found.content[name]


def test_reading_is_bounded_in_number_and_time(collect: Collect, start: Start, tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"core.{n}").write_bytes(core("python3", 50 + n, 6))
        os.utime(tmp_path / f"core.{n}", (4 * 10**9 + n, 4 * 10**9 + n))
    hanging = tmp_path / "pystack"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    found = look(collect, start(HERE, tmp_path), pystack=str(hanging), patience_s=0.2)
    tried = [a for a in found.attempts if str(tmp_path) in a["target"]]
    assert [a["target"].rpartition(".")[2] for a in tried] == ["4", "3", "2"]
    assert {(a["outcome"], a["reason"]) for a in tried} == {("TIMEOUT", "pystack gave no answer within 0.2 s")}


def test_a_packed_core_is_listed_by_its_name(collect: Collect, tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/systemd/coredump"
    folder.mkdir(parents=True)
    name = f"core.VLLM\\x3a\\x3aEngineCor.1000.{'ab' * 16}.4243.1756200000000000.zst"
    (folder / name).write_bytes(b"\x28\xb5\x2f\xfd packed")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/core_pattern").write_text("|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n")
    found = collect("cores", {"sysroot": str(tmp_path)})
    (one,) = listed(found)
    assert (one["pid"], one["compression"], one["path"]) == (4243, "zstd", f"/var/lib/systemd/coredump/{name}")
    assert one["executable"].startswith("VLLM") and SYSTEMD.fullmatch(name)
    assert [a["outcome"] for a in found.attempts] == ["OK"]


def test_no_core_is_an_answer(collect: Collect, tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/core_pattern").write_text("/var/cores/%e.%p\n")
    (attempt,) = collect("cores", {"sysroot": str(tmp_path)}).attempts
    assert (attempt["outcome"], "core_pattern is /var/cores/%e.%p" in attempt["reason"]) == ("EMPTY", True)


@needs_root
def test_a_core_that_we_may_not_read_is_listed_and_said(collect: Collect, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "core.77").write_bytes(core("python3", 77, 6))
    (folder / "core.77").chmod(0o600)
    sysroot = tmp_path / "root"
    (sysroot / "proc/sys/kernel").mkdir(parents=True)
    (sysroot / "proc/sys/kernel/core_pattern").write_text(f"{folder}/core\n")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    (sysroot / str(folder).lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
    (folder).rename(sysroot / str(folder).lstrip("/"))
    found = collect("cores", {"sysroot": str(sysroot)}, as_nobody=True)
    (one,) = listed(found)
    assert (one["error"], one["executable"], one["pid"]) == ("EACCES", "", None)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("core", ("core", "core.123"), ("score", "core.py")),
        ("/var/cores/%e.%p", ("python.12", "VLLM::Worker.9"), ("readme",)),
        ("/c/crash-%e-%t.core", ("crash-python-99.core", "crash-a-b.core.7"), ("crash.core",)),
        ("100%%-%p", ("100%-5",), ("100-5",)),
        ("a%eab%pba", ("aabba", "axabxba", "aababba.7"), ("abba", "aaba", "aabb")),
    ],
)
def test_names_that_a_core_pattern_makes(pattern: str, yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    names = pattern_name(pattern)
    assert all(names(name) for name in yes) and not any(names(name) for name in no)


def test_a_hostile_name_is_judged_in_one_pass() -> None:
    """As a regular expression, eight "%e-" over such a name are billions of ways to try."""
    names = pattern_name("/c/" + "%e-" * 60 + "%e.core")
    assert not names("-" * 255) and names("-" * 60 + ".core") and not names("-" * 59 + ".core")


@pytest.mark.parametrize("length", [0, 5, 20, 63, 64, 100, 119, 130, 200, 500])
def test_a_head_that_is_cut_or_garbled_is_no_crash(length: int) -> None:
    whole = core("python", 5, 6)

    def known(content: bytes) -> Core | None:
        return identify(lambda offset, length: content[offset : offset + length])

    assert known(whole[:length]) in (None, Core("", 0, 0), Core("", 0, 6), known(whole))
    garbled = known(whole[:length] + b"\xff" * 300)
    assert garbled is None or (garbled.pid >= 0 and garbled.signal >= 0)
    assert known(b"\xff" * length) is None
    assert known(whole) == Core("python", 5, 6)
