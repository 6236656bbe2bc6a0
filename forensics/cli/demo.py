"""forensics demo: the main job on real processes, where no engine is installed. Starts one, breaks it, and lets the tool find out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.capture.session import CaptureResult
    from forensics.model import Report

FAULTS = {
    "stop": "rank {rank} is stopped (SIGSTOP), as a debugger, a freezer cgroup or a frozen container would",
    "exception": "rank {rank} raises an exception that nobody is told about",
    "deadlock": "two threads of rank {rank} take two locks in opposite order",
    "queue-blocked": "rank {rank} waits for room in a bounded queue that nobody empties",
}
RANKS, VICTIM, REQUESTS = 3, 1, 4
RPC_TIMEOUT_S = 120.0
"""Long enough that the engine's own limit does not end the stall before it has been photographed."""
START_S, STALL_S, END_S = 20.0, 20.0, 10.0
WINDOW_S = {"stop": 6.0}
"""Of watching the engine stand still. A stopped process is proof enough by itself; otherwise a slow step has to be ruled out."""
WINDOW_OTHERWISE_S = 13.0


class DemoError(Exception):
    """The demo engine did not do what it must do before there is anything to show."""


def demo_command(out: Path | None = None, fault: str = "stop") -> int:
    """Run the demo. `out` receives the bundle, the engine's log and the reports; None makes a folder for temporary files.

    Returns 0 when the report names the rank that was broken, 1 when it does not or the engine could not be started,
    2 for an unknown fault.
    """
    if fault not in FAULTS:
        _say(f"there is no fault {fault!r}: choose one of {', '.join(FAULTS)}")
        return 2
    from forensics.capture.errors import CaptureError

    try:
        folder = _folder(out)
        _say(f"starting a small engine: a front, a core and {RANKS} ranks, all real processes")
        with _engine(folder) as engine:
            _say(f"serving on port {engine.port} (pid {engine.pid}); {REQUESTS} requests are streaming")
            engine.load(REQUESTS)
            engine.wait(engine.progresses, START_S, "the first tokens")
            _say(f"breaking it: {FAULTS[fault].format(rank=VICTIM)}")
            engine.post("/fault", {"mode": fault, "rank": VICTIM})
            engine.wait(engine.stands, STALL_S, "the stall")
            _say(f"it stands still, and /health still says {engine.health()}; capturing, as `forensics capture` does")
            captured = _capture(folder, engine.pid, WINDOW_S.get(fault, WINDOW_OTHERWISE_S))
        report = _analyze(captured.path)
    except DemoError as error:
        _say(str(error))
        return 1
    except (CaptureError, OSError) as error:
        _say(f"{error}" + (f"\n  cure: {cure}" if (cure := getattr(error, "cure", "")) else ""))
        return 1
    _show(report, captured, folder)
    if report.root.rank == VICTIM:
        return 0
    _say(f"rank {VICTIM} was broken, and the report does not say so")
    for line in captured.incomplete:
        _say(f"incomplete: {line}")
    return 1


def toy_engine() -> Path:
    """The engine's folder: shipped in the wheel, or in the source tree. Raises DemoError when there is neither."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_toy_engine", package.parent / "examples" / "toy_engine"):
        if (folder / "__main__.py").is_file():
            return folder
    raise DemoError("the demo engine is not installed; install the wheel, or run from a checkout")


class _Engine:
    """The running engine, known by what it offers to anybody: a port, and a pid."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port
        self._steps = -1.0
        self._since = time.monotonic()

    def get(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=5) as reply:
            return reply.status, reply.read().decode()

    def post(self, path: str, body: dict[str, Any]) -> None:
        self.get(path, body)

    def health(self) -> int:
        return self.get("/health")[0]

    def steps(self) -> float:
        found = re.search(r"^\w+_iteration_tokens_total_count\S* (\S+)$", self.get("/metrics")[1], re.M)
        return float(found[1]) if found else 0.0

    def progresses(self) -> bool:
        return self.steps() > 10

    def stands(self) -> bool:
        """No step for a second and a half: a hundred and fifty times what one takes."""
        now = self.steps()
        if now != self._steps:
            self._steps, self._since = now, time.monotonic()
        return time.monotonic() - self._since > 1.5

    def load(self, requests: int) -> None:
        """Streams that read until the engine ends."""
        for _ in range(requests):
            threading.Thread(target=self._stream, daemon=True).start()

    def _stream(self) -> None:
        body = json.dumps({"prompt": "What does the fox say?", "max_tokens": 100_000, "stream": True}).encode()
        # the engine dies at the end of the demo, with these connections open
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/completions", body, timeout=120) as reply,
        ):
            for _ in reply:
                pass

    @staticmethod
    def wait(condition: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not come within {within_s:g} s")
            time.sleep(0.1)


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[_Engine]:
    """The engine, started with its log in `folder`, and ended (it cleans up after itself) whatever happens."""
    log = folder / "engine.log"
    command = [sys.executable, str(toy_engine()), "--ranks", str(RANKS), "--rpc-timeout", str(RPC_TIMEOUT_S)]
    with log.open("wb") as out:
        # a session of its own: Ctrl-C in the terminal ends the demo, and the demo ends the engine
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        ready: list[str] = []

        def port() -> bool:
            if process.poll() is not None:
                raise DemoError(f"the engine ended with status {process.returncode}: see {log}")
            ready[:] = re.findall(r"^ready port=(\d+)$", log.read_text("utf-8", "replace"), re.M)
            return bool(ready)

        _Engine.wait(port, START_S, "a ready engine")
        yield _Engine(process.pid, int(ready[0]))
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _folder(out: Path | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="forensics-demo-"))
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    return out


def _capture(folder: Path, pid: int, window_s: float) -> CaptureResult:
    from forensics.capture.session import CaptureOptions, capture

    options = CaptureOptions(pids=(pid,), out=folder, incident="demo", window_s=window_s, trigger="demo", reason="forensics demo")
    return capture(options)


def _analyze(bundle: Path) -> Report:
    from forensics.analysis import analyze

    _say(f"analysing {bundle}")
    return analyze([bundle])


def _show(report: Report, captured: CaptureResult, folder: Path) -> None:
    from forensics.cli.analyze import write_reports
    from forensics.report.terminal import print_report

    sys.stderr.write("\n")
    print_report(report)
    sys.stdout.flush()
    sys.stderr.write("\n")
    write_reports(report, folder)
    _say(f"the bundle: {captured.path}")
    _say(f"the engine's log: {folder / 'engine.log'}")


def _say(text: str) -> None:
    sys.stderr.write(f"demo: {text}\n")
    sys.stderr.flush()
