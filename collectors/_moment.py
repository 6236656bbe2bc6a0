"""One Python process at one moment, and second looks at its threads where a claim hangs on them."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

from collectors import _pyspy
from collectors._cpython import Process
from collectors._threads import Thread, at_futex, dump, runs, threads_of, tids

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

    def _dump(self) -> tuple[list[Any], list[Thread], _pyspy.Verdict]:
        raw = dump(self.program, self.process.pid, self.timeout_s)
        if not isinstance(raw, list):
            return [], [], raw
        try:
            return raw, threads_of(self.process, raw), ("OK", "", "")
        except (ValueError, TypeError, KeyError, AttributeError):
            return [], [], ("UNSUPPORTED", "py-spy printed something else than stacks", "")

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

    def stood(self, thread: Thread, depth: int) -> bool:
        if self.slept(thread):
            return True
        later, outer = self.second[1].get(thread.ident), len(thread.path) - depth
        return later is not None and later.path[-outer:] == thread.path[-outer:]
