"""Run collectors, each in a child of its own, and deliver what they send as it arrives.

One thread and one loop. Reading has priority over writing: a child must never sleep on a full pipe between two samples
because its parent is busy redacting the log of another.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from forensics.capture._child import (
    DRAIN_S,
    ENCODING_FACTOR,
    GARBAGE_LIMIT_BYTES,
    KILL_GRACE_S,
    PENDING_LIMIT_BYTES,
    READ_BYTES,
    STDERR_TAIL_BYTES,
    TERM_GRACE_S,
    AttemptLine,
    Child,
    EvidenceLine,
    decoder,
    epitaph,
)
from forensics.capture.plan import Step
from forensics.model import Outcome

__all__ = ["AttemptLine", "EvidenceLine", "Runner", "Sink", "collector_command"]

IN_PROCESS = ("process", "cpu", "memory")
"""Read nothing but /proc and can run here when no child can be started."""
WRITING_S = 2.0
"""How long an aborted capture goes on writing what its children had sent by then."""


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


class Runner:
    """Runs steps side by side. Call `start` for each and `turn` while `busy`."""

    def __init__(self, sink: Sink, command: Callable[[str], list[str]] = collector_command, usual_nice: int = 0) -> None:
        self.sink = sink
        self.usual_nice = usual_nice
        self.command = command
        self.active: list[Child] = []
        self._childless: list[tuple[Step, Mapping[str, Any], OSError]] = []
        self.forced: list[Step] = []
        """Steps whose child had to be killed: it may not have put things back in order."""
        self.abandoned: list[Child] = []
        self._selector = selectors.DefaultSelector()

    def start(self, step: Step, request: Mapping[str, Any]) -> None:
        """Start a collector. Where the machine has no room for another process, do without one as far as that goes."""
        try:
            child = Child(step, self.command(step.collector), msgspec.json.encode(request), self.usual_nice)
        except OSError as error:
            self._childless.append((step, request, error))
            return
        self.active.append(child)
        for fd in child.fds:
            self._selector.register(fd, selectors.EVENT_READ, (child, fd))

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
        limit = time.monotonic() + TERM_GRACE_S + KILL_GRACE_S + WRITING_S
        while self.active and time.monotonic() < limit:
            self.turn(0.05)
        for child in list(self.active):
            self._cut_short(child)

    def _cut_short(self, child: Child) -> None:
        """It sent more than could be written by now. What is left of it goes, and its last word says so."""
        if child.poll() is None:
            child.killed = True
            child.signal(signal.SIGKILL)
            limit = time.monotonic() + KILL_GRACE_S
            while child.poll() is None and time.monotonic() < limit:
                time.sleep(0.005)
        child.abandoned = child.poll() is None
        if child.pending:
            child.why += f"; {len(child.pending)} records that it had sent could not be written in time"
            child.pending.clear()
        self._finish(child)

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
        for fd in list(child.fds):
            self._hang_up(child, fd)

    def _hang_up(self, child: Child, fd: int) -> None:
        if fd in child.fds:
            child.fds.remove(fd)
            self._selector.unregister(fd)
            os.close(fd)

    def _deliver(self, child: Child, raw: bytes) -> None:
        try:
            line = decoder.decode(raw)
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
        if child.poll() is not None:
            child.exit_at = child.exit_at or now
            if child.fds and not child.pending and now > child.exit_at + DRAIN_S:
                self._silence(child)
            if not child.fds and not child.pending:
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
        if child.why and not child.abandoned:
            child.signal(signal.SIGKILL)  # helpers that it did not take along
        if child.killed:
            self.forced.append(child.step)
        self._silence(child)
        if child.partial:
            child.reject(bytes(child.partial))
        cut = self.sink.ended(child.step, time.monotonic() - child.started)
        line = epitaph(child, cut)
        if child.abandoned:
            self.abandoned.append(child)
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
            line = decoder.decode(raw)
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
