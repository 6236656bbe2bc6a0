"""One Python process at one moment, and second looks at its threads where a claim hangs on them."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

from collectors import _pyspy
from collectors._cpython import PeekError, Process
from collectors._cpython._roots import WORDS, dump
from collectors._threads import Thread, at_futex, blind, runs, threads_of, tids

CURE = "read on the node itself, as root with CAP_SYS_PTRACE; a sandbox (gVisor) or a hardened kernel may have no such file"
PASSING_S = 0.002
"""A waiting thread that a tracer has just looked at is on its way back to its wait: looked at once more after this."""


class Moment:
    """What py-spy and the kernel say of its threads. `verdict`: how that went; `raw`: the dump, of which only addresses may be used."""

    def __init__(self, process: Process, program: str, timeout_s: float) -> None:
        self.process, self.program, self.timeout_s = process, program, timeout_s
        self.before = {tid: runs(process.pid, tid) for tid in tids(process.pid)}
        self.at_ns = time.time_ns()
        self.raw, self.threads, self.verdict = self._dump()
        self.futexes = {tid: futex for tid in (t.tid for t in self.threads) if (futex := at_futex(process.pid, tid)) is not None}
        elsewhere = [t.tid for t in self.threads if t.tid not in self.futexes]
        if elsewhere:
            time.sleep(PASSING_S)
            self.futexes |= {tid: futex for tid in elsewhere if (futex := at_futex(process.pid, tid)) is not None}
        if self.threads and not self.futexes and (why := self._blind()):
            self.verdict = (
                "PARTIAL",
                f"no lock is told: the kernel does not say where threads wait (/proc/PID/task/TID/syscall: {why})",
                CURE,
            )

    def _blind(self) -> str:
        """Why nothing is known of where any thread waits; "" where something is."""
        reasons = []
        for tid in tids(self.process.pid):
            try:
                reasons.append(blind(self.process.pid, tid))
            except OSError:  # it has ended
                continue
        return "" if "" in reasons else next(iter(reasons), "")

    def _dump(self) -> tuple[list[Any], list[Thread], _pyspy.Verdict]:
        raw = dump(self.program, self.process.pid, self.timeout_s)
        if not isinstance(raw, list):
            return [], [], raw
        try:
            return raw, threads_of(self.process, raw), ("OK", "", "")
        except (ValueError, TypeError, KeyError, AttributeError):
            return [], [], WORDS
        except PeekError as error:
            return [], [], (error.outcome, str(error), error.cure)

    @cached_property
    def second(self) -> tuple[list[Any], dict[int, Thread]]:
        """Another dump, made when it is asked for: raw, and its threads by ident."""
        raw, threads, _ = self._dump()
        return raw, {thread.ident: thread for thread in threads}

    def futex(self, tid: int) -> int | None:
        found = at_futex(self.process.pid, tid)
        if found is None:
            time.sleep(PASSING_S)
            found = at_futex(self.process.pid, tid)
        return found

    def slept(self, thread: Thread) -> bool:
        """Whether the thread has not run at all since before its stack was read."""
        now = runs(self.process.pid, thread.tid)
        return bool(now) and now == self.before.get(thread.tid)
