"""A real vLLM server under test: start it in a session of its own, load it, break it, stop it by pid."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

KIT = Path(__file__).resolve().parent / "kit"
FIRST_PORT = 8321
START_S = 420.0
ENDLESS_S = 600.0
WAIT_S = 240.0
"""Bound of a wait for something that must happen. A bound, not an expectation."""


def eventually(condition: Callable[[], Any], what: str, within: float = WAIT_S, every: float = 0.25) -> Any:
    deadline = time.monotonic() + within
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}")
        time.sleep(every)


def free_port(start: int = FIRST_PORT) -> int:
    for port in range(start, start + 500):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat after the name: [0] state, [1] ppid, [3] session, [19] start ticks. Raises OSError when gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def process_state(pid: int) -> str:
    try:
        return stat_fields(pid)[0]
    except OSError:
        return ""


def process_title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class Load:
    """Streaming completions by the kit's generator, in a process of its own."""

    def __init__(self, server: Server, requests: int, tokens: int, seconds: float = 0.0) -> None:
        self.requests, self.seconds = requests, seconds
        self.path = server.folder / f"load-{time.time_ns()}.jsonl"
        command = [sys.executable, str(KIT / "load.py"), str(server.port), str(requests), str(tokens), "3", "400", str(seconds)]
        with self.path.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        server.loads.append(self)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines() if line.startswith("{")]

    @property
    def slowest_gaps(self) -> list[float]:
        """The longest time between two chunks of each stream that has ended, in seconds."""
        return [event["slowest_gap"] for event in self.events if event["ev"] == "end"]

    @property
    def going_on(self) -> bool:
        return self.process.poll() is None

    def all_answered(self, within: float = WAIT_S) -> bool:
        """Begin no new requests and wait for the end of the others; True when every one got an orderly stream and no error."""
        if self.seconds and self.going_on:
            self.process.terminate()
        self.process.wait(within)
        # several tokens may come in one chunk, so chunks are no count of tokens
        return len(self.events) >= self.requests and all(event["ev"] == "end" and event["chunks"] > 1 for event in self.events)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Server:
    """One `vllm serve` (or one node of a larger engine). Everything it starts shares its session, which is how it is found again."""

    others: tuple[Server, ...] = ()
    """Further nodes of the same engine."""

    def __init__(self, folder: Path, home: Path, *options: str, port: int = 0, execute_timeout_s: int = 120, **environ: str) -> None:
        self.folder, self.port = folder, port or free_port()
        self.asynchronous = bool(environ.get("FF_FORCE_ASYNC"))
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.trigger = folder / "server.log", folder / "trigger"
        self.loads: list[Load] = []
        self.born: dict[int, str] = {}
        self.segments: set[Path] = set()
        environment = {
            **os.environ,
            "REAL_VLLM_HOME": str(home),
            "FF_TRIGGER": str(self.trigger),
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(execute_timeout_s),
            **environ,
        }
        # the script ends when the server answers; the server itself is in a session of its own
        self.starter = subprocess.Popen([KIT / "serve.sh", str(folder), str(self.port), *options], env=environment)

    def wait_ready(self) -> Server:
        assert self.starter.wait(START_S) == 0, f"no server: {self.log}"
        self.processes()
        self.segments = self._segments()  # while those who map them live
        return self

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def processes(self) -> list[int]:
        """Every living process of the server's session, and remember it for the end."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = stat_fields(int(entry.name))
                    if int(fields[3]) == self.pid and fields[0] not in "ZX":
                        found.append(int(entry.name))
                        self.born[int(entry.name)] = fields[19]
        return sorted(found)

    def find(self, title: str) -> int:
        """The process with this title, "VLLM::Worker_TP1"."""
        matching = [pid for pid in self.processes() if process_title(pid) == title]
        assert len(matching) == 1, (title, [process_title(pid) for pid in self.processes()])
        return matching[0]

    def children(self, pid: int) -> list[int]:
        return [each for each in self.processes() if int(stat_fields(each)[1]) == pid]

    # -- looking at it

    def get(self, path: str, timeout: float = 10.0) -> tuple[int | None, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return None, ""

    def metric(self, name: str) -> float:
        values = re.findall(rf"^vllm:{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.M)
        return sum(map(float, values)) if values else -1.0

    @property
    def steps(self) -> float:
        return self.metric("iteration_tokens_total_count")

    def wait_step(self, count: int = 1) -> None:
        before = self.steps
        eventually(lambda: self.steps >= before + count, f"{count} steps")

    def wait_frozen(self, seconds: float = 3.0) -> None:
        """Until no step has completed for `seconds`."""
        last, since = self.steps, time.monotonic()

        def frozen() -> bool:
            nonlocal last, since
            now = self.steps
            if now != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > seconds

        eventually(frozen, "a standstill")

    def wait_idle(self) -> None:
        eventually(lambda: self.metric("num_requests_running") == 0 == self.metric("num_requests_waiting"), "an idle engine")
        self.wait_frozen(2.0)

    # -- doing things to it

    def load(self, requests: int, tokens: int, seconds: float = 0.0) -> Load:
        return Load(self, requests, tokens, seconds)

    def loaded(self, requests: int, tokens: int, seconds: float = ENDLESS_S) -> Load:
        """Start a load that goes on until it is asked to end, and wait until the engine works on it."""
        load = self.load(requests, tokens, seconds)
        eventually(lambda: self.metric("num_requests_running") >= 1, "a running request")
        self.wait_step(3)
        return load

    def warm_up(self) -> Server:
        """The first request after a start takes seconds, on a cold cache half a minute."""
        assert self.load(1, 8).all_answered()
        return self

    def fire(self, text: str) -> None:
        """Set the fault ("exc 1", "slow 1 3"); "" is normal again. Replaced in one move."""
        temporary = self.trigger.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self.trigger)

    def pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: process_state(pid) == "T", f"{pid} stopped")

    def resume(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: process_state(pid) != "T", f"{pid} continued")

    def drop_loads(self) -> None:
        for load in self.loads:
            load.stop()
        self.loads.clear()

    def stop(self) -> None:
        """End every process that this server started, and remove the shared memory that a killed one leaves behind."""
        self.drop_loads()
        if self.starter.poll() is None:
            self.starter.terminate()
            self.starter.wait()
        if not (self.folder / "pid").exists():
            return
        self.processes()
        self.segments |= self._segments()
        for number, patience in ((signal.SIGCONT, 0.0), (signal.SIGTERM, 12.0), (signal.SIGKILL, 20.0)):
            for pid in self._ours():
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            with contextlib.suppress(AssertionError):
                eventually(lambda: not self._ours(), "the end of every process", patience)
        for path in self.segments:
            path.unlink(missing_ok=True)
        assert not self._ours(), [process_title(pid) for pid in self._ours()]

    def _ours(self) -> list[int]:
        """Remembered processes that still live: the same pid with other start ticks is somebody else's."""
        living = []
        for pid, ticks in self.born.items():
            with contextlib.suppress(OSError):
                fields = stat_fields(pid)
                if fields[19] == ticks and fields[0] not in "ZX":
                    living.append(pid)
        return living

    def _segments(self) -> set[Path]:
        found = set()
        for pid in self._ours():
            with contextlib.suppress(OSError):
                found |= {Path(name) for name in re.findall(r"/dev/shm/[\w.:\[\]-]+", Path(f"/proc/{pid}/maps").read_text())}
        return found


class TwoNodes(Server):
    """The head of an engine of two nodes, both on this host: rank 1 and the faults are on its follower, which has no front and no core."""

    def __init__(self, folder: Path, home: Path, **environ: str) -> None:
        port = free_port()
        shared = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port(port + 100))]
        super().__init__(folder / "head", home, *shared, "--node-rank", "0", port=port, **environ)
        follower = Server(folder / "follower", home, *shared, "--node-rank", "1", "--headless", port=port, **environ)
        self.others = (follower,)

    def wait_ready(self) -> Server:
        super().wait_ready()
        self.others[0].wait_ready()
        return self

    @property
    def text(self) -> str:
        return super().text + self.others[0].text

    def find(self, title: str) -> int:
        return self.others[0].find(title)

    def fire(self, text: str) -> None:
        self.others[0].fire(text)

    def stop(self) -> None:
        self.others[0].stop()
        super().stop()
