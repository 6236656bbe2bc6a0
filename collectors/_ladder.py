"""One target in one sample, read by whatever works: each reader bounded, in a process group of its own, and cleaned up after.

The ladder: a look at /proc and the kernel waits, which stop nothing; py-spy --native, where that was asked for; py-spy; py-spy
--nonblocking; pystack --no-block. Blocking mode pauses the target for some milliseconds and reads a consistent picture. It cannot
attach to a process that is already stopped, and waits without end for a thread in uninterruptible sleep while every other thread is
held: such targets are read without pausing, which for a process that does not move is just as exact.
"""

from __future__ import annotations

import time
from typing import Any

from collectors import _kernelwaits, _nested, _pyspy, _pystack
from collectors._contract import Emitter, FileSet, Target
from collectors._look import staying_in_d
from collectors._probe import NATIVE, PLAIN, PYSTACK, PYSTACK_ALL, UNPAUSED, Probe, Rung, Tools
from collectors._spawn import Child, Pool


class Dump(Probe):
    """The Python stacks of one target, down the ladder until something works, and its kernel waits."""

    def __init__(self, target: Target, sample: int, tools: Tools) -> None:
        super().__init__(target, sample, tools)
        self.waits: FileSet | None = None
        self.rungs: list[Rung] = []
        self.entry: list[str] = []
        """The command that enters the target's namespaces."""
        self.failed: list[tuple[Rung, _pyspy.Verdict]] = []

    def begin(self, pool: Pool) -> bool:
        self.started_ns = time.time_ns()
        self.before = before = self.look()
        if before is None:
            return False
        self.waits, sleeping = _kernelwaits.photograph(self.target.pid, before.inner is not None)
        hindrance = self.hindrance(staying_in_d(self.target.pid, sleeping))
        if hindrance:
            self.notes.append(hindrance)
        tools = self.tools
        if tools.py_spy:
            if not hindrance:
                self.rungs = [NATIVE, PLAIN] if tools.native and time.monotonic() < tools.native_until else [PLAIN]
            self.rungs.append(UNPAUSED)
            if before.inner is not None:
                self.entry, why = _nested.entry(self.target.pid, before)
                self.notes += [why] if why else []
        # last, though it stops nothing: it starts ten times as slowly, and its frames have no qualified names
        if not tools.native and before.inner is None and (tools.py_spy or tools.pystack):
            self.rungs.append(PYSTACK)
        if not self.rungs:
            self.verdict = _pyspy.NOT_FOUND
            return False
        if not tools.py_spy:
            self.failed.append((PLAIN, _pyspy.NOT_FOUND))
        return self.next(pool)

    def next(self, pool: Pool) -> bool:
        """Take the next rung. False, with the verdict set, when its reader cannot be started."""
        self.rung = rung = self.rungs.pop(0)
        if self.failed and self.waits:  # seconds may have passed, and a futex is worth little without the stack of its moment
            self.waits, _ = _kernelwaits.photograph(self.target.pid, bool(self.before and self.before.inner is not None))
        if rung.pystack:
            return self.spawn(pool, _pystack.command(str(self.tools.pystack), rung.flags, self.target.pid), self.tools.pystack_timeout_s)
        timeout_s = self.tools.native_timeout_s if rung is NATIVE else self.tools.timeout_s
        try:
            command = _pyspy.command(str(self.tools.py_spy), rung.flags, self.target.pid, self.before, self.entry)
        except OSError as error:  # it was there when we looked for it
            self.verdict = ("SKIPPED", f"py-spy could not be opened: {error.strerror}", "")
            return False
        return self.spawn(pool, command, timeout_s)

    def end(self, pool: Pool, child: Child) -> bool:
        self.restore(child)
        if self.look() is None and (child.rc != 0 or self.verdict is _pyspy.REUSED):
            return True  # it went away under the reader: that is the answer, whatever the reader made of it
        self.verdict = verdict = self.judge(child)
        if verdict[0] in ("OK", "EMPTY", "PARTIAL") or verdict in _pyspy.FINAL:
            return True
        self.failed.append((self.rung, verdict))
        if verdict in _pyspy.NO_PAUSE:
            self.rungs = [rung for rung in self.rungs if not rung.pauses]
        self.rungs = [rung for rung in self.rungs if not rung.pystack or len(self.rungs) > 1 or self.tools.pystack]
        if not self.rungs:
            # what py-spy says of the process tells more than what pystack does
            last = next((failure for failure in reversed(self.failed) if not failure[0].pystack), self.failed[-1])
            self.failed.remove(last)
            self.verdict = last[1]
            return True
        self.verdict = None
        return not self.next(pool)

    @property
    def worked(self) -> bool:
        return self.verdict is not None and self.verdict[0] in ("OK", "PARTIAL")

    @property
    def hopeless(self) -> bool:
        """Whether no other reader could do better."""
        return self.verdict in _pyspy.FINAL

    def deliver(self, emit: Emitter) -> None:
        outcome, reason, cure = self.verdict or ("FAILED", "no verdict", "please report this defect of the collector")
        with emit.attempt(self.target.name, pid=self.target.pid, sample=self.sample, started_ns=self.started_ns) as attempt:
            self.notes += [f"{rung.name} failed: {verdict[1]}" for rung, verdict in self.failed]
            if self.waits and self.verdict not in (_pyspy.GONE, _pyspy.REUSED, _pyspy.ZOMBIE):
                lack, cure_of_lack = _kernelwaits.lacks(self.waits)
                self.notes += [lack] if lack else []
                cure = cure or cure_of_lack  # said, but not counted: the word is that of the stacks, and those are whole
                about: dict[str, Any] = {"pid": self.target.pid, "sample": self.sample, "at_ns": self.waits.at_ns}
                source, cut = f"/proc/{self.target.pid}/task", bool(self.waits.truncated)
                name = f"stacks/wait-{self.stem}.json"
                attempt.evidence.append(emit.evidence(name, "fileset", self.waits.json(), source=source, truncated=cut, **about))
            if outcome == "UNSUPPORTED" and not self.tools.pystack:
                cure = cure or _pystack.CURE
            elif self.rung.pystack and not self.tools.py_spy:
                cure = cure or _pyspy.NOT_FOUND[2]
            attempt.end(outcome, self.say(reason), cure)
            if self.child and outcome in ("OK", "PARTIAL", "EMPTY"):
                name, kind = ("pystack-" + self.stem + ".txt", "pystack-text") if self.rung.pystack else (self.stem + ".json", "pyspy-json")
                attempt.evidence.append(self.send(emit, f"stacks/{name}", kind, self.child))


class NativeView(Probe):
    """All threads of one target with their native frames: the only view of NCCL and CUDA threads. Holds it for half a second."""

    def __init__(self, dump: Dump) -> None:
        super().__init__(dump.target, dump.sample, dump.tools)
        self.dump = dump
        self.before = dump.before

    def begin(self, pool: Pool) -> bool:
        self.started_ns = time.time_ns()
        now = self.look()
        if now is None:
            return False
        self.before, self.rung = now, PYSTACK_ALL
        sleeping = self.asleep()
        if now.inner is not None:
            self.verdict = _pystack.NESTED
        elif now.tracer or sleeping:
            self.notes.append(self.hindrance(sleeping))
            if self.dump.worked:  # without a pause it shows nothing that py-spy has not shown already
                self.verdict = _pystack.HELD if now.tracer else _pystack.ASLEEP
            self.rung = PYSTACK
        elif time.monotonic() >= self.tools.native_until:
            self.verdict = _pystack.SPENT
        elif now.stopped:  # which pystack, unlike py-spy, can attach to
            self.notes.append("the process is stopped")
        if self.verdict:
            return False
        command = _pystack.command(str(self.tools.pystack), self.rung.flags, self.target.pid)
        return self.spawn(pool, command, self.tools.pystack_timeout_s)

    def asleep(self) -> list[str]:
        try:
            return staying_in_d(self.target.pid)
        except OSError:
            return []  # it has just ended, which pystack will say

    def end(self, pool: Pool, child: Child) -> bool:
        self.restore(child)
        if self.look() is not None or (child.rc == 0 and self.verdict is not _pyspy.REUSED):
            self.verdict = self.judge(child)
        return True

    def deliver(self, emit: Emitter) -> None:
        outcome, reason, cure = self.verdict or ("FAILED", "no verdict", "please report this defect of the collector")
        what = f"native stacks of {self.target.name}"
        with emit.attempt(what, pid=self.target.pid, sample=self.sample, started_ns=self.started_ns) as attempt:
            text = bool(self.child and b"(most recent call last):" in self.child.stdout)
            if text and outcome == "TIMEOUT":  # thread by thread: what had come by then is whole
                outcome = "PARTIAL"
            attempt.end(outcome, self.say(reason), cure)
            if self.child and text:
                attempt.evidence.append(self.send(emit, f"stacks/pystack-{self.stem}.txt", "pystack-text", self.child))
