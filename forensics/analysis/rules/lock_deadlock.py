"""Threads of one process that hold and wait for each other's locks: read in its memory, or guessed from stacks alone."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, NO_LONGER_LIMIT
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stacks import ThreadView
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, Severity
from forensics.model.graph import cycles

FUTEX = ("futex_wait", "futex_do_wait", "do_futex", "__futex_wait")


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving or view.stall is None:
        return
    read = list(_read(view))
    yield from read
    for process in view.standing:
        if any(process.pid in f.pids and process.info.node in f.nodes for f in read):
            continue
        blocked = [t for t in view.threads_of(process) if t.state == "lock" and t.steady and t.moved is not True]
        if len(blocked) < 2 or not any(t.main for t in blocked):
            continue
        files = [t.last.frames[0].file for t in blocked]
        together = [t for t in blocked if files.count(t.last.frames[0].file) > 1]
        if len(together) < 2 or _contradicted(view, process, together):
            continue
        names = " and ".join(f"{t.label} ({_place(t)})" for t in together[:3])
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


def _read(view: View) -> Iterator[Finding]:
    """Circles of lock waits: the waiter known by the word that the kernel holds it at, the holder by the lock or by a with block."""
    for edges in cycles([w for w in view.waits if w.via == "lock"]):
        threads = [w.waiter for w in edges]
        process = next(p for p in view.engine.processes if edges[0].waiter_at == (p.info.node, p.pid))
        weakest = min((w.grade for w in edges), key=lambda g: g.strength)
        locks = [lock for lock in view.locks if lock.process is process and any(w.detail == lock.words for w in edges)]
        short = {name: name.replace(f" of {view.name(process)}", "").replace(view.name(process), "the main thread") for name in threads}
        told = "; ".join(f"{short[w.waiter]} waits for {w.detail}, held by {short[w.waits_for]}" for w in edges)
        yield view.finding(
            "lock-deadlock",
            grade(observed=weakest is Grade.ESTABLISHED, agreeing=2 if weakest is Grade.SUPPORTED else 0),
            title=f"A thread of {view.name(process)} waits for a lock that it holds itself: {told}"
            if len(edges) == 1
            else f"Threads of {view.name(process)} wait for each other's locks: {told}",
            because=[*(r for lock in locks for r in lock.refs), *(w.ref for w in edges)],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            processes=[process],
            since=view.stall.since if view.stall else None,
            does_not_show=_unseen(weakest, [lock.kind for lock in locks]),
            next_steps=[
                "take the two locks in one order everywhere, or hold only one of them at a time",
                "do not raise the execution limit: this wait never ends",
            ],
        )


def _unseen(weakest: Grade, kinds: list[str]) -> str:
    if weakest is not Grade.ESTABLISHED:
        return "that the holders stood still meanwhile, inside a block of the lock"
    return "" if set(kinds) == {"RLock"} else "that nobody let go of a lock in the middle of its block: a plain lock stores no owner"


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


TEXTS = {
    "lock-deadlock": Text(
        says="Threads of one process hold and wait for each other's locks. It does not end by itself.",
        establishes=(
            "The waiter's futex address inside the lock object, and the holder: an RLock's owner field or a frame inside that lock's "
            "with block, in two samples."
        ),
        lower="Possible: from stacks alone. A plain Lock stores no owner.",
        next_steps=("take the locks in one order everywhere, or hold one for less", NO_LONGER_LIMIT),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="lock_deadlock",
    texts=TEXTS,
    about="Threads of one process hold and wait for each other's locks; from stacks alone, two are blocked in their own code.",
    requires=("stacks",),
    optional=("cpu", "objects"),
    evaluate=evaluate,
    false_positives="From stacks alone: two threads that both wait for one event, or inside native calls.",
    references=("CPython Python/thread_pthread.h: a lock is a semaphore or futex without an owner",),
)
