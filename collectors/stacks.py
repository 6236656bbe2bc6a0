"""Python stacks of every target, as `py-spy dump --json` prints them: one file a process and sample.

Blocking mode pauses the target for some milliseconds and reads a consistent picture. It cannot attach to a process that is
already stopped, and waits without end for a thread in uninterruptible sleep while every other thread is held:
such targets are read without pausing, which for a process that does not move is just as exact.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from collectors import _pyspy
from collectors._contract import Emitter, Request, Target, nothing_to_do, read_bounded
from collectors._look import Look, threads_in_d
from collectors._spawn import Child, Pool

TIMEOUT_S = 4.0
"""Bound of one py-spy. It takes 10 to 80 ms; without pausing, on a busy process, it has been seen to retry for 4.3 s."""
FOREMOST = -20
DUMP_LIMIT_BYTES = 16 * 1024 * 1024
PARALLEL_MAX = 4
PARALLEL_SATURATED = 8
"""On a saturated host each py-spy gets one task's share, so more of them end sooner: 8 x 100 threads on two processors beside
six spinners took 5.5 s one by one, 2.5 s by four, 1.3 s by eight."""
URGENCY = {"worker": 0, "core": 1, "coordinator": 2, "api": 3}


class Dump:
    """One target in one sample. The ladder: a look at /proc, blocking mode, reading without a pause."""

    def __init__(self, target: Target, sample: int, command: list[str], timeout_s: float) -> None:
        self.target, self.sample, self.command, self.timeout_s = target, sample, command, timeout_s
        self.started_ns = time.time_ns()
        self.child: Child | None = None
        self.before: Look | None = None
        self.blocking = True
        self.notes: list[str] = []
        self.verdict: _pyspy.Verdict | None = None
        """Set once the last word is spoken."""

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

    def begin(self, pool: Pool) -> bool:
        """Look, choose the mode, start py-spy. False when the verdict is in already."""
        self.started_ns = time.time_ns()
        self.before = before = self.look()
        if before is None:
            return False
        try:
            sleeping = threads_in_d(self.target.pid)
        except OSError:
            self.verdict = _pyspy.GONE
            return False
        if before.tracer:
            self.notes.append(f"traced by pid {before.tracer}")
        elif before.stopped:
            self.notes.append("the process is stopped")
        elif sleeping:
            self.notes.append(f"in uninterruptible sleep: thread {', '.join(sleeping[:4])}")
        self.blocking = not self.notes
        return self.spawn(pool)

    def spawn(self, pool: Pool) -> bool:
        command = [*self.command, str(self.target.pid)] + ([] if self.blocking else ["--nonblocking"])
        try:
            self.child = pool.start(command, self.timeout_s, DUMP_LIMIT_BYTES)
        except OSError as error:
            self.verdict = ("SKIPPED", f"py-spy could not be started: {error.strerror}", "free memory or processes on this host")
            return False
        if self.blocking:
            # the target stands still until py-spy is done: nothing of ours may come in between (permitted to root alone)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.child.pid, FOREMOST)
        return True

    def end(self, pool: Pool, child: Child) -> bool:
        """Take the child's result. False when py-spy runs again, without pausing this time."""
        self.restore(child)
        if self.look() is None and (child.rc != 0 or self.verdict is _pyspy.REUSED):
            return True  # it went away under py-spy: that is the answer, whatever py-spy made of it
        self.verdict = self.judge(child)
        if self.blocking and self.verdict[0] not in ("OK", "EMPTY", "PARTIAL") and self.verdict not in _pyspy.FINAL:
            self.notes.append(f"blocking mode failed: {self.verdict[1]}")
            self.blocking, self.verdict = False, None
            return not self.spawn(pool)
        return True

    def judge(self, child: Child) -> _pyspy.Verdict:
        if child.ending == "flooded":
            return "PARTIAL", f"more than {DUMP_LIMIT_BYTES} bytes of stacks: cut", ""
        if child.ending == "abandoned":
            return "TIMEOUT", f"py-spy pid {child.pid} cannot be killed and was abandoned", ""
        if child.ending == "timeout":
            return "TIMEOUT", f"py-spy gave no answer within {self.timeout_s:g} s", ""
        if child.rc != 0:
            return _pyspy.classify(child.stderr.decode("utf-8", "replace"))
        if not child.stdout.lstrip().startswith(b"["):
            return "UNSUPPORTED", "py-spy printed something else than JSON", ""
        if not child.stdout.strip(b"[] \n"):
            return "EMPTY", "py-spy found no Python thread", ""
        if self.blocking or (self.before is not None and self.before.stopped):
            return "OK", "", ""
        return "PARTIAL", "read without pausing the process: one stack may hold frames of two moments", ""

    def restore(self, child: Child) -> None:
        """Leave no target stopped that ran before. Only a blocking py-spy that had to be killed can have done that."""
        for pause_s in (0.0, 0.002, 0.01, 0.05):
            time.sleep(pause_s)  # a thread just released shows "t" until it is scheduled again
            try:
                now = Look(self.target.pid)
            except OSError:
                return
            if self.before is None or self.before.stopped or now.start_ticks != self.before.start_ticks:
                return
            if not now.stopped and (child.ending == "exited" or pause_s >= 0.01):  # a stop that was underway has taken effect by then
                return
        if now.tracer:
            self.notes.append(f"left in state t, held by pid {now.tracer}" + (" (our py-spy)" if now.tracer == child.pid else ""))
        elif self.blocking and child.ending != "exited":
            try:
                os.kill(self.target.pid, signal.SIGCONT)
                self.notes.append("our py-spy, killed, had left it stopped: continued")
            except OSError as error:
                self.notes.append(f"our py-spy, killed, has left it stopped, and it cannot be continued: {error.strerror}")
        else:
            self.notes.append("somebody stopped it while it was read")

    def deliver(self, emit: Emitter) -> None:
        outcome, reason, cure = self.verdict or ("FAILED", "no verdict", "please report this defect of the collector")
        pid, sample, child = self.target.pid, self.sample, self.child
        with emit.attempt(self.target.name, pid=pid, sample=sample, started_ns=self.started_ns) as attempt:
            attempt.end(outcome, "; ".join(filter(None, [reason, *self.notes])), cure)
            if child and outcome in ("OK", "PARTIAL", "EMPTY"):
                about: dict[str, Any] = {"pid": pid, "sample": sample, "at_ns": child.started_ns, "truncated": child.ending == "flooded"}
                source = " ".join(["py-spy", *child.command[1:]])
                name = f"stacks/pid-{pid}.{sample}.json"
                attempt.evidence.append(emit.evidence(name, "pyspy-json", bytes(child.stdout), source=source, **about))


def side_by_side() -> int:
    """How many py-spy to run at once: one for every two processors, because one that shares its processor holds its target longer.

    Where the host is saturated and we could not raise our priority, many at once end sooner than one after the other.
    """
    processors = len(os.sched_getaffinity(0))
    try:
        running = int(read_bounded("/proc/loadavg", 256)[0].split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        running = 0
    ahead = os.getpriority(os.PRIO_PROCESS, 0) < 0
    if running > 2 * processors and not ahead:
        return PARALLEL_SATURATED
    return max(1, min(PARALLEL_MAX, processors // 2))


def photograph(dumps: list[Dump], emit: Emitter) -> None:
    """Dump all of them, a few at a time, and deliver each as soon as it is there."""
    parallel = side_by_side()
    pool = Pool()
    running: dict[Child, Dump] = {}
    ready: list[Dump] = []
    try:
        while dumps or running or ready:
            while dumps and len(running) < parallel:
                dump = dumps.pop(0)
                if dump.begin(pool) and dump.child:
                    running[dump.child] = dump
                else:
                    ready.append(dump)
            while ready:  # only now, so that encoding runs beside the next py-spy instead of before it
                ready.pop(0).deliver(emit)
            for child in pool.wait():
                dump = running.pop(child)
                if dump.end(pool, child) or dump.child is None:
                    ready.append(dump)
                else:
                    running[dump.child] = dump
    finally:  # told to stop in the middle: nothing of ours may go on holding a target
        for child in pool.close():
            if child in running:
                running[child].restore(child)


def _stop(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def collect(request: Request, emit: Emitter) -> None:
    """Options: `timeout_s` of one py-spy, `py_spy` path of the program."""
    targets = sorted(request.targets, key=lambda t: (URGENCY.get(t.role, 4), t.rank if t.rank is not None else 1 << 30))
    program = None if request.sysroot else _pyspy.find(str(request.options.get("py_spy", "")))
    timeout_s = float(request.options.get("timeout_s", TIMEOUT_S))
    signal.signal(signal.SIGTERM, _stop)
    if not targets:
        nothing_to_do(emit, "stacks")
        return
    for sample in request.sampling():
        if program:
            photograph([Dump(t, sample, [program, "dump", "--json", "--pid"], timeout_s) for t in targets], emit)
            continue
        for target in targets:
            with emit.attempt(target.name, pid=target.pid, sample=sample) as attempt:
                attempt.end(*(("ABSENT", "no live processes in a recorded tree", "") if request.sysroot else _pyspy.NOT_FOUND))
