"""`forensics capture` against nodes, targets, disks and collectors that misbehave: the real command, real processes.

After every capture: no target stopped or traced that was not before, and no process of ours left.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.bundle import open_source, verify_bundle
from forensics.capture.session import CaptureOptions, capture
from forensics.model import Attempt, Outcome

PATIENCE_S = 60.0
MEMORY_BYTES = 2 << 30
BOUND = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])"

RANK = """
import os, signal, sys, time
behaviour, ready = sys.argv[1], int(sys.argv[2])
def hello():
    os.write(ready, b".")
    os.close(ready)
def spin(until=None):
    while True:
        time.sleep(0.05)
if behaviour == "stopped":
    hello()
    os.kill(os.getpid(), signal.SIGSTOP)
elif behaviour == "zombie":
    hello()
    sys.exit(3)
elif behaviour == "flood":
    os.truncate(1, 0)
    block = (b"INFO the same line again and again \\x1b[31m \\xff\\xfe" + b"=" * 200 + b"\\n") * 256
    os.write(1, block * 100)
    hello()
    while True:
        if os.fstat(1).st_size > 64 << 20:  # the disk is somebody else's too
            os.truncate(1, 0)
        os.write(1, block)
        time.sleep(0.001)
else:
    hello()
spin()
"""

FRONT = """
import os, socket, subprocess, sys, threading, time
kind, ready, behaviours = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
server = socket.create_server(("127.0.0.1", 0))
rank = os.path.join(os.path.dirname(sys.argv[0]), "rank.py")
children = []  # kept: subprocess collects a zombie of which nothing is known any more
for number, behaviour in enumerate(behaviours):
    read, write = os.pipe()
    title = ["--rank", str(number), "--world-size", str(len(behaviours)), "\\x1b[2Jevil\\x9b"]
    children.append(subprocess.Popen([sys.executable, rank, behaviour, str(write), *title], pass_fds=[write]))
    os.close(write)
    os.read(read, 1)
    os.close(read)
kept = []
def serve(link):
    path = link.recv(65536).split(b" ")[1:2]
    if kind == "silent":
        kept.append(link)
        return
    try:
        if kind == "garbage":
            link.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n" + bytes(range(256)) * 300 + b"\\nsteps_total NaN\\n{{{{ \\xff 9e999\\n")
        elif kind == "gigabyte":
            link.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1073741824\\r\\n\\r\\n")
            for _ in range(1024):
                link.sendall(b"x" * (1 << 20))
        elif kind == "good":
            link.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\nengine_steps_total %d\\n" % (time.monotonic() * 1000))
    except OSError:
        pass
    link.close()
print("INFO the front end is up", flush=True)
os.write(ready, (" ".join(map(str, [os.getpid(), *(child.pid for child in children)])) + "\\n").encode())
os.close(ready)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


def field(pid: int, number: int) -> str:
    """A field of /proc/PID/stat, counted from the state; "" when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[number]
    except OSError:
        return ""


def tracer(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return "0"
    return next((line.split()[1] for line in lines if line.startswith("TracerPid")), "0")


def eventually(condition: Callable[[], Any], what: str) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, f"never happened: {what}"
        time.sleep(0.01)


class Engine:
    """A front end with a metrics endpoint of one kind, and ranks with a behaviour each. Nobody's child here, once started."""

    def __init__(self, folder: Path, kind: str, *behaviours: str) -> None:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "front.py").write_text(FRONT)
        (folder / "rank.py").write_text(RANK)
        self.log = folder / "engine.log"
        read, write = os.pipe()
        with self.log.open("ab") as out:
            command = [sys.executable, str(folder / "front.py"), kind, str(write), ",".join(behaviours)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[write], start_new_session=True
            )
        os.close(write)
        with os.fdopen(read) as answer:
            told = answer.readline().split()
        self.pids = [int(word) for word in told] or [self.process.pid]
        assert told, self.log.read_text(errors="replace")
        self.root, self.ranks = self.pids[0], self.pids[1:]
        self.behaviours = behaviours

    def settle(self) -> None:
        """Wait until those that stop or exit by themselves have done so."""
        for pid, behaviour in zip(self.ranks, self.behaviours, strict=True):
            if behaviour in ("stopped", "zombie"):
                eventually(lambda pid=pid, behaviour=behaviour: field(pid, 0) == {"stopped": "T", "zombie": "Z"}[behaviour], behaviour)

    def close(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def start(kind: str = "good", *behaviours: str) -> Engine:
        started.append(Engine(tmp_path / f"engine-{len(started)}", kind, *(behaviours or ("loop", "loop"))))
        started[-1].settle()
        return started[-1]

    yield start
    for one in started:
        one.close()


class Run:
    """A running `forensics capture`, whose words on stderr can be waited for."""

    def __init__(self, out: Path, *arguments: object, prefix: tuple[str, ...] = (), memory: int = MEMORY_BYTES) -> None:
        self.out, self.err = "", ""
        command = [*prefix, sys.executable, "-c", BOUND, str(memory), sys.executable, "-m", "forensics", "capture", "--out", str(out)]
        command += map(str, arguments)
        self.marker = f"run-{os.getpid()}-{id(self)}"
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env={**os.environ, "BAD_INPUT_RUN": self.marker}, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout and self.process.stderr
        self._stdout = self.process.stdout
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.append(line)

    def said(self, words: str) -> None:
        """Wait until it has said these words on stderr."""
        eventually(lambda: any(words in line for line in list(self._lines)) or self.process.poll() is not None, words)
        assert any(words in line for line in list(self._lines)), "".join(self._lines)

    def end(self) -> Run:
        self.out = self._stdout.read()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.err = "".join(self._lines)
        self._stdout.close()
        assert "Traceback" not in self.err, self.err
        assert all(c == "\n" or c.isprintable() for c in self.err), "what it shows cannot act on the terminal"
        self.nobody_left()
        return self

    def nobody_left(self) -> None:
        """Every process that inherited our mark is gone."""
        mark = f"BAD_INPUT_RUN={self.marker}".encode()

        def left() -> list[str]:
            found = []
            for name in os.listdir("/proc"):
                with contextlib.suppress(OSError):
                    if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes() and field(int(name), 0) not in ("Z", ""):
                        found.append(name)
            return found

        eventually(lambda: not left(), f"processes of the capture ended: {left()}")

    @property
    def code(self) -> int:
        return self.process.returncode

    @property
    def path(self) -> Path:
        return Path(self.out.splitlines()[-1])

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        with open_source(self.path) as source:
            return source.attempts

    def of(self, collector: str, pid: int, sample: int | None = None) -> list[Attempt]:
        return [
            a for a in self.attempts
            if a.collector == collector and a.origin and a.origin.pid == pid and sample in (None, a.sample)
        ]  # fmt: skip


def undisturbed(*pids: int, stopped: tuple[int, ...] = ()) -> None:
    """Nobody is held by a tracer, and nobody stands still who ran before (or runs who stood)."""
    for pid in pids:
        eventually(lambda pid=pid: tracer(pid) == "0", f"pid {pid} is let go")
        if field(pid, 0) not in ("", "Z"):
            eventually(lambda pid=pid: (field(pid, 0) == "T") == (pid in stopped), f"pid {pid} is as it was, not {field(pid, 0)}")


def sealed(path: Path) -> None:
    result = verify_bundle(path)
    assert result.ok, result


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes a namespace, a file system or another user")


# nothing to photograph, nowhere to put it


@needs_root
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare, to be on a node where nothing runs")
def test_a_node_without_an_engine(tmp_path: Path) -> None:
    done = Run(tmp_path / "out", prefix=("unshare", "--pid", "--fork", "--mount-proc")).end()
    assert done.code == 4 and done.out == ""
    for words in ("no engine found", "vllm serve", "torchrun", "looked for", "cure:", "--pid", "--log"):
        assert words in done.err
    assert not list((tmp_path / "out").iterdir())


def test_output_that_cannot_be_written_is_refused_before_anything_is_done(engine: Callable[..., Engine], tmp_path: Path) -> None:
    one = engine()
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", "/proc/nowhere", "/dev/null/x", tmp_path / ("x" * 300)):
        done = Run(Path(out), "--pid", one.root).end()
        assert done.code == 1 and done.out == "" and "cure:" in done.err and "--out" in done.err
        assert "stacks" not in done.err and "processes" not in done.err, "nothing was begun"
    undisturbed(*one.pids)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """`small_disk(MIB)`: a file system of this size."""
    made: list[Path] = []

    def make(mib: int) -> Path:
        place = tmp_path / f"disk-{mib}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        made.append(place)
        return place

    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    yield make
    for place in made:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_without_room_is_refused_at_once(engine: Callable[..., Engine], small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(1)
    done = Run(disk / "below", "--pid", engine().root).end()
    assert done.code == 1 and "are free" in done.err and "cure:" in done.err and done.out == ""


def test_a_disk_that_fills_up_leaves_what_was_written(engine: Callable[..., Engine], small_disk: Callable[[int], Path]) -> None:
    one, disk = engine("good", "loop", "stopped"), small_disk(12)
    run = Run(disk, "--pid", one.root, "--profile", "minimal", "--window", 0, "--keep")
    # the first evidence lies on the disk; now somebody else takes the rest of it, and whatever gets free again
    eventually(lambda: any(path.stat().st_size for path in disk.glob("*/discovery/processes.json")), "a bundle has begun")
    with (disk / "hog").open("wb", buffering=0) as hog:
        while run.process.poll() is None:
            try:
                hog.write(bytes(4096))
            except OSError:
                time.sleep(0.005)
    run.end()
    assert run.code == 3 and "No space left" in run.err and "incomplete:" in run.err, run.err
    assert run.path.is_dir(), "it cannot be packed: the directory is the bundle"
    with open_source(run.path) as source:
        assert any(item.name == "discovery/processes.json" and item.size for item in source.items())
        assert source.attempts
    shown = subprocess.run(
        [sys.executable, "-m", "forensics", "show", str(run.path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode in (0, 3) and "discovery/processes.json" in shown.stdout and "Traceback" not in shown.stderr
    undisturbed(*one.pids, stopped=(one.ranks[1],))


# targets


def test_targets_in_every_bad_state_beside_metrics_of_every_bad_kind(engine: Callable[..., Engine], tmp_path: Path) -> None:
    """One capture of three engines: what one of them does must not cost the others their evidence."""
    garbage = engine("garbage", "loop", "stopped", "zombie", "flood", "dies")
    silent, gigabyte = engine("silent"), engine("gigabyte")
    loop, stopped, zombie, flood, dies = garbage.ranks
    run = Run(tmp_path / "out", *(word for one in (garbage, silent, gigabyte) for word in ("--pid", one.root)), "--profile", "minimal", "--analyze", memory=4 << 30)  # fmt: skip
    run.said("processes")  # the engines were found: between this and the second sample it goes
    os.kill(dies, signal.SIGKILL)
    run.end()
    assert run.code in (0, 3), run.err
    sealed(run.path)
    everybody = (*garbage.pids, *silent.pids, *gigabyte.pids)
    undisturbed(*everybody, stopped=(stopped,))

    for pid in (loop, stopped, *silent.pids, *gigabyte.pids):
        for sample in (1, 2):
            # PARTIAL: read without a pause, because a thread was in the kernel just then or the host too busy
            assert [a.outcome for a in run.of("stacks", pid, sample)] in ([Outcome.OK], [Outcome.PARTIAL]), run.of("stacks", pid, sample)
    assert "stopped" in run.of("stacks", stopped, 1)[0].reason
    for sample in (1, 2):
        (attempt,) = run.of("stacks", zombie, sample)
        assert attempt.outcome is Outcome.ABSENT and "zombie" in attempt.reason
    (last,) = run.of("stacks", dies, 2)
    assert last.outcome is Outcome.ABSENT and ("gone" in last.reason or "zombie" in last.reason), last
    assert not any(str(dies) in line or str(zombie) in line for line in run.err.partition("incomplete:")[2].splitlines()), (
        "gone is an observation"
    )

    asked = {one.root: [a for a in run.attempts if a.collector == "queues" and "/metrics" in a.target and a.origin and a.origin.pid == one.root] for one in (garbage, silent, gigabyte)}  # fmt: skip
    assert {a.outcome for a in asked[silent.root]} == {Outcome.TIMEOUT}
    assert {a.outcome for a in asked[gigabyte.root]} <= {Outcome.PARTIAL, Outcome.TIMEOUT} and asked[gigabyte.root]
    assert asked[garbage.root]

    with open_source(run.path) as source:
        records = [item.evidence for item in source.items() if item.evidence]
    flooded = [record for record in records if record.kind == "log" and record.source == str(garbage.log)]
    assert flooded and any(record.truncated for record in flooded), "a log of any size gives bounded slices"
    assert sum(record.size_bytes for record in records) < 64 << 20
    assert field(flood, 0) in ("S", "R", "D")


REUSE = """
import os, signal, sys, time
from pathlib import Path
from forensics.capture.session import CaptureOptions, Quiet, capture

def fork():
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(0.05)
    return pid

class Show(Quiet):
    def found(self, discovery):
        # between the discovery and the first look, the target goes and somebody else gets its number
        os.kill(target, signal.SIGKILL)
        os.waitpid(target, 0)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(target - 1))
        assert fork() == target

target = fork()
result = capture(CaptureOptions(pids=(target,), out=Path(sys.argv[1]), window_s=0.0, deadline_s=30.0, profile="minimal"), Show())
print(target, result.path)
print(Path(f"/proc/{target}/stat").read_text().rpartition(")")[2].split()[0])
os.kill(target, signal.SIGKILL)
"""


@needs_root
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare: a pid can only be had again in a namespace of its own")
def test_a_pid_that_is_somebody_else_by_now(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", REUSE, str(tmp_path)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if "ns_last_pid" in done.stderr and "Error" in done.stderr:
        pytest.skip("this kernel does not let a pid be chosen")
    assert done.returncode == 0, done.stderr
    first, state = done.stdout.splitlines()[-2:]
    assert state in ("S", "R"), "the stranger was left alone"
    pid, path = first.split(" ", 1)
    with open_source(path) as source:
        for collector in ("stacks", "process", "cpu", "queues"):
            mine = [a for a in source.attempts if a.collector == collector and a.origin and a.origin.pid == int(pid)]
            assert mine and {a.outcome for a in mine} == {Outcome.ABSENT}, mine
            assert all("another process" in a.reason for a in mine), mine
        assert not [item for item in source.items() if item.evidence and item.evidence.pid == int(pid)], "nothing of a stranger is kept"


@needs_root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_without_permission_it_says_so_and_goes_on(engine: Callable[..., Engine]) -> None:
    one = engine("good", "loop", "stopped")
    # our interpreter may lie in a home that is closed to others: searching folders is the one thing that it may do
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+dac_read_search",
              "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search")  # fmt: skip
    out = Path(tempfile.mkdtemp())
    os.chown(out, 65534, 65534)
    try:
        run = Run(out, "--pid", one.root, "--window", 0, prefix=prefix).end()
        assert run.code == 3, run.err
        assert "DENIED" in run.err and "SYS_PTRACE" in run.err and run.err.count("cure:") >= 1
        sealed(run.path)
        for pid in one.pids:
            for attempt in run.of("stacks", pid):
                assert attempt.outcome is Outcome.DENIED and "SYS_PTRACE" in attempt.cure, attempt
        went_on = {a.collector for a in run.attempts if not a.outcome.blind}
        assert went_on >= {"memory", "clock", "cpu", "thermal"}, [a for a in run.attempts if a.collector in ("memory", "clock")]
        assert any(line.strip().startswith("stacks pid") for line in run.err.partition("incomplete:")[2].splitlines())
        report = subprocess.run(
            [sys.executable, "-m", "forensics", "analyze", str(run.path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert report.returncode == 3 and "DENIED" in report.stdout
    finally:
        shutil.rmtree(out)
    undisturbed(*one.pids, stopped=(one.ranks[1],))


# collectors


BAD = {
    "stacks": "signal.signal(signal.SIGTERM, signal.SIG_IGN); attempt(); time.sleep(600)",
    "queues": "os.write(1, b'x' * (1 << 30))",
    "process": "block = b'{]' * 500 + b'\\n'\nwhile True: os.write(1, block * 1000)",
    "cpu": "block = json.dumps(dict(type='evidence', name='cpu/a', kind='log', text=('INFO the same again' + '=' * 200 + '\\n') * 2000, more=True)).encode() + b'\\n'\nwhile True: os.write(1, block)",
    "health": "os.kill(os.getpid(), signal.SIGSEGV)",
    "memory": "print('[' * 100000); print('{\"type\":' * 50000); print(json.dumps(dict(type='attempt', target=float('nan'), outcome='OK'))); attempt()",
    "clock": "resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); x = [bytes(1 << 24) for _ in range(1 << 20)]",
    "gpu": "os.kill(os.getpid(), signal.SIGSTOP)",
    "thermal": "say(type='evidence', name='../../../../tmp/escaped', kind='\\x1b[2J', text='\\ud800', sample=-1, at_ns=-5, pid=-7); attempt(target='\\x1b[2J\\x9b', reason='\\x1b]0;x\\x07')",
    "patches": "[say(type='evidence', name=n, kind='log', text='x') for n in ('', '/', '..', 'manifest.json', 'attempts.jsonl', 'a', 'a/b', 'a/b/c', 'A' * 5000, '\\0')]; attempt()",
    "kernel": "os.write(1, json.dumps(dict(type='attempt', target='node', outcome='NICE')).encode() + b'\\n')",
}  # fmt: skip
"""What each collector is replaced by. rpclogs stays as it is: it must not suffer from the others."""

SAY = """
import json, os, resource, signal, sys, time
def say(**record): print(json.dumps(record), flush=True)
def attempt(target="node", outcome="OK", **more): say(type="attempt", target=target, outcome=outcome, **more)
request = json.load(sys.stdin)
"""


def test_collectors_that_hang_crash_flood_and_lie_all_at_once(engine: Callable[..., Engine], tmp_path: Path) -> None:
    one = engine("good", "loop", "loop")
    children: list[str] = []

    def command(name: str) -> list[str]:
        children.append(name)
        mark = f"# bad-{os.getpid()}-{id(children)}\n"
        return [sys.executable, "-I", "-c", mark + SAY + BAD[name]] if name in BAD else [sys.executable, "-I", "-m", "collectors", name]

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = capture(CaptureOptions(pids=(one.root,), out=tmp_path / "out", deadline_s=10.0, window_s=0.0, command=command))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 600 << 10, f"{grown >> 10} MiB of what a collector said were held"
    sealed(result.path)
    told = {name: [a for a in result.attempts if a.collector == name] for name in (*BAD, "rpclogs")}
    assert all(told.values()), "every collector left a word"
    words = {
        "stacks": "within 10 s", "queues": "no records", "process": "no records", "cpu": ("bound", "within 10 s"), "health": "SIGSEGV", "memory": "no records",
        "clock": "MemoryError", "gpu": "", "kernel": "no records",
    }  # fmt: skip
    for name, word in words.items():
        last = told[name][-1]
        if last.outcome is Outcome.SKIPPED:  # a starved host: it never came to its turn, and says so
            assert "deadline" in last.reason
            continue
        assert any(one in last.reason for one in ((word,) if isinstance(word, str) else word)) and last.outcome in (
            Outcome.FAILED,
            Outcome.TIMEOUT,
            Outcome.PARTIAL,
        ), (name, last)
    assert any((not a.outcome.blind and a.evidence) or "deadline" in a.reason for a in told["rpclogs"]), (
        told["rpclogs"],
        "the good one was not disturbed",
    )
    with open_source(result.path) as source:
        names = [item.name for item in source.items()]
        assert len(names) == len(set(names)) and not [name for name in names if ".." in name.split("/") or name.startswith("/")]
        assert sum(item.size for item in source.items()) < 100 << 20
    assert not Path("/tmp/escaped").exists()
    assert any(line.startswith("stacks") for line in result.incomplete)
    mark = f"bad-{os.getpid()}-{id(children)}".encode()
    left = [name for name in os.listdir("/proc") if name.isdigit() and field(int(name), 0) not in ("", "Z") and mark in cmdline(name)]
    assert not left, "children of ours are still running"
    undisturbed(*one.pids)
    for command_name in ("show", "verify", "analyze"):
        done = subprocess.run(
            [sys.executable, "-m", "forensics", command_name, str(result.path)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60,
        )
        # a traceback of a collector is quoted, and quoted only
        assert done.returncode in (0, 3) and not done.stderr.startswith("Traceback") and "\nTraceback" not in done.stderr, done.stderr
        assert all(c == "\n" or c.isprintable() for c in done.stdout + done.stderr), command_name


def cmdline(name: str) -> bytes:
    try:
        return Path(f"/proc/{name}/cmdline").read_bytes()
    except OSError:
        return b""


# interruption


def test_interrupted_once_it_seals_what_there_is(engine: Callable[..., Engine], tmp_path: Path) -> None:
    one = engine("silent", "loop", "stopped")
    run = Run(tmp_path / "out", "--pid", one.root)
    eventually(lambda: list((tmp_path / "out").glob("*/discovery/processes.json")), "a bundle has begun")
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: to everybody in the foreground
    run.end()
    assert run.code == 3 and "interrupted by SIGINT" in run.err, run.err
    sealed(run.path)
    assert any("interrupted" in a.reason for a in run.attempts)
    undisturbed(*one.pids, stopped=(one.ranks[1],))


def test_interrupted_twice_it_goes_at_once_and_leaves_nobody_behind(engine: Callable[..., Engine], tmp_path: Path) -> None:
    one = engine("silent", "loop", "stopped")
    run = Run(tmp_path / "out", "--pid", one.root)
    eventually(lambda: list((tmp_path / "out").glob("*/discovery/processes.json")), "a bundle has begun")
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.02)  # two signals at the same instant are one
    run.process.send_signal(signal.SIGINT)
    run.end()
    assert run.code in (3, 130), run.err
    (folder,) = [path for path in (tmp_path / "out").iterdir() if path.is_dir()] or [run.path]
    shown = subprocess.run(
        [sys.executable, "-m", "forensics", "show", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode in (0, 3) and "discovery/processes.json" in shown.stdout
    undisturbed(*one.pids, stopped=(one.ranks[1],))


def test_killed_outright_what_was_written_can_be_read(engine: Callable[..., Engine], tmp_path: Path) -> None:
    one = engine("good", "loop", "loop")
    run = Run(tmp_path / "out", "--pid", one.root, "--window", 0)
    eventually(lambda: list((tmp_path / "out").glob("*/stacks/*.json")), "evidence has arrived")
    run.process.kill()
    run.end()
    (folder,) = (tmp_path / "out").iterdir()
    done = subprocess.run(
        [sys.executable, "-m", "forensics", "analyze", str(folder), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3 and json.loads(done.stdout)["unread"], done.stderr
    undisturbed(*one.pids)
