"""Two threads of one process that wait inside calls of their own lines and do not move."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.stacks import ThreadView
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Severity

FUTEX = ("futex_wait", "futex_do_wait", "do_futex", "__futex_wait")


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving or view.stall is None:
        return
    for process in view.engine.processes:
        blocked = [t for t in view.threads_of(process) if t.state == "lock" and t.steady and t.moved is not True]
        if len(blocked) < 2 or not any(t.main for t in blocked):
            continue
        files = [t.last.frames[0].file for t in blocked]
        together = [t for t in blocked if files.count(t.last.frames[0].file) > 1]
        if len(together) < 2 or _contradicted(view, process, together):
            continue
        names = " and ".join(f'"{t.name or t.tid}" ({_place(t)})' for t in together[:3])
        yield view.finding(
            "lock-deadlock",
            # a plain lock stores no owner, and a frame does not name the lock: stacks alone allow no more than this
            grade(agreeing=1),
            title=f"Threads of {view.name(process)} may wait for each other's locks: {names}",
            because=[t.last.ref for t in together[:4]],
            severity=Severity.WARNING,
            role=FindingRole.ROOT,
            processes=[process],
            since=view.stall.since,
            does_not_show="which lock each waits for and who holds it: stacks do not say",
            would_settle=["the futex addresses and the lock objects, read live"],
        )


def _contradicted(view: View, process: EngineProcess, threads: list[ThreadView]) -> bool:
    """Whether the kernel says that one of them waits elsewhere than at a futex."""
    for thread in threads:
        wchans = [s.wchan for s in view.cpu_of(process, thread.tid) if s.wchan]
        if wchans and not any(w.startswith(FUTEX) for w in wchans):
            return True
    return False


def _place(thread: ThreadView) -> str:
    frame = thread.last.frames[0]
    return f"{frame.name}, {frame.file}:{frame.line}"


RULE = Rule(
    name="lock_deadlock",
    emits=("lock-deadlock",),
    about="At least two threads of one process, its main thread among them, are blocked in their own code and do not move.",
    requires=("stacks",),
    optional=("cpu",),
    evaluate=evaluate,
    false_positives="Two threads that both wait for one event, or inside native calls.",
    references=("CPython Python/thread_pthread.h: a lock is a semaphore or futex without an owner",),
)
