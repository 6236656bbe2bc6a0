"""A bounded queue is full and stays full: whoever puts into it waits for whoever should take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, QueueDepth, Severity


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving or view.stall is None:
        return
    readings: dict[tuple[str, int | None, str], list[QueueDepth]] = defaultdict(list)
    for queue in view.of(QueueDepth):
        if queue.kind == "live" and queue.capacity:
            readings[queue.node, queue.pid, queue.queue].append(queue)
    for (node, pid, _), seen in readings.items():
        process = view.process(node, pid)
        seen.sort(key=lambda q: q.sample)
        if process and all(q.depth == q.capacity for q in seen):
            yield _full(view, process, seen)


def _full(view: View, process: EngineProcess, seen: list[QueueDepth]) -> Finding:
    last = seen[-1]
    putting = set(last.putting).intersection(*(q.putting for q in seen))
    blocked = [t for t in view.threads_of(process) if t.tid in putting and t.moved is not True]
    names = ", ".join(f'"{t.name or t.tid}"' for t in blocked)
    main = any(t.main for t in blocked)
    return view.finding(
        "queue-at-capacity",
        grade(observed=len(seen) > 1 and bool(blocked), agreeing=len(seen)),
        title=f"{last.queue} of {view.name(process)} is full ({last.depth} of {last.capacity}) and nobody takes from it"
        + (f"; thread {names} waits for room" if names else ""),
        because=[seen[0].ref, last.ref, *(t.last.ref for t in blocked)],
        severity=Severity.CRITICAL if main else Severity.WARNING,
        # full by itself is back-pressure; what matters is that the thread that does the work waits for room
        role=FindingRole.ROOT if main else FindingRole.CONTEXT,
        processes=[process],
        since=view.stall.since if view.stall else seen[0].at,
        does_not_show="why its consumer does not take",
        would_settle=["the consumer thread's stack"],
        next_steps=["find the consumer: a larger queue alone does not repair who owns the item"],
    )


RULE = Rule(
    name="queue_capacity",
    emits=("queue-at-capacity",),
    about="While the engine stands still, a queue with a software bound is full in every reading.",
    requires=("objects",),
    optional=("stacks",),
    evaluate=evaluate,
    false_positives="Back-pressure is how such a queue works: with a consumer that takes, its depth is not full in every look.",
    references=("CPython Lib/queue.py: put blocks while qsize() >= maxsize > 0",),
)
