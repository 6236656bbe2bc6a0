"""A reader of stacks at work on one target: bounded, in a process group of its own, and cleaned up after."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, NamedTuple

from collectors import _pyspy, _pystack
from collectors._contract import Emitter, Target
from collectors._look import Look, stop_pending
from collectors._spawn import Child, Pool

FOREMOST = -20
OUTPUT_BYTES = 16 * 1024 * 1024


class Tools(NamedTuple):
    """What there is to read with, and within which bounds."""

    py_spy: str | None
    pystack_told: str
    native: bool
    timeout_s: float
    native_timeout_s: float
    pystack_timeout_s: float
    native_until: float
    """Moment (monotonic) after which nothing is begun that holds a target for long."""

    @property
    def pystack(self) -> str | None:
        """Looked for when it is needed: where it is not installed, that takes as long as a py-spy."""
        return _pystack.find(self.pystack_told)


class Rung(NamedTuple):
    name: str
    flags: tuple[str, ...]
    pauses: bool
    pystack: bool = False


NATIVE = Rung("py-spy --native", ("--native",), True)
PLAIN = Rung("py-spy", (), True)
UNPAUSED = Rung("py-spy --nonblocking", ("--nonblocking",), False)
PYSTACK = Rung("pystack --no-block", ("--no-block",), False, True)
PYSTACK_ALL = Rung("pystack --native-all", ("--native-all",), True, True)


class Probe:
    """A reader at work on a target: /proc before it, its process, /proc after it."""

    def __init__(self, target: Target, sample: int, tools: Tools) -> None:
        self.target, self.sample, self.tools = target, sample, tools
        self.started_ns = time.time_ns()
        self.child: Child | None = None
        self.before: Look | None = None
        self.rung = PLAIN
        self.notes: list[str] = []
        self.verdict: _pyspy.Verdict | None = None
        """Set once the last word is spoken."""

    def begin(self, pool: Pool) -> bool:
        """Look at the target and start a reader. False when the verdict is in already."""
        raise NotImplementedError

    def end(self, pool: Pool, child: Child) -> bool:
        """Take the reader's result. False when another one runs now."""
        raise NotImplementedError

    def deliver(self, emit: Emitter) -> None:
        raise NotImplementedError

    def look(self) -> Look | None:
        """Look at the target; None, with the verdict set, when there is nothing (left) to read."""
        try:
            now = Look(self.target.pid)
        except OSError:
            self.verdict = _pyspy.GONE
            return None
        expected = self.before.start_ticks if self.before else self.target.start_ticks
        if expected is not None and now.start_ticks != expected:
            self.verdict = _pyspy.REUSED
        elif now.state in ("Z", "X"):
            self.verdict = _pyspy.ZOMBIE
        elif now.kernel_thread:
            self.verdict = _pyspy.KERNEL
        return None if self.verdict else now

    def spawn(self, pool: Pool, command: list[str], timeout_s: float) -> bool:
        """Start the reader of `self.rung`. False, with the verdict set, when no process can be made."""
        try:
            with _pystack.deep_stack() if self.rung.pystack else contextlib.nullcontext():
                self.child = pool.start(command, timeout_s, OUTPUT_BYTES)
        except OSError as error:
            self.verdict = ("SKIPPED", f"{self.rung.name} could not be started: {error.strerror}", "free memory or processes on this host")
            return False
        if self.rung.pauses:
            # the target stands still until the reader is done: nothing of ours may come in between (permitted to root alone)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.child.pid, FOREMOST)
        return True

    def judge(self, child: Child) -> _pyspy.Verdict:
        if child.ending == "flooded":
            return "PARTIAL", f"more than {OUTPUT_BYTES} bytes of stacks: cut", ""
        if child.ending == "abandoned":
            return "TIMEOUT", f"{self.rung.name} (pid {child.pid}) cannot be killed and was abandoned", ""
        if child.ending == "timeout":
            return "TIMEOUT", f"{self.rung.name} gave no answer within {child.timeout_s:g} s", ""
        stderr = child.stderr.decode("utf-8", "replace")
        judge = _pystack.judge if self.rung.pystack else _pyspy.judge
        verdict = judge(child.rc, bytes(child.stdout), stderr)
        if verdict[0] == "OK" and not self.rung.pauses and not (self.before and self.before.stopped):
            return "PARTIAL", "read without pausing the process: one stack may hold frames of two moments", ""
        return verdict

    def restore(self, child: Child) -> None:
        """Leave no target stopped, or about to be, that ran before. Only a pausing reader that had to be killed can have done that."""
        for pause_s in (0.0, 0.002, 0.01, 0.05):
            time.sleep(pause_s)  # a thread just released shows "t" until it is scheduled again
            try:
                now = Look(self.target.pid)
            except OSError:
                return
            if self.before is None or self.before.stopped or now.start_ticks != self.before.start_ticks:
                return
            if not now.stopped and (child.ending == "exited" or pause_s >= 0.01):  # a stop that was underway has taken effect by then
                break
        ours = self.rung.pauses and child.ending != "exited"
        if not now.stopped:
            # pystack attaches by SIGSTOP; a thread in the kernel takes it when it comes back, long after pystack is dead
            if ours and stop_pending(self.target.pid):
                self._resume("our reader, killed, had left a stop underway")
        elif now.tracer:
            self.notes.append(f"left in state t, held by pid {now.tracer}" + (" (our reader)" if now.tracer == child.pid else ""))
        elif ours:
            self._resume("our reader, killed, had left it stopped")
        else:
            self.notes.append("somebody stopped it while it was read")

    def _resume(self, what: str) -> None:
        try:
            os.kill(self.target.pid, signal.SIGCONT)  # discards a pending stop as well
            self.notes.append(f"{what}: continued")
        except OSError as error:
            self.notes.append(f"{what}, and it cannot be continued: {error.strerror}")

    def hindrance(self, sleeping: list[str]) -> str:
        """Why the target must not be paused, "" when it may be."""
        if self.before and self.before.tracer:
            return f"traced by pid {self.before.tracer}"
        if self.before and self.before.stopped:
            return "the process is stopped"
        return f"in uninterruptible sleep: thread {', '.join(sleeping[:4])}" if sleeping else ""

    def say(self, reason: str) -> str:
        return "; ".join(filter(None, [reason, *self.notes]))

    def send(self, emit: Emitter, name: str, kind: str, child: Child) -> str:
        program, *words = ["py-spy" if word.startswith("/proc/self/fd/") else word for word in child.command]
        source = " ".join([program.rpartition("/")[2], *words])
        about: dict[str, Any] = {"pid": self.target.pid, "sample": self.sample, "at_ns": child.started_ns}
        return emit.evidence(name, kind, bytes(child.stdout), source=source, truncated=child.ending == "flooded", **about)

    @property
    def stem(self) -> str:
        return f"pid-{self.target.pid}.{self.sample}"
