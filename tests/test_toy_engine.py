"""The toy engine serves, and each of its faults does what it says, as seen from outside: HTTP, /metrics, /proc."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).resolve().parent.parent / "examples" / "toy_engine"
PATIENCE_S = 60.0
"""Bound of every wait for something that must happen. A bound, not an expectation: the machine may be busy."""


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(int(child))]
    return found


def state(pid: int) -> str:
    """The kernel's letter, "" when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def gone(pid: int) -> bool:
    return state(pid) in ("", "Z", "X")


class Engine:
    """A running toy engine, looked at from outside only."""

    def __init__(self, log: Path, *options: str, command: tuple[str, ...] = (sys.executable, str(TOY)), cwd: Path | None = None) -> None:
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen([*command, *options], stdout=out, stderr=out, cwd=cwd, start_new_session=True)
        self.everybody: set[int] = {self.process.pid}
        self.segments: set[str] = set()
        try:
            self.port = int(eventually(self._ready, f"ready line in {log}").group(1))
        except BaseException:
            self.close()
            raise
        self.everybody |= set(children(self.process.pid))
        self.segments = {link for pid in self.everybody for link in shared_memory(pid)}

    def _ready(self) -> re.Match[str] | None:
        assert self.process.poll() is None, self.text
        return re.search(r"^ready port=(\d+)$", self.text, re.M)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def rank(self, rank: int) -> int:
        return next(pid for pid in self.everybody if f"--rank\0{rank}\0" in cmdline(pid))

    @property
    def core(self) -> int:
        return next(pid for pid in self.everybody if "--role\0core" in cmdline(pid))

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def post(self, path: str, **body: Any) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def fault(self, mode: str, rank: int = 1, seconds: float = 0.0) -> None:
        assert self.post("/fault", mode=mode, rank=rank, seconds=seconds)[0] == 200

    def metric(self, name: str) -> float:
        match = re.search(rf"^\w+_{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.M)
        return float(match.group(1)) if match else -1.0

    @property
    def steps(self) -> float:
        return self.metric("iteration_tokens_total_count")

    def moving(self) -> bool:
        before = self.steps
        return bool(eventually(lambda: self.steps > before, "a step"))

    def frozen(self) -> bool:
        """No step completes over a time in which dozens would."""
        before = self.steps
        time.sleep(1.0)
        return self.steps == before

    def stream(self, tokens: int = 100_000) -> Stream:
        return Stream(self, tokens)

    def close(self) -> None:
        self.everybody |= set(children(self.process.pid))
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
            # the standard library's resource tracker ends a moment after the process that it belongs to
            eventually(lambda: all(gone(pid) for pid in self.everybody), f"the end of every process of {self.everybody}")
            eventually(lambda: not [name for name in self.segments if Path(name).exists()], f"the end of {self.segments}")
        finally:
            for pid in self.everybody:
                if not gone(pid) and TOY.name in cmdline(pid):
                    os.kill(pid, signal.SIGKILL)


class Stream:
    """One streaming completion, read by a thread."""

    def __init__(self, engine: Engine, tokens: int) -> None:
        self.events: list[str] = []
        body = json.dumps({"prompt": "hello world", "max_tokens": tokens, "stream": True}).encode()
        self.request = urllib.request.Request(f"http://127.0.0.1:{engine.port}/v1/completions", body)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(self.request, timeout=PATIENCE_S) as reply:
            for line in reply:
                if line.startswith(b"data: "):
                    self.events.append(line[6:].decode().strip())


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def shared_memory(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if (link := os.readlink(fd)).startswith("/dev/shm/"):
                    found.add(link)
    return found


Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start engines; at the end of the test they are ended, and nothing of them is left."""
    engines: list[Engine] = []

    def begin(*options: str, **how: Any) -> Engine:
        engines.append(Engine(tmp_path / f"engine{len(engines)}.log", *options, **how))
        return engines[-1]

    yield begin
    for engine in engines:
        assert engine.segments
        engine.close()


@pytest.fixture
def engine(start: Start) -> Engine:
    return start("--ranks", "2", "--rpc-timeout", "300")


def loaded(engine: Engine) -> Engine:
    """The engine under load: a stream has begun."""
    stream = engine.stream()
    eventually(lambda: stream.events, "first token")
    return engine


def test_serves_and_counts(engine: Engine) -> None:
    assert engine.get("/health")[0] == 200
    stream = engine.stream(tokens=7)
    eventually(lambda: "[DONE]" in stream.events, "the end of a stream")
    assert len(stream.events) == 8
    assert all(json.loads(event)["choices"][0]["text"] for event in stream.events[:-1])
    status, body = engine.post("/v1/completions", prompt="hello world", max_tokens=5)
    assert status == 200 and len(json.loads(body)["choices"][0]["text"].split()) == 5
    eventually(lambda: engine.metric("num_requests_running") == 0, "an idle engine")
    assert (engine.steps, engine.metric("generation_tokens_total"), engine.metric("prompt_tokens_total")) == (12, 12, 4)
    assert engine.post("/v1/completions", max_tokens=0)[0] == 400
    assert engine.post("/fault", mode="nonsense")[0] == 400 and engine.post("/fault", mode="stop", rank=2)[0] == 400


def test_a_client_that_goes_away_frees_its_place(engine: Engine) -> None:
    body = json.dumps({"max_tokens": 100_000, "stream": True}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{engine.port}/v1/completions", body, timeout=PATIENCE_S) as reply:
        reply.readline()
        eventually(lambda: engine.metric("num_requests_running") == 1, "a running request")
    eventually(lambda: engine.metric("num_requests_running") == 0, "the abort")


def test_more_requests_than_places_wait(engine: Engine) -> None:
    for _ in range(10):
        engine.stream()
    eventually(lambda: (engine.metric("num_requests_running"), engine.metric("num_requests_waiting")) == (8, 2), "two waiting requests")


def test_stop_freezes_everything_but_health_and_continues(engine: Engine) -> None:
    loaded(engine).fault("stop", rank=1)
    eventually(lambda: state(engine.rank(1)) == "T", "rank 1 stopped")
    # the step in which it was stopped may still be finished by the others
    eventually(engine.frozen, "a standstill")
    assert engine.get("/health")[0] == 200
    assert state(engine.rank(0)) == "R", "the victim spins in its all-reduce"
    running = engine.metric("num_requests_running")
    engine.stream()
    assert engine.frozen() and engine.metric("num_requests_running") == running == 1, "a request that arrives in a stall is invisible"
    engine.fault("")
    os.kill(engine.rank(1), signal.SIGCONT)
    assert engine.moving()


def test_idle_then_stop_waits_for_idleness(engine: Engine) -> None:
    stream = engine.stream(tokens=150)
    eventually(lambda: stream.events, "first token")
    engine.fault("idle-then-stop", rank=0)
    eventually(lambda: "[DONE]" in stream.events, "the end of the running request")
    eventually(lambda: state(engine.rank(0)) == "T", "rank 0 stopped")
    assert engine.metric("num_requests_running") == 0
    late = engine.stream(tokens=3)
    assert engine.frozen() and not late.events and engine.metric("num_requests_running") == 0
    os.kill(engine.rank(0), signal.SIGCONT)
    eventually(lambda: "[DONE]" in late.events, "the answer after the rank was continued")


def test_kill_ends_the_engine(engine: Engine) -> None:
    stream = engine.stream()
    eventually(lambda: stream.events, "first token")
    engine.fault("kill", rank=1)
    assert engine.process.wait(PATIENCE_S) == 1
    eventually(lambda: "[DONE]" in stream.events, "the stream's end")
    assert "error" in json.loads(stream.events[-2]), "an error first, and then [DONE], as the real ones do"
    assert re.search(r"ERROR \[core\] worker rank 1 \(pid \d+\) died unexpectedly \(exit code: -9\)", engine.text)


def test_exception_on_another_rank_is_logged_and_swallowed(engine: Engine) -> None:
    loaded(engine).fault("exception", rank=1)
    eventually(lambda: "ERROR [rank1] worker hit an exception" in engine.text, "the worker's exception")
    assert engine.frozen() and engine.get("/health")[0] == 200
    assert "[core]" not in engine.text.partition("worker hit an exception")[2], "nobody else was told"


def test_exception_on_the_output_rank_ends_the_engine(engine: Engine) -> None:
    loaded(engine).fault("exception", rank=0)
    assert engine.process.wait(PATIENCE_S) == 1
    assert "RuntimeError: worker failed with error 'index 512 is out of bounds" in engine.text


def test_a_stall_ends_in_the_rpc_limit(start: Start) -> None:
    engine = loaded(start("--ranks", "2", "--rpc-timeout", "1"))
    engine.fault("exception", rank=1)
    assert engine.process.wait(PATIENCE_S) == 1
    assert "TimeoutError: RPC call to step timed out." in engine.text


def test_deadlock_leaves_two_threads_waiting_for_each_other(engine: Engine) -> None:
    before = len(list(Path(f"/proc/{engine.rank(1)}/task").iterdir()))
    loaded(engine).fault("deadlock", rank=1)
    eventually(lambda: len(list(Path(f"/proc/{engine.rank(1)}/task").iterdir())) == before + 1, "the second thread")
    assert engine.frozen() and state(engine.rank(1)) == "S" and state(engine.rank(0)) == "R"


def test_queue_full_raises_on_the_rank(engine: Engine) -> None:
    loaded(engine).fault("queue-full", rank=0)
    assert engine.process.wait(PATIENCE_S) == 1
    assert re.search(r"ERROR \[rank0\] worker hit an exception", engine.text) and "queue.Full" in engine.text
    assert "RuntimeError: worker failed with error ''" in engine.text, "the engine's own fatal line says nothing"


def test_queue_blocked_stalls_in_silence(engine: Engine) -> None:
    loaded(engine).fault("queue-blocked", rank=1)
    eventually(engine.frozen, "the stall")
    assert engine.get("/health")[0] == 200 and "ERROR" not in engine.text


def test_slow_is_not_a_stall_and_can_be_undone(engine: Engine) -> None:
    stream = engine.stream(tokens=6)
    engine.fault("slow", rank=1, seconds=0.2)
    eventually(lambda: "[DONE]" in stream.events, "a slow answer")
    assert len(stream.events) == 7
    engine.fault("")
    assert loaded(engine).moving() and "ERROR" not in engine.text


@pytest.mark.parametrize("stopped", ["", "core", "rank"])
def test_no_leftovers_when_the_front_is_terminated(start: Start, stopped: str) -> None:
    engine = start("--ranks", "2")
    if stopped:
        os.kill(engine.core if stopped == "core" else engine.rank(1), signal.SIGSTOP)
    engine.close()


def test_no_leftovers_when_the_front_is_killed_and_a_rank_is_stopped(start: Start) -> None:
    engine = start("--ranks", "3")
    os.kill(engine.rank(2), signal.SIGSTOP)
    engine.process.kill()
    engine.close()


def test_runs_as_a_module_and_takes_a_control_file(start: Start, tmp_path: Path) -> None:
    control = tmp_path / "control"
    engine = start("--control", str(control), command=(sys.executable, "-m", TOY.name), cwd=TOY.parent)
    control.write_text("stop 0\n")
    eventually(lambda: state(engine.rank(0)) == "T", "rank 0 stopped")


def test_imports_nothing_but_the_standard_library() -> None:
    for source in TOY.glob("*.py"):
        modules = re.findall(r"^\s*(?:from|import) ([\w.]+)", source.read_text(), re.M)
        strangers = [m for m in modules if not m.startswith(".") and m.split(".")[0] not in sys.stdlib_module_names]
        assert not strangers, (source.name, strangers)
