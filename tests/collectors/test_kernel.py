"""The kernel log: from its device, from commands, from files, and what is said when none of them lets us in."""

from __future__ import annotations

import io
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, needs_root, parse_lines

from collectors import _commands, kernel
from collectors._contract import Emitter, Request

Collect = Callable[..., Collected]


def readable(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return os.stat(path).st_rdev == os.makedev(1, 11)


def outcomes(found: Collected) -> dict[str, str]:
    return {a["target"]: a["outcome"] for a in found.attempts}


@pytest.mark.skipif(not readable("/dev/kmsg"), reason="needs a readable /dev/kmsg: run as root, outside a restricted container")
def test_the_device_gives_records_from_the_start(collect: Collect) -> None:
    found = collect("kernel")
    assert outcomes(found) == {"kernel facts": "OK", "/dev/kmsg": "OK"} or outcomes(found)["/dev/kmsg"] == "PARTIAL"
    records = found.content["kernel/kmsg.txt"].splitlines()
    priority, sequence, usec, *_ = records[0].split(b";")[0].split(b",")
    assert priority.isdigit() and sequence.isdigit() and usec.isdigit()
    assert len(found.content["kernel/kmsg.txt"]) <= kernel.LOG_BYTES


def test_only_the_newest_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the device: one record a read, one gap, then nothing more."""
    answers: list[Any] = [BrokenPipeError(), *(f"6,{i},{i},-;line {i}\n".encode() for i in range(100)), BlockingIOError()]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    monkeypatch.setattr(kernel.os, "read", read)
    monkeypatch.setattr(kernel, "LOG_BYTES", 200)
    raw, cut = kernel.read_kmsg("/dev/null")
    assert cut and raw.endswith(b";line 99\n") and len(raw) <= 200 and raw.startswith(b"6,")


@needs_root
def test_denied_everywhere_leaves_an_attempt_each_with_its_cure(collect: Collect) -> None:
    found = collect("kernel", as_nobody=True)
    tried = [a for a in found.attempts if a["target"] != "kernel facts"]
    if any(a["outcome"] == "OK" for a in tried):
        pytest.skip("this kernel shows its log to everybody (kernel.dmesg_restrict=0)")
    assert [a["target"] for a in tried] == ["/dev/kmsg", "dmesg", "dmesg plain", "journalctl", "/var/log/kern.log"]
    assert tried[0]["outcome"] == "DENIED" and "CAP_SYSLOG" in tried[0]["cure"]
    for attempt in tried[1:3]:
        assert attempt["outcome"] in ("DENIED", "ABSENT")
        assert attempt["outcome"] == "ABSENT" or "dmesg_restrict" in attempt["cure"]
    assert found.json("kernel/facts.json")["files"]["/proc/sys/kernel/dmesg_restrict"] == "1\n"


def test_a_recorded_tree_is_read_as_plain_files_and_runs_no_command(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/var/log/kern.log": "Sep  1 10:00:00 node1 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1\n"})
    found = collect("kernel", {"sysroot": str(tmp_path)})
    assert outcomes(found) == {"kernel facts": "ABSENT", "/dev/kmsg": "ABSENT", "/var/log/kern.log": "OK"}
    assert b"Xid" in found.content["kernel/kern.log"] and found.heads["kernel/kern.log"]["kind"] == "kernel-log"


def test_a_recorded_device_comes_first(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/dev/kmsg": "6,1,1,-;hello\n", "/var/log/kern.log": "other\n"})
    assert sorted(collect("kernel", {"sysroot": str(tmp_path)}).content) == ["kernel/kmsg.txt"]


def test_a_long_file_gives_its_newest_lines_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LOG_BYTES", 100)
    trees.write(tmp_path, {"/var/log/kern.log": "".join(f"line {i}\n" for i in range(1000))})
    out = io.StringIO()
    kernel.collect(Request({"sysroot": str(tmp_path)}), Emitter("kernel", out))
    found = parse_lines(out.getvalue().encode())
    lines = found.content["kernel/kern.log"].splitlines()
    assert lines[-1] == b"line 999" and lines[0].startswith(b"line ") and found.heads["kernel/kern.log"]["truncated"]
    assert outcomes(found)["/var/log/kern.log"] == "PARTIAL"


def test_what_the_kernel_saved_of_its_last_crash(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/sys/fs/pstore/dmesg-efi-1": "Panic#1 Part1\nKernel panic - not syncing\n", "/proc/version": "Linux\n"})
    files = collect("kernel", {"sysroot": str(tmp_path)}).json("kernel/facts.json")["files"]
    assert "dmesg-efi-1" in files["/sys/fs/pstore"] and "Kernel panic" in files["/sys/fs/pstore/dmesg-efi-1"]


def test_an_empty_pstore_is_a_fact_and_a_missing_one_is_not(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/proc/version": "Linux\n"})
    tree = collect("kernel", {"sysroot": str(tmp_path)}).json("kernel/facts.json")
    assert "/sys/fs/pstore" not in tree["files"] and tree["errors"]["/sys/fs/pstore"] == "ENOENT"
    (tmp_path / "sys/fs/pstore").mkdir(parents=True)
    assert collect("kernel", {"sysroot": str(tmp_path)}).json("kernel/facts.json")["files"]["/sys/fs/pstore"] == ""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...]]:
    """Put a stand-in command on the PATH, and give the way to call it."""

    def install(script: str) -> tuple[str, ...]:
        path = tmp_path / "bin" / "logtool"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
        return ("logtool", "-k")

    return install


@pytest.mark.parametrize(
    ("script", "outcome", "word"),
    [
        ("echo '2026-09-01T10:00:00 one'", "OK", ""),
        ("echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1", "DENIED", "not permitted"),
        (
            "echo 'Hint: You are currently not seeing messages from other users' >&2; echo '-- No entries --'",
            "DENIED",
            "Hint",
        ),
        ("echo 'Hint: You are currently not seeing messages from other users' >&2; echo 'own line'", "PARTIAL", "Hint"),
        ("echo 'No journal files were found.' >&2; echo '-- No entries --'", "EMPTY", "No journal"),
        ('echo "unrecognized option: time-format" >&2; exit 1', "UNSUPPORTED", "unrecognized"),
        ("exec sleep 60", "TIMEOUT", "did not end"),
    ],
)
def test_how_a_command_can_end(tool: Callable[[str], tuple[str, ...]], script: str, outcome: str, word: str) -> None:
    log = _commands.read_log(tool(script), 0.5 if outcome == "TIMEOUT" else 20, 1000, "the cure")
    assert (log.outcome, bool(log.text)) == (outcome, outcome in ("OK", "PARTIAL")) and word in log.reason
    assert (log.cure == "the cure") == (outcome == "DENIED" or word == "Hint")


def test_a_command_that_prints_much_gives_its_newest_lines(tool: Callable[[str], tuple[str, ...]]) -> None:
    log = _commands.read_log(tool("i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done"), 20, 100, "")
    assert log.outcome == "PARTIAL" and log.cut and log.text.startswith(b"line ") and log.text.endswith(b"line 499\n")


def test_a_command_that_is_not_there(tool: Callable[[str], tuple[str, ...]]) -> None:
    log = _commands.read_log(("no-such-log-command",), 5, 100, "")
    assert (log.outcome, log.reason) == ("ABSENT", "no-such-log-command is not installed")


def test_a_hanging_command_leaves_nothing_behind(tool: Callable[[str], tuple[str, ...]], tmp_path: Path) -> None:
    """Its whole group goes: the shell and what it started."""
    pids = tmp_path / "pids"
    ran = _commands.run_bounded(tool(f"sleep 61 & echo $$ $! > {pids}; wait"), 2.0)
    assert ran.status is None
    deadline = time.monotonic() + 20
    while any(map(alive, pids.read_text().split())):
        assert time.monotonic() < deadline, "the command outlived its bound"
        time.sleep(0.01)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
