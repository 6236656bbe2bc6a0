"""Run collectors, each in a child of its own, and deliver what they send as it arrives.

One thread and one loop. Reading has priority over writing: a child must never sleep on a full pipe between two samples
because its parent is busy redacting the log of another.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

import msgspec

from forensics.capture import _procfs as procfs
from forensics.capture.plan import Step
from forensics.model import Outcome

TERM_GRACE_S = 0.5
KILL_GRACE_S = 1.0
"""A child that is still there this long after SIGKILL sleeps in the kernel: nobody can end it, so it is left."""
DRAIN_S = 0.3
"""How long the pipe of a dead child may stay open (a grandchild holds it) before it is closed."""
LINE_LIMIT_BYTES = 8 * 1024 * 1024
GARBAGE_LIMIT_BYTES = 4 * 1024 * 1024
PENDING_LIMIT_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
ENCODING_FACTOR = 6
"""A JSON line is at most this much longer than the bytes in it (\\u0000 for one byte)."""
STDERR_TAIL_BYTES = 2048
MEMORY_BYTES = 2 * 1024**3
"""Private memory of a child. A collector that runs wild must fail, and not the engine beside it."""
NICE = 10
IN_PROCESS = ("process", "cpu", "memory")
"""Read nothing but /proc and can run here when no child can be started."""


class EvidenceLine(msgspec.Struct, tag="evidence", tag_field="type"):
    """A piece of evidence as a collector sends it: see collectors._contract.Emitter."""

    name: str
    kind: str
    text: str | None = None
    b64: bytes | None = None
    more: bool = False
    pid: int | None = None
    sample: int = 0
    source: str = ""
    at_ns: int = 0
    truncated: bool = False

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "surrogatepass") if self.text is not None else self.b64 or b""


class AttemptLine(msgspec.Struct, tag="attempt", tag_field="type"):
    target: str
    outcome: Outcome
    pid: int | None = None
    sample: int = 0
    reason: str = ""
    cure: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    evidence: list[str] = []


_decoder = msgspec.json.Decoder(EvidenceLine | AttemptLine)


class Sink(Protocol):
    """Where records go. Called from the runner's loop, never concurrently."""

    def evidence(self, step: Step, line: EvidenceLine) -> None: ...

    def attempt(self, step: Step, line: AttemptLine) -> None: ...

    def ended(self, step: Step, seconds: float) -> list[str]:
        """The child is over. Returns the names of evidence that was cut off in the middle, which the sink has closed."""
        ...


def collector_command(name: str) -> list[str]:
    """-I: a `collectors` folder in the working directory, or PYTHONPATH, must not stand in for ours."""
    return [sys.executable, "-I", "-m", "collectors", name]


class Child:
    """A running collector."""

    def __init__(self, step: Step, command: list[str], raw_request: bytes) -> None:
        """Start it. Raises OSError when no process can be made."""
        self.step = step
        self.started = time.monotonic()
        self.started_ns = time.time_ns()
        self.stop_at = self.started + step.deadline_s
        self.why = ""
        """Why it is being ended; "" while it may run."""
        self.outcome = Outcome.TIMEOUT
        self.killed = self.abandoned = self.forced = False
        self.attempts = self.garbage = self.garbage_bytes = self.received = self.kept_bytes = 0
        self.first_garbage = b""
        self.partial = bytearray()
        self.skipping = False
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0
        self.stderr = bytearray()
        self.exit_at: float | None = None
        with _request_file(raw_request) as stdin:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        assert self.process.stdout and self.process.stderr
        self.streams: dict[int, IO[bytes]] = {}
        for stream in (self.process.stdout, self.process.stderr):
            os.set_blocking(stream.fileno(), False)
            self.streams[stream.fileno()] = stream
        self.out_fd = self.process.stdout.fileno()
        with contextlib.suppress(OSError, ImportError, AttributeError):  # over the user's limit: the default size works too
            import fcntl

            fcntl.fcntl(self.out_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with contextlib.suppress(OSError, ValueError):  # a lower limit is in force already
            resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        if step.niced:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.process.pid, NICE)

    @property
    def pid(self) -> int:
        return self.process.pid

    def take(self, piece: bytes) -> None:
        """Cut what arrived on stdout into lines; decoding waits until nobody has anything to read."""
        self.received += len(piece)
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self.skipping:
                self.skipping = False
            elif len(self.partial) + len(line) > LINE_LIMIT_BYTES:
                self.reject(bytes(self.partial + line))
            elif self.partial or line:
                whole = bytes(self.partial) + line
                self.pending.append(whole)
                self.pending_bytes += len(whole)
            self.partial.clear()
        if self.skipping:
            self.garbage_bytes += len(rest)
        else:
            self.partial += rest
        if len(self.partial) > LINE_LIMIT_BYTES:
            self.reject(bytes(self.partial))
            self.partial.clear()
            self.skipping = True

    def reject(self, line: bytes) -> None:
        self.garbage += 1
        self.garbage_bytes += len(line)
        self.first_garbage = self.first_garbage or line[:200]

    def signal(self, number: int) -> None:
        """Signal everything in its session: a helper of its own (py-spy) may have left its process group, never its session."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            for pid in _session(self.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

    def end(self, why: str, outcome: Outcome = Outcome.TIMEOUT) -> None:
        """Ask it to stop; the loop sees to it that it does."""
        if not self.why:
            self.why, self.outcome = why, outcome
            self.stop_at = time.monotonic() + TERM_GRACE_S
            self.signal(signal.SIGTERM)
            # a stopped child acts on SIGTERM only when it runs again
            self.signal(signal.SIGCONT)


def _session(session: int) -> list[int]:
    found = []
    for pid in procfs.pids():
        try:
            if procfs.stat_of(pid).session == session:
                found.append(pid)
        except OSError:
            continue
    return found


def _request_file(raw: bytes) -> IO[bytes]:
    """The request as a file at its beginning: a pipe would block us, or the child, on a large one."""
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("request", os.MFD_CLOEXEC), "w+b")
    except (OSError, AttributeError):
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the caller
    file.write(raw)
    file.flush()
    file.seek(0)
    return file


class Runner:
    """Runs steps side by side. Call `start` for each and `turn` while `busy`."""

    def __init__(self, sink: Sink, command: Callable[[str], list[str]] = collector_command) -> None:
        self.sink = sink
        self.command = command
        self.active: list[Child] = []
        self._childless: list[tuple[Step, Mapping[str, Any], OSError]] = []
        self.forced: list[Step] = []
        """Steps whose child had to be killed: it may not have put things back in order."""
        self.abandoned: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()

    def start(self, step: Step, request: Mapping[str, Any]) -> None:
        """Start a collector. Where the machine has no room for another process, do without one as far as that goes."""
        try:
            child = Child(step, self.command(step.collector), msgspec.json.encode(request))
        except OSError as error:
            self._childless.append((step, request, error))
            return
        self.active.append(child)
        for fd, stream in child.streams.items():
            self._selector.register(stream, selectors.EVENT_READ, (child, fd))

    @property
    def busy(self) -> bool:
        return bool(self.active or self._childless)

    def running(self, *collectors: str) -> bool:
        """Whether any of these collectors has not ended yet."""
        steps = [*(child.step for child in self.active), *(step for step, _, _ in self._childless)]
        return any(step.collector in collectors for step in steps)

    def turn(self, patience_s: float = 0.1) -> None:
        """One round: read what is there, decode one line, enforce deadlines."""
        if self._childless:
            self._without_child(*self._childless.pop(0))
        busy = any(child.pending for child in self.active)
        if self._selector.get_map():
            for key, _ in self._selector.select(0 if busy else min(patience_s, self._next_deadline())):
                self._read(*key.data)
        elif not busy:
            time.sleep(min(patience_s, 0.02))
        waiting = next((child for child in self.active if child.pending), None)
        if waiting:  # children are in order of volatility: so is the writing
            line = waiting.pending.popleft()
            waiting.pending_bytes -= len(line)
            self._deliver(waiting, line)
        now = time.monotonic()
        for child in list(self.active):
            self._check(child, now)

    def abort(self, why: str, outcome: Outcome = Outcome.TIMEOUT) -> None:
        """End every child, and keep what they have delivered."""
        for child in self.active:
            child.end(why, outcome)
        limit = time.monotonic() + TERM_GRACE_S + KILL_GRACE_S + 2.0
        while self.active and time.monotonic() < limit:
            self.turn(0.05)

    def kill(self) -> None:
        """End every child this instant: nobody will read what it still has to say."""
        for child in self.active:
            child.signal(signal.SIGKILL)

    def close(self) -> None:
        self._selector.close()

    def _next_deadline(self) -> float:
        now = time.monotonic()
        return max(0.0, min((child.stop_at - now for child in self.active), default=1.0))

    def _read(self, child: Child, fd: int) -> None:
        if fd == child.out_fd and child.pending_bytes > PENDING_LIMIT_BYTES:
            return
        try:
            piece = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._hang_up(child, fd)
        elif fd == child.out_fd:
            child.exit_at = None  # a dead child's pipe is read to its end
            child.take(piece)
            if child.garbage_bytes > GARBAGE_LIMIT_BYTES:
                child.end(f"it printed more than {GARBAGE_LIMIT_BYTES >> 20} MiB that are no records", Outcome.FAILED)
                self._silence(child)
            elif child.received > child.step.max_bytes * ENCODING_FACTOR + GARBAGE_LIMIT_BYTES:
                child.end("it sent more than its bound", Outcome.PARTIAL)
                self._silence(child)
        else:
            child.stderr += piece
            del child.stderr[:-STDERR_TAIL_BYTES]

    def _silence(self, child: Child) -> None:
        """Read no more of a flood: the pipe fills up, and the writer sleeps until it is killed."""
        for fd in list(child.streams):
            self._hang_up(child, fd)

    def _hang_up(self, child: Child, fd: int) -> None:
        stream = child.streams.pop(fd, None)
        if stream is not None:
            self._selector.unregister(stream)
            stream.close()

    def _deliver(self, child: Child, raw: bytes) -> None:
        try:
            line = _decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            child.reject(raw)
            return
        if isinstance(line, AttemptLine):
            child.attempts += 1
            self.sink.attempt(child.step, line)
            return
        child.kept_bytes += len(line.data)
        if child.kept_bytes > child.step.max_bytes:
            if not child.why:
                child.end(f"it sent more than its bound of {child.step.max_bytes >> 20} MiB", Outcome.PARTIAL)
            return
        self.sink.evidence(child.step, line)

    def _check(self, child: Child, now: float) -> None:
        if child.process.poll() is not None:
            child.exit_at = child.exit_at or now
            if child.streams and not child.pending and now > child.exit_at + DRAIN_S:
                self._silence(child)
            if not child.streams and not child.pending:
                self._finish(child)
        elif now >= child.stop_at:
            if not child.why:
                child.end(f"it did not finish within {child.step.deadline_s:g} s")
            elif not child.killed:
                child.killed = True
                child.stop_at = now + KILL_GRACE_S
                child.signal(signal.SIGKILL)
            else:
                child.abandoned = True
                if not child.pending:
                    self._finish(child)

    def _finish(self, child: Child) -> None:
        self.active.remove(child)
        if child.killed:
            self.forced.append(child.step)
        self._silence(child)
        if child.partial:
            child.reject(bytes(child.partial))
        cut = self.sink.ended(child.step, time.monotonic() - child.started)
        line = _epitaph(child, cut)
        if child.abandoned:
            self.abandoned.append(child.process)
        if line:
            self.sink.attempt(child.step, line)

    def _without_child(self, step: Step, request: Mapping[str, Any], error: OSError) -> None:
        """No process can be made (out of memory, or of process ids): /proc can still be read from here."""
        started_ns = time.time_ns()
        outcome, reason = Outcome.SKIPPED, f"no process could be started: {error.strerror or error}"
        if step.collector in IN_PROCESS:
            try:
                _collect_here(step, request, lambda raw: self._deliver_here(step, raw))
                outcome, reason = Outcome.PARTIAL, reason + "; read from the capturing process itself, one sample"
            except Exception as failure:  # a collector's own failure must not end the capture
                outcome, reason = Outcome.FAILED, f"{reason}; and in this process: {type(failure).__name__}: {failure}"
        cut = self.sink.ended(step, 0.0)
        self.sink.attempt(
            step,
            AttemptLine(
                target=step.collector,
                outcome=outcome,
                sample=step.first_sample,
                reason=reason,
                cure="free memory, or raise the limit on processes (ulimit -u, pids.max)",
                started_ns=started_ns,
                ended_ns=time.time_ns(),
                evidence=cut,
            ),
        )

    def _deliver_here(self, step: Step, raw: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            line = _decoder.decode(raw)
            if isinstance(line, AttemptLine):
                self.sink.attempt(step, line)
            else:
                self.sink.evidence(step, line)


class _Lines:
    """A text stream for a collector that runs in this process."""

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver

    def write(self, text: str) -> int:
        self._deliver(text.encode())
        return len(text)

    def flush(self) -> None:
        """Every write is a whole line and goes out at once."""


def _collect_here(step: Step, request: Mapping[str, Any], deliver: Callable[[bytes], None]) -> None:
    import importlib

    from collectors._contract import Emitter, Request

    module = importlib.import_module(f"collectors.{step.collector}")
    # one sample: the loop that watches the other children stands still meanwhile
    emit = Emitter(step.collector, _Lines(deliver), max_bytes=step.max_bytes)  # type: ignore[arg-type]  # write and flush are all it uses
    module.collect(Request({**request, "samples": 1}), emit)


def _epitaph(child: Child, cut: list[str]) -> AttemptLine | None:
    """The attempt that records how a child ended, where its own attempts do not say everything."""
    step, code = child.step, child.process.returncode
    said = f"{child.attempts} attempts had been delivered"
    reasons: list[str] = []
    outcome = Outcome.FAILED
    cure = ""
    if child.why:
        outcome = child.outcome
        reasons.append(f"{child.why}; {said}")
        if child.abandoned:
            reasons.append(f"it cannot be killed and was left behind ({_where(child.pid)})")
    elif code:
        reasons.append(f"it ended with {_status(code)}; {said}")
        cure = "please report this defect of the collector"
    elif not child.attempts:
        reasons.append("it ended without a word")
        cure = "please report this defect of the collector"
    if child.garbage:
        first = child.first_garbage.decode("utf-8", "backslashreplace")
        reasons.append(f"{child.garbage} lines were no records, the first: {first}")
    if cut and not reasons:
        reasons.append("its evidence ends in the middle")
        outcome = Outcome.PARTIAL
    if not reasons:
        return None
    stderr = child.stderr.decode("utf-8", "backslashreplace").strip()
    if stderr:
        reasons.append("stderr: " + stderr[-600:])
    return AttemptLine(
        target=step.collector,
        outcome=outcome,
        sample=step.first_sample,
        reason="; ".join(reasons),
        cure=cure,
        started_ns=child.started_ns,
        ended_ns=time.time_ns(),
        evidence=cut,
    )


def _status(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _where(pid: int) -> str:
    found = []
    for name in ("stat", "wchan"):
        with contextlib.suppress(OSError):
            found.append(f"/proc/{pid}/{name}: {procfs.read(f'/proc/{pid}/{name}', 512).decode('utf-8', 'replace').strip()}")
    return ", ".join(found) or f"pid {pid}"
