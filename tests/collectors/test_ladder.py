"""The rungs beyond plain py-spy: kernel waits, native frames, pystack, containers; and that no target is left otherwise than found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, Started, needs_root, parse_lines

from collectors import _pystack
from forensics.analysis import stacks
from forensics.analysis.case import Case
from forensics.analysis.ingest import read_inputs
from forensics.capture import _procfs as procfs
from forensics.model import CpuSample, ThreadStack, ThreadWait

Collect = Callable[..., Collected]
Start = Callable[..., Started]

needs_pystack = pytest.mark.skipif(_pystack.find() is None, reason="pystack is not installed: pip install pystack")
needs_syscall = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="a kernel without /proc/PID/syscall")

# one thread in each kind of wait, and one that never runs Python
WAITING = """
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
lock = threading.Lock(); lock.acquire()
here = threading.Semaphore(0)
def blocked():
    here.release(); lock.acquire()
def in_c():
    here.release(); libc.usleep(10**9)
def asleep():
    here.release(); time.sleep(10**6)
for each in (blocked, in_c, asleep):
    threading.Thread(target=each, name=each.__name__, daemon=True).start()
for _ in range(3): here.acquire()
native = ctypes.c_ulong()
assert libc.pthread_create(ctypes.byref(native), None, ctypes.cast(libc.pause, ctypes.c_void_p), None) == 0
print("ready", flush=True)
sys.stdin.read()
"""
DEEP = """
import sys, threading
sys.setrecursionlimit(100_000); threading.stack_size(512 * 1024 * 1024)
def deep(n):
    if n: return deep(n - 1)
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=deep, args=(10_000,), name="runaway", daemon=True).start()
sys.stdin.read()
"""
NAMED = r"""
import ctypes, sys, threading
here = threading.Semaphore(0)
def wait():
    ctypes.CDLL(None).prctl(15, b"k\n) R \x1b[31m\xff", 0, 0, 0)
    here.release()
    threading.Event().wait()
threading.Thread(target=wait, name="evil\n\x1b[31mred\u202e</script>" + "x" * 1000, daemon=True).start()
here.acquire()
print("ready", flush=True)
sys.stdin.read()
"""
# posix_spawn waits like vfork, uninterruptibly, for a child that opens a FIFO which nobody writes; told to by its stdin
SLEEPS_WHEN_TOLD = """
import os, sys, threading
def vfork():
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
print("ready", flush=True)
open(sys.argv[2]).read()
threading.Thread(target=vfork, daemon=True).start()
sys.stdin.read()
"""
# in the place of pystack: sends the target to sleep in the kernel, attaches to it as pystack does, and hangs
ATTACHES_AND_HANGS = """#!{python}
import ctypes, os, sys, time
pid = int(sys.argv[-1])
open({fifo!r}, "w").close()
def in_d():
    for tid in os.listdir(f"/proc/{{pid}}/task"):
        if ") D " in open(f"/proc/{{pid}}/task/{{tid}}/stat").read():
            return int(tid)
while not (tid := in_d()): pass
assert ctypes.CDLL(None, use_errno=True).ptrace(16, tid, 0, 0) == 0  # PTRACE_ATTACH
open({mark!r}, "w").close()
time.sleep(1000)
"""


def request(*pids: int, samples: int = 1, **options: Any) -> dict[str, Any]:
    return {"targets": [{"pid": pid} for pid in pids], "samples": samples, "interval_s": 0.05, "options": options}


def program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def target_of(found: Collected, pid: int, what: str = "") -> dict[str, Any]:
    (attempt,) = [a for a in found.attempts if a["target"] == f"{what}pid {pid}"]
    return attempt


def native_of(found: Collected, pid: int) -> dict[str, Any]:
    return target_of(found, pid, "native stacks of ")


def states(pid: int) -> set[str]:
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def status(pid: int, name: str) -> set[str]:
    lines = [line for path in Path(f"/proc/{pid}/task").glob("*/status") for line in path.read_text().splitlines()]
    return {line.split()[1] for line in lines if line.startswith(name + ":")}


def as_found(target: Started, state: str = "S") -> None:
    """Neither stopped, nor about to be, nor traced."""
    target.wait_for(lambda: states(target.pid) == {state})
    assert status(target.pid, "TracerPid") == {"0"}
    assert all(int(mask, 16) >> (signal.SIGSTOP - 1) & 1 == 0 for mask in status(target.pid, "SigPnd"))


def analysed(tmp_path: Path, *pids: int, flags: tuple[str, ...] = ()) -> Case:
    """The same through the command line, redacted and written, and read again."""
    named = [word for pid in pids for word in ("--pid", str(pid))]
    command = [sys.executable, "-m", "forensics", "collect", "stacks", *named, "--out", str(tmp_path / "out"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 3), done.stderr
    case = read_inputs([done.stdout.strip().splitlines()[-1]])
    assert not case.unread
    return case


# ---- what the kernel says


@needs_syscall
@needs_root
def test_the_kernels_word_on_every_thread_is_of_the_moment_of_its_stack(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, samples=3))
    futexes = []
    for sample in (1, 2, 3):
        attempt = found.one(target.pid, sample)
        waits, dump = attempt["evidence"]
        assert (waits, dump) == (f"stacks/wait-pid-{target.pid}.{sample}.json", f"stacks/pid-{target.pid}.{sample}.json")
        assert attempt["started_ns"] <= found.heads[waits]["at_ns"] <= found.heads[dump]["at_ns"] <= attempt["ended_ns"]
        files = found.json(waits)["files"]
        tids = os.listdir(f"/proc/{target.pid}/task")
        assert {f"/proc/{target.pid}/task/{tid}/{name}" for tid in tids for name in ("stat", "wchan", "syscall")} <= set(files)
        assert not found.json(waits)["errors"] or all(path.endswith("/stack") for path in found.json(waits)["errors"])
        (tid,) = [t["os_thread_id"] for t in found.json(dump) if t["thread_name"] == "blocked"]
        assert files[f"/proc/{target.pid}/task/{tid}/syscall"] == Path(f"/proc/{target.pid}/task/{tid}/syscall").read_text()
        futexes.append(files[f"/proc/{target.pid}/task/{tid}/syscall"].split()[1])
    assert len(set(futexes)) == 1 and int(futexes[0], 16) > 0


@needs_syscall
@needs_root
def test_waits_are_read_as_locks_sleeps_and_reads(start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    case = analysed(tmp_path, target.pid, flags=("--samples", "2", "--interval", "1.2"))
    views = {view.name: view for view in stacks.threads(case.of(ThreadStack), ())[case.nodes[0], target.pid]}
    waits = {(wait.tid, wait.sample): wait for wait in case.of(ThreadWait)}
    assert len(waits) == 2 * 5
    blocked = [waits[views["blocked"].tid, sample] for sample in (1, 2)]
    assert {w.state for w in blocked} == {"S"} and len({w.futex for w in blocked}) == 1 and blocked[0].futex
    assert waits[views["asleep"].tid, 1].futex is None and waits[views["asleep"].tid, 1].syscall
    assert waits[views["MainThread"].tid, 1].futex is None
    if blocked[0].kernel_stack:
        assert any("futex" in name for name in blocked[0].kernel_stack)
    assert {stacks.motion(view, case.of(CpuSample)) for view in views.values()} == {"stuck"}


@needs_root
def test_without_permission_the_waits_that_anybody_may_read_are_there(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    with tempfile.TemporaryDirectory() as folder:  # where another user may execute it
        os.chmod(folder, 0o755)
        copy = shutil.copy(Path(sys.executable).parent / "py-spy", folder)
        found = collect("stacks", request(target.pid, py_spy=copy, pystack="/nonexistent"), as_nobody=True)
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "DENIED" and "kernel waits: not permitted" in attempt["reason"] and attempt["cure"]
    photo = found.json(f"stacks/wait-pid-{target.pid}.1.json")
    assert len([path for path in photo["files"] if path.endswith("/stat")]) == 5
    assert len([path for path in photo["errors"] if path.endswith("/syscall")]) == 1, "what one thread refuses, all refuse"


def test_without_any_reader_the_kernels_word_is_what_is_left(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, py_spy="/nonexistent", pystack="/nonexistent"))
    attempt = found.one(target.pid)
    assert (attempt["outcome"], attempt["evidence"]) == ("SKIPPED", [f"stacks/wait-pid-{target.pid}.1.json"])
    assert "install py-spy" in attempt["cure"]


@needs_root
def test_names_that_a_target_chose_stay_words(start: Start, tmp_path: Path) -> None:
    target = start(NAMED)
    case = analysed(tmp_path, target.pid, flags=("--native",))
    thread = next(s for s in case.of(ThreadStack) if s.name.startswith("evil"))
    assert thread.name.startswith("evil\\x0a\\x1b[31mred\\x202e</script>xxx") and len(thread.name) <= 200
    wait = next(w for w in case.of(ThreadWait) if w.tid == thread.tid)
    assert wait.thread == "k\\x0a) R \\x1b[31m\\xff" and wait.state == "S"
    assert len(case.of(ThreadStack)) == 2, "pystack tells threads by their kernel name: it must not make new ones"


# ---- native frames


@needs_pystack
@needs_root
def test_native_frames_and_the_thread_that_runs_no_python(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, native=True))
    attempt = target_of(found, target.pid)
    assert (attempt["outcome"], attempt["reason"]) == ("OK", "")
    dump = f"stacks/pid-{target.pid}.1.json"
    assert found.heads[dump]["source"] == f"py-spy dump --json --pid {target.pid} --native"
    (in_c,) = [t for t in found.json(dump) if t["thread_name"] == "in_c"]
    assert any(frame["module"] for frame in in_c["frames"])
    native = native_of(found, target.pid)
    assert (native["outcome"], native["evidence"]) == ("OK", [f"stacks/pystack-pid-{target.pid}.1.txt"])
    text = found.content[native["evidence"][0]].decode()
    assert text.count("(most recent call last):") == 5 and "in usleep" in text
    as_found(target)


@needs_pystack
@needs_root
def test_a_thread_that_both_readers_saw_is_one(start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    case = analysed(tmp_path, target.pid, flags=("--native", "--samples", "2", "--interval", "0.1"))
    found = case.of(ThreadStack)
    assert len(found) == 2 * 5
    views = stacks.threads(found, ())[case.nodes[0], target.pid]
    assert len(views) == 5 and all(len(view.samples) == 2 and view.moved is False for view in views)
    for view in views:
        python, mixed = view.last.frames, view.last.mixed
        assert [f for f in mixed if not f.native] == list(python) and len(mixed) > len(python)
        # a thread that has just been let go is ready to run until it sleeps again: on a busy machine the second look may find it so
        assert view.samples[0].active is False
    (in_c,) = [view for view in views if view.name == "in_c"]
    names = [frame.name for frame in in_c.last.shown]
    assert any("usleep" in name for name in names[:5]) and names.index("in_c") > names.index(next(n for n in names if "usleep" in n))
    assert in_c.last.frames[0].name == "in_c" and not in_c.last.frames[0].native
    (alone,) = [view for view in views if not view.last.frames]
    assert alone.last.reader == "pystack" and any("pause" in f.name for f in alone.last.mixed)


PYTHONS = {path.parent.parent.name: path for path in sorted((Path.home() / ".pyenv/versions").glob("3.*/bin/python"))}


@needs_root
@pytest.mark.parametrize("version", list(PYTHONS) or [pytest.param("", marks=pytest.mark.skip(reason="no other Python under ~/.pyenv"))])
def test_native_frames_change_nothing_of_the_python_frames(version: str, tmp_path: Path) -> None:
    """Samples with and without native frames must compare, whatever the Python."""
    target = subprocess.Popen([str(PYTHONS[version]), "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert target.stdout and target.stdout.readline() == b"ready\n"
        # by name: on a machine too busy to pause the process in time, the reader does not know an old Python's thread ids
        plain = {s.name: s for s in analysed(tmp_path / "plain", target.pid).of(ThreadStack)}
        native = {s.name: s for s in analysed(tmp_path / "native", target.pid, flags=("--native",)).of(ThreadStack)}
        assert len(plain) == 4 and set(plain) <= set(native)
        for name, before in plain.items():
            assert native[name].path == before.path
            assert any(frame.native for frame in native[name].mixed)
    finally:
        target.kill()
        target.wait()
        for pipe in (target.stdin, target.stdout):
            assert pipe
            pipe.close()


@needs_pystack
@needs_root
def test_a_stopped_process_is_read_with_native_frames_and_stays_stopped(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    target.stop()
    found = collect("stacks", request(target.pid, native=True))
    attempt = target_of(found, target.pid)
    assert (attempt["outcome"], attempt["reason"]) == ("OK", "the process is stopped")
    assert found.heads[f"stacks/pid-{target.pid}.1.json"]["source"].endswith("--nonblocking")
    native = native_of(found, target.pid)
    assert (native["outcome"], native["reason"]) == ("OK", "the process is stopped")
    assert b"in usleep" in found.content[native["evidence"][0]]
    target.wait_for(lambda: states(target.pid) == {"T"})
    assert status(target.pid, "TracerPid") == {"0"}
    os.kill(target.pid, signal.SIGCONT)  # whoever stopped it can let it go, as before
    as_found(target)


def sleeper(start: Start, tmp_path: Path) -> tuple[Started, Path, Path]:
    """(target, FIFO to write for sending a thread to sleep in the kernel, FIFO to open for waking it)"""
    told, wakes = tmp_path / "told", tmp_path / "wakes"
    os.mkfifo(told)
    os.mkfifo(wakes)
    return start(SLEEPS_WHEN_TOLD, wakes, told), told, wakes


@needs_root
def test_nothing_that_attaches_is_started_while_a_thread_sleeps_in_the_kernel(collect: Collect, start: Start, tmp_path: Path) -> None:
    target, told, wakes = sleeper(start, tmp_path)
    told.open("w").close()
    target.wait_for(lambda: "D" in states(target.pid))
    try:
        mark = tmp_path / "mark"
        found = collect("stacks", request(target.pid, native=True, pystack=program(tmp_path, "pystack", f"#!/bin/sh\ntouch {mark}\n")))
        assert target_of(found, target.pid)["outcome"] == "PARTIAL"
        native = native_of(found, target.pid)
        assert native["outcome"] == "SKIPPED" and "uninterruptible sleep" in native["reason"]
        assert not mark.exists() and "D" in states(target.pid)
    finally:
        os.close(os.open(wakes, os.O_RDWR))
    as_found(target)


@needs_root
def test_a_stop_that_a_killed_reader_left_underway_is_taken_back(collect: Collect, start: Start, tmp_path: Path) -> None:
    target, told, wakes = sleeper(start, tmp_path)
    mark = tmp_path / "mark"
    text = ATTACHES_AND_HANGS.format(python=sys.executable, fifo=str(told), mark=str(mark))
    try:
        found = collect("stacks", request(target.pid, native=True, pystack=program(tmp_path, "pystack", text), pystack_timeout_s=3))
        assert mark.exists(), "the reader did not come to attach"
        native = native_of(found, target.pid)
        assert native["outcome"] == "TIMEOUT"
        assert "our reader, killed, had left a stop underway: continued" in native["reason"]
    finally:
        os.close(os.open(wakes, os.O_RDWR))
    target.wait_for(lambda: "D" not in states(target.pid))
    as_found(target)


@needs_root
def test_the_capture_sees_a_stop_underway_when_the_collector_was_killed_too(start: Start, tmp_path: Path) -> None:
    target, told, wakes = sleeper(start, tmp_path)
    mark = tmp_path / "mark"
    assert not procfs.stop_pending(target.pid)
    text = ATTACHES_AND_HANGS.format(python=sys.executable, fifo=str(told), mark=str(mark))
    reader = subprocess.Popen([program(tmp_path, "pystack", text), str(target.pid)])
    try:
        target.wait_for(mark.exists)
        reader.kill()
        reader.wait()
        assert procfs.stop_pending(target.pid)
        os.kill(target.pid, signal.SIGCONT)  # what the capture does then
        assert not procfs.stop_pending(target.pid)
    finally:
        reader.kill()
        reader.wait()
        os.close(os.open(wakes, os.O_RDWR))
    target.wait_for(lambda: "D" not in states(target.pid))
    as_found(target)


@needs_root
def test_a_reader_killed_in_the_middle_leaves_the_target_running(collect: Collect, start: Start) -> None:
    if _pystack.find() is None:
        pytest.skip("pystack is not installed: pip install pystack")
    target = start(WAITING)
    for timeout_s in (0.02, 0.08, 0.14, 0.2):  # before, while and after it attaches, on most machines
        found = collect("stacks", request(target.pid, native=True, native_timeout_s=0.02, pystack_timeout_s=timeout_s))
        assert native_of(found, target.pid)["outcome"] in ("TIMEOUT", "PARTIAL", "OK")
        as_found(target)


def test_what_is_gone_is_not_asked_for_twice(collect: Collect, start: Start) -> None:
    alive = start(WAITING)
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    targets = [{"pid": zombie.pid}, {"pid": 2**22 + 1}, {"pid": alive.pid, "start_ticks": alive.start_ticks + 1}]
    found = collect("stacks", {"targets": targets, "samples": 1, "options": {"native": True, "pystack": "/bin/true"}})
    zombie.wait()
    assert [a["target"] for a in found.attempts] == [f"pid {t['pid']}" for t in targets]
    assert {a["outcome"] for a in found.attempts} == {"ABSENT"} and not found.content


def test_target_that_exits_under_pystack(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    text = '#!/bin/sh\nfor pid; do :; done\nkill -9 $pid; while ! grep -q "^State:.Z" /proc/$pid/status; do :; done\necho "whatever" >&2; exit 1\n'
    found = collect("stacks", request(target.pid, native=True, pystack=program(tmp_path, "pystack", text)))
    native = native_of(found, target.pid)
    assert (native["outcome"], native["evidence"]) == ("ABSENT", [])


def test_without_pystack_one_attempt_says_so(collect: Collect, start: Start) -> None:
    one, two = start(WAITING), start(WAITING)
    found = collect("stacks", request(one.pid, two.pid, samples=2, native=True, pystack="/nonexistent"))
    (missing,) = [a for a in found.attempts if a["pid"] is None]
    assert (missing["target"], missing["outcome"]) == ("native stacks", "SKIPPED")
    assert "pip install" in missing["cure"]
    assert {a["outcome"] for a in found.attempts if a["pid"]} == {"OK"} and len(found.attempts) == 5


def test_unless_asked_nothing_holds_a_target_longer_than_py_spy(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, pystack=program(tmp_path, "pystack", "#!/bin/sh\nexit 1\n")))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "OK" and found.heads[attempt["evidence"][1]]["source"] == f"py-spy dump --json --pid {target.pid}"


def test_native_frames_of_those_that_stand_still_only(collect: Collect, start: Start, tmp_path: Path) -> None:
    still, well = start(WAITING), start(WAITING)
    found = collect("stacks", request(still.pid, well.pid, native=[still.pid], pystack="/bin/true"))
    assert found.heads[f"stacks/pid-{still.pid}.1.json"]["source"].endswith("--native")
    assert found.heads[f"stacks/pid-{well.pid}.1.json"]["source"] == f"py-spy dump --json --pid {well.pid}"
    assert [a["target"] for a in found.attempts if a["target"].startswith("native")] == [f"native stacks of pid {still.pid}"]


def test_native_views_end_with_their_time(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("stacks", request(target.pid, native=True, native_budget_s=0, pystack="/bin/true"))
    assert found.heads[f"stacks/pid-{target.pid}.1.json"]["source"] == f"py-spy dump --json --pid {target.pid}"
    assert native_of(found, target.pid)["reason"].startswith("the time for native stacks was spent")


NATIVE_FAILS = """#!/bin/sh
case "$*" in *--native) echo "{text}" >&2; exit 1;; *--nonblocking) echo '[{{}}]';; *) {plain};; esac
"""


@pytest.mark.parametrize(
    ("text", "plain", "last", "outcome"),
    [
        ("Error: UNW_EBADREG: bad register number", "echo '[{}]'", "", "OK"),
        ("Error: Failed to merge native and python frames", "echo '[{}]'", "", "OK"),
        # what cannot be paused cannot be paused without native frames either
        ("Error: Failed to suspend process", "echo wrong; exit 1", "--nonblocking", "PARTIAL"),
        ("Error: Failed to find python version from target process", "echo wrong; exit 1", None, "ABSENT"),
    ],
)
def test_from_native_to_what_can_cure_it(
    collect: Collect, start: Start, tmp_path: Path, text: str, plain: str, last: str | None, outcome: str
) -> None:
    target = start(WAITING)
    py_spy = program(tmp_path, "py-spy", NATIVE_FAILS.format(text=text, plain=plain))
    found = collect("stacks", request(target.pid, native=True, py_spy=py_spy, pystack="/nonexistent"))
    attempt = target_of(found, target.pid)
    assert attempt["outcome"] == outcome
    if last is not None:
        assert "py-spy --native failed: " in attempt["reason"] and "wrong" not in attempt["reason"]
        assert found.heads[attempt["evidence"][1]]["source"] == f"py-spy dump --json --pid {target.pid} {last}".strip()


@needs_pystack
def test_a_stack_that_is_too_deep_for_py_spy(collect: Collect, start: Start, tmp_path: Path) -> None:
    target = start(DEEP)
    found = collect("stacks", request(target.pid, pystack="/nonexistent"))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "UNSUPPORTED" and "more than 4096 frames" in attempt["reason"] and "pystack" in attempt["cure"]
    found = collect("stacks", request(target.pid))
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "PARTIAL" and "py-spy failed: " in attempt["reason"]
    assert found.content[f"stacks/pystack-pid-{target.pid}.1.txt"].count(b", in deep\n") == 10_001
    assert states(target.pid) == {"S"}
    case = analysed(tmp_path, target.pid)
    (runaway,) = [s for s in case.of(ThreadStack) if any(f.name == "deep" for f in s.frames)]
    assert len(runaway.frames) == 2049 and runaway.frames[0].name == "wait" and runaway.frames[-1].name == "_bootstrap"
    assert sum(f.name.startswith("… ") for f in runaway.frames) == 1
    assert stacks.classify(runaway, ())[0] == "lock", "what pystack leaves open, the kernel says: it is not on a processor"


# ---- containers


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Callable[..., tuple[int, subprocess.Popen[bytes]]]]:
    """`contained(*flags)`: WAITING in a pid namespace of its own. Returns its pid, for us."""
    made: list[subprocess.Popen[bytes]] = []

    def run(*flags: str) -> tuple[int, subprocess.Popen[bytes]]:
        if shutil.which("unshare") is None:
            pytest.skip("unshare is not installed (util-linux)")
        command = ["unshare", "--pid", "--fork", "--kill-child", *flags, sys.executable, "-c", WAITING]
        made.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert made[-1].stdout and made[-1].stderr
        if made[-1].stdout.readline() != b"ready\n":
            pytest.skip(f"no pid namespace can be made here: {made[-1].stderr.read().decode().strip()}")
        (child,) = Path(f"/proc/{made[-1].pid}/task/{made[-1].pid}/children").read_text().split()
        return int(child), made[-1]

    yield run
    for process in made:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def outer_ids(pid: int) -> dict[int, int]:
    """{inner thread id: ours}"""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        (line,) = [line for line in path.read_text().splitlines() if line.startswith("NSpid:")]
        found[int(line.split()[-1])] = int(path.parent.name)
    return found


@needs_root
def test_a_container_is_read_from_inside_and_its_threads_get_our_ids(collect: Collect, contained: Any, tmp_path: Path) -> None:
    if shutil.which("nsenter") is None:
        pytest.skip("nsenter is not installed (util-linux)")
    pid, _ = contained("--mount-proc")
    found = collect("stacks", request(pid, native=True, pystack="/nonexistent"))
    attempt = target_of(found, pid)
    assert (attempt["outcome"], attempt["reason"]) == ("OK", "")
    dump = f"stacks/pid-{pid}.1.json"
    assert found.heads[dump]["source"] == f"nsenter -t {pid} -m -p -r -w -- py-spy dump --json --pid 1 --native".replace(
        "nsenter", "nsenter"
    )
    threads = {t["thread_name"]: t for t in found.json(dump)}
    assert threads["MainThread"]["os_thread_id"] == 1 and {t["active"] for t in threads.values()} == {False}
    case = analysed(tmp_path, pid, flags=("--native",))
    ours = outer_ids(pid)
    assert {s.tid for s in case.of(ThreadStack)} <= set(ours.values()) and len(case.of(ThreadStack)) == 4
    assert {w.inner: w.tid for w in case.of(ThreadWait)} == ours
    assert {s.active for s in case.of(ThreadStack)} == {False}
    assert states(pid) == {"S"}


@needs_root
def test_a_container_that_cannot_be_entered_is_read_from_outside(contained: Any, tmp_path: Path) -> None:
    pid, _ = contained("--mount-proc")
    command = [sys.executable, "-I", "-m", "collectors", "stacks"]
    raw = json.dumps(request(pid)).encode()
    done = subprocess.run(command, input=raw, capture_output=True, cwd="/", env={"PATH": ""}, timeout=60, check=False)
    attempt = parse_lines(done.stdout).one(pid)
    assert "nsenter is not installed: thread ids and activity are those of its own pid namespace" in attempt["reason"]
    assert attempt["outcome"] == "OK"


@needs_root
def test_the_wrong_process_is_never_read_where_proc_is_not_that_of_the_namespace(collect: Collect, contained: Any, tmp_path: Path) -> None:
    shared, _ = contained()
    attempt = target_of(collect("stacks", request(shared)), shared)
    assert "it shares our view of /proc" in attempt["reason"] and attempt["outcome"] == "OK"
    stale, _ = contained("--mount")  # a mount namespace of its own, with our /proc in it: there pid 1 is somebody else
    attempt = target_of(collect("stacks", request(stale)), stale)
    assert "/proc inside is not that of its pid namespace" in attempt["reason"] and attempt["outcome"] == "OK"
    case = analysed(tmp_path, stale)
    assert {s.tid for s in case.of(ThreadStack)} <= set(outer_ids(stale).values())
    assert {s.active for s in case.of(ThreadStack)} == {False}, "seen from outside, py-spy calls every thread active"


@needs_root
def test_pystack_is_not_tried_across_namespaces(collect: Collect, contained: Any) -> None:
    pid, _ = contained("--mount-proc")
    native = native_of(collect("stacks", request(pid, native=True, pystack="/bin/true")), pid)
    assert (native["outcome"], bool(native["cure"])) == ("UNSUPPORTED", True)


# ---- what pystack's own words mean


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "outcome", "words"),
    [
        (0, b"Traceback for thread 1 (x) [] (most recent call last):\n", "", "OK", ""),
        (0, b"", "", "EMPTY", "no thread"),
        (
            1,
            b"Traceback for thread 1 [] (most recent call last):\n",
            "Traceback (most\n  x\nUnicodeDecodeError: y\n",
            "PARTIAL",
            "UnicodeDecodeError: y",
        ),
        (-11, b"", "", "UNSUPPORTED", "signal 11"),
        (1, b"", "Engine error: Operation not permitted\n", "DENIED", "not permitted"),
        (1, b"", "Engine error: Could not read the contents of /proc/5/task\n", "ABSENT", "gone"),
        (2, b"", "Engine error: Could not determine python version from /usr/bin/sleep\n", "ABSENT", "not a Python process"),
        (1, b"", "Engine error: Unknown error happened: unwinding failed with no error reported\n", "UNSUPPORTED", "unwound"),
        (1, b"", "\nEngine error: the moon\n", "UNSUPPORTED", "the moon"),
    ],
)
def test_pystacks_failures(rc: int, stdout: bytes, stderr: str, outcome: str, words: str) -> None:
    got, reason, _ = _pystack.judge(rc, stdout, stderr)
    assert (got, words in reason) == (outcome, True), reason
