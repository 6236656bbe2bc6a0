from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, Started, needs_root, parse_lines

from collectors import _pyspy

Collect = Callable[..., Collected]
Start = Callable[..., Started]

WAITING = """
import sys, threading
def inner():
    print("ready", flush=True)
    sys.stdin.read()
inner()
"""
THREADS = """
import sys, threading
count = int(sys.argv[1])
event, down = threading.Event(), threading.Semaphore(0)
def descend(n):
    if n: return descend(n - 1)
    down.release()
    event.wait()
for _ in range(count):
    threading.Thread(target=descend, args=(20,), daemon=True).start()
for _ in range(count):
    down.acquire()
print("ready", flush=True)
sys.stdin.read()
"""
# posix_spawn waits like vfork, uninterruptibly, for a child that opens a FIFO which nobody writes
SLEEPING_IN_D = """
import os, sys, threading
def vfork():
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
print("ready", flush=True)
if sys.argv[2] == "main":
    vfork()
else:
    threading.Thread(target=vfork, daemon=True).start()
sys.stdin.read()
"""
TRACER = """
import ctypes, sys
assert ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0  # PTRACE_SEIZE
print("ready", flush=True)
sys.stdin.read()
"""
ZOMBIE = """
import os, sys
pid = os.fork()
if pid == 0: os._exit(3)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(pid, flush=True)
sys.stdin.read()
"""


def request(*pids: int, samples: int = 1, **options: Any) -> dict[str, Any]:
    """py-spy alone, unless told otherwise: what pystack adds is in test_ladder.py."""
    targets = [{"pid": pid} for pid in pids]
    return {"targets": targets, "samples": samples, "interval_s": 0.05, "options": {"pystack": "/nonexistent", **options}}


def dump_of(attempt: dict[str, Any]) -> str:
    """The stacks among its evidence; the other file is that of the kernel waits."""
    waits, dump = attempt["evidence"]
    assert waits.startswith("stacks/wait-")
    return str(dump)


def fake(folder: Path, body: str) -> str:
    """A program in the place of py-spy. Its arguments are: dump --json --pid PID [--nonblocking]."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\npid=$4\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def names(threads: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for thread in threads for frame in thread["frames"]]


def test_running_process_in_two_samples(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, samples=2))
    for sample in (1, 2):
        attempt = found.one(target.pid, sample)
        name = f"stacks/pid-{target.pid}.{sample}.json"
        assert (attempt["outcome"], attempt["reason"], dump_of(attempt)) == ("OK", "", name)
        assert names(found.json(name)) == ["inner", "<module>"]
        head = found.heads[name]
        assert head["kind"] == "pyspy-json"
        assert head["source"] == f"py-spy dump --json --pid {target.pid}"
        assert attempt["started_ns"] <= head["at_ns"] <= attempt["ended_ns"]
    assert found.heads[f"stacks/pid-{target.pid}.1.json"]["at_ns"] < found.heads[f"stacks/pid-{target.pid}.2.json"]["at_ns"]
    assert target.state == "S"


def test_every_thread_is_there(collect: Collect, start: Start) -> None:
    target = start(THREADS, 100)
    found = collect("stacks", request(target.pid))
    threads = found.json(f"stacks/pid-{target.pid}.1.json")
    assert len(threads) == 101
    assert names(threads).count("descend") == 100 * 21


def test_stopped_process_is_read_without_a_pause_and_stays_stopped(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    target.stop()
    found = collect("stacks", request(target.pid))
    attempt = found.one(target.pid)
    assert (attempt["outcome"], attempt["reason"]) == ("OK", "the process is stopped")
    name = dump_of(attempt)
    assert found.heads[name]["source"].endswith("--nonblocking")
    assert "inner" in names(found.json(name))
    assert target.state == "T"


@pytest.mark.parametrize("where", ["main", "other"])
def test_thread_in_uninterruptible_sleep_is_never_waited_for(collect: Collect, start: Start, tmp_path: Path, where: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    target = start(SLEEPING_IN_D, fifo, where)

    def in_d() -> bool:
        return any(b") D " in task.read_bytes() for task in Path(f"/proc/{target.pid}/task").glob("*/stat"))

    target.wait_for(in_d)
    try:
        found = collect("stacks", request(target.pid, timeout_s=20))
        attempt = found.one(target.pid)
        assert "in uninterruptible sleep: thread" in attempt["reason"]
        assert attempt["outcome"] == "PARTIAL"
        assert "vfork" in names(found.json(dump_of(attempt)))
        assert in_d()
    finally:
        os.close(os.open(fifo, os.O_RDWR))


def test_what_has_no_stack_says_why(collect: Collect, start: Start) -> None:
    alive = start(WAITING)
    zombie = int(start(ZOMBIE).first)
    other = subprocess.Popen(["sleep", "60"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        targets = [
            *({"pid": pid} for pid in (zombie, other.pid, gone.pid)),
            {"pid": alive.pid, "start_ticks": alive.start_ticks + 1},
        ]
        found = collect("stacks", {"targets": targets, "samples": 2, "interval_s": 0})
        for sample in (1, 2):
            got = {pid: found.one(pid, sample) for pid in (zombie, other.pid, gone.pid, alive.pid)}
            assert {a["outcome"] for a in got.values()} == {"ABSENT"}
            assert "zombie" in got[zombie]["reason"]
            assert got[other.pid]["reason"] == "not a Python process"
            assert "gone" in got[gone.pid]["reason"]
            assert "another process now" in got[alive.pid]["reason"]
        assert set(found.content) == {
            f"stacks/wait-pid-{other.pid}.{sample}.json" for sample in (1, 2)
        }  # what the kernel says needs no Python
    finally:
        other.kill()
        other.wait()


def test_process_that_exits_under_the_reader(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    program = fake(tmp_path, 'kill -9 $pid; while ! grep -q "^State:.Z" /proc/$pid/status; do :; done; echo "Error: whatever" >&2; exit 1')
    found = collect("stacks", request(target.pid, py_spy=program))
    attempt = found.one(target.pid)
    assert (attempt["outcome"], attempt["evidence"]) == ("ABSENT", [])
    assert "zombie" in attempt["reason"]


@needs_root
def test_traced_by_somebody_else(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    tracer = start(TRACER, target.pid)
    found = collect("stacks", request(target.pid))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "PARTIAL"
    assert f"traced by pid {tracer.pid}" in attempt["reason"]
    assert "inner" in names(found.json(dump_of(attempt)))


def test_reader_that_hangs_is_killed_with_all_its_children(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    program = fake(tmp_path, f"sleep 1000 &\necho $$ $! >> {tmp_path}/pids\nwait")
    found = collect("stacks", request(target.pid, py_spy=program, timeout_s=0.5))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "TIMEOUT"
    assert attempt["reason"].count("no answer within 0.5 s") == 2  # in blocking mode, and without a pause
    started = [int(pid) for line in (tmp_path / "pids").read_text().splitlines() for pid in line.split()]
    assert len(started) == 4
    target.wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in started))


def test_failing_blocking_mode_falls_back(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    program = fake(tmp_path, '[ "$5" ] && echo "[{}]" && exit; echo "Error: Failed to suspend process" >&2; exit 1')
    found = collect("stacks", request(target.pid, py_spy=program))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "PARTIAL"
    assert "py-spy failed: the process could not be paused" in attempt["reason"]
    assert found.heads[dump_of(attempt)]["source"].endswith("--nonblocking")


def test_target_that_our_reader_left_stopped_is_continued(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    program = fake(tmp_path, '[ "$5" ] && echo "[{}]" && exit; kill -STOP $pid; sleep 1000')
    found = collect("stacks", request(target.pid, py_spy=program, timeout_s=0.5))
    attempt = found.one(target.pid)
    assert "had left it stopped: continued" in attempt["reason"]
    assert "no answer within" in attempt["reason"]
    target.wait_for(lambda: target.state == "S")


def test_target_that_somebody_else_stopped_is_left_alone(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    program = fake(tmp_path, 'kill -STOP $pid; while ! grep -q "^State:.T" /proc/$pid/status; do :; done; echo "[{}]"')
    found = collect("stacks", request(target.pid, py_spy=program))
    attempt = found.one(target.pid)
    assert (attempt["outcome"], attempt["reason"]) == ("OK", "somebody stopped it while it was read")
    assert target.state == "T"


@pytest.mark.parametrize(
    ("body", "outcome", "words"),
    [
        ("echo garbage", "UNSUPPORTED", "something else than JSON"),
        ("echo '[]'", "EMPTY", "no Python thread"),
        ("exec head -c 20000000 /dev/zero | tr '\\0' '['", "PARTIAL", "cut"),
        ("exit 1", "UNSUPPORTED", "no message"),
        ("kill -9 $$", "UNSUPPORTED", "no message"),
    ],
)
def test_what_the_reader_prints_is_judged(collect: Collect, start: Start, tmp_path: Path, body: str, outcome: str, words: str) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, py_spy=fake(tmp_path, body)))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == outcome
    assert words in attempt["reason"]
    if outcome == "PARTIAL":
        name = dump_of(attempt)
        assert found.heads[name]["truncated"] is True
        assert len(found.content[name]) == 16 * 1024 * 1024


def test_told_to_stop_it_takes_its_readers_along(start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    program = fake(tmp_path, f"echo $$ > {fifo}\nexec sleep 1000")
    child = subprocess.Popen([sys.executable, "-I", "-m", "collectors", "stacks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    child.stdin.write(b'{"targets": [{"pid": %d}], "options": {"py_spy": "%s", "timeout_s": 60}}' % (target.pid, program.encode()))
    child.stdin.close()
    reader = int(fifo.read_text())
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    child.stdout.close()
    assert not Path(f"/proc/{reader}/exe").exists()
    assert target.state == "S"


@needs_root
def test_without_permission(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    program = _pyspy.find()
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:  # where another user may execute it
        os.chmod(folder, 0o755)
        found = collect("stacks", request(target.pid, py_spy=shutil.copy(program, folder)), as_nobody=True)
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "DENIED", attempt
    assert "CAP_SYS_PTRACE" in attempt["cure"]
    assert target.state == "S"


def test_without_the_program(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, samples=2, py_spy="/nonexistent"))
    assert [a["outcome"] for a in found.of(target.pid)] == ["SKIPPED", "SKIPPED"]
    assert "install py-spy" in found.attempts[0]["cure"]


def test_workers_and_the_core_come_first(collect: Collect) -> None:
    roles = {1: "launcher", 2: "api", 3: "core", 4: "worker", 5: "worker"}
    ranks = {4: 1, 5: 0}
    targets = [{"pid": pid, "role": role, "rank": ranks.get(pid)} for pid, role in roles.items()]
    found = collect("stacks", {"targets": targets, "samples": 1, "sysroot": "/nonexistent"})
    assert [a["pid"] for a in found.attempts] == [5, 4, 3, 2, 1]
    assert {(a["outcome"], a["reason"]) for a in found.attempts} == {("ABSENT", "no live processes in a recorded tree")}


def test_no_target_is_said(collect: Collect) -> None:
    (attempt,) = collect("stacks").attempts
    assert (attempt["outcome"], attempt["reason"]) == ("SKIPPED", "no target process was given")


NO_NAME = "Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n    0: {0}\n    1: {0}\n"


@pytest.mark.parametrize(
    ("stderr", "outcome", "words"),
    [
        (NO_NAME.format("No such file or directory (os error 2)"), "ABSENT", "gone"),
        (NO_NAME.format("Permission denied (os error 13)"), "DENIED", "not permitted"),
        (
            "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'\n",
            "DENIED",
            "not permitted",
        ),
        ("Error: Failed to find python version from target process\n", "ABSENT", "not a Python process"),
        ("Error: Unsupported version of Python: 3.19.0\n", "UNSUPPORTED", "older than the Python"),
        (
            "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n"
            "    1: unexpected waitpid result PtraceEvent(Pid(6715), SIGSTOP, 128) to 6715\n",
            "TIMEOUT",
            "could not be paused",
        ),
        (
            "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n    1: EPERM: Operation not permitted\n",
            "DENIED",
            "another tracer",
        ),
        ("Error: Failed to get stack traces\n\nCaused by:\n    0: No such process (os error 3)\n", "ABSENT", "went away"),
        ("Error: UNW_EBADREG: bad register number\n", "UNSUPPORTED", "namespaces"),
        ("Can't get native stack traces with the --nonblocking option.\n", "UNSUPPORTED", "blocking mode"),
        ("Error: No such file or directory (os error 2)\n", "UNSUPPORTED", "chroot"),
        ("Error: Operation not permitted (os error 1)\n", "DENIED", "not permitted"),
        ("\nError: the moon is full\nmore", "UNSUPPORTED", "py-spy failed: Error: the moon is full"),
        ("", "UNSUPPORTED", "no message"),
    ],
)
def test_failure_texts(stderr: str, outcome: str, words: str) -> None:
    got, reason, _ = _pyspy.classify(stderr)
    assert (got, words in reason) == (outcome, True), reason


def test_program_lies_next_to_the_interpreter() -> None:
    found = _pyspy.find()
    assert found is not None
    assert os.access(found, os.X_OK)
    assert _pyspy.find("/nonexistent") is None


def test_lines_of_a_child_are_joined() -> None:
    two = b'{"type":"evidence","name":"a","text":"x","more":true}\n{"type":"evidence","name":"a","b64":"eQ==","more":false}\n'
    assert parse_lines(two).content == {"a": b"xy"}
