"""A bounded queue is full and stays full: whoever puts into it waits for whoever should take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, QUEUE_OWNER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, QueueDepth, Severity


def evaluate(view: View) -> Iterator[Finding]:
    processes = {(p.info.node, p.pid): p for p in view.standing}
    readings: dict[tuple[str, int | None, int | str], dict[int, QueueDepth]] = defaultdict(dict)
    for queue in view.of(QueueDepth):
        if queue.kind == "live" and queue.capacity and (queue.node, queue.pid) in processes:
            readings[queue.node, queue.pid, queue.address or queue.queue][queue.sample] = queue
    for (node, pid, _), looks in readings.items():
        seen = [looks[sample] for sample in sorted(looks)]
        if pid is not None and view.fresh(seen[-1]) and all(q.depth == q.capacity for q in seen):
            yield from _full(view, processes[node, pid], seen)


def _full(view: View, process: EngineProcess, seen: list[QueueDepth]) -> Iterator[Finding]:
    last = seen[-1]
    threads = {t.tid: t for t in view.threads_of(process)}
    putting = set(last.putting).intersection(*(q.putting for q in seen))
    blocked = [t for tid in putting if (t := threads.get(tid)) and t.moved is not True]
    takers = [t for tid in (*last.takers, *last.getting) if (t := threads.get(tid))]
    # full is how a bounded queue holds its producers back; it is a standstill when one waits and nobody takes
    if not blocked or any(t.moved for t in takers):
        return
    main = any(t.main for t in blocked)
    # a consumer that waits for its device or for other ranks is a victim as well
    beyond = any(t.state in ("collective", "gpu-sync") for t in takers)
    taker = f", which thread {takers[0].label} should" if takers else ""
    yield view.finding(
        "queue-at-capacity",
        grade(observed=len(seen) > 1, agreeing=1 + bool(takers), whole=view.stall is not None and view.stall.grade is Grade.ESTABLISHED),
        title=f"{last.queue} of {view.name(process)} is full ({last.depth} of {last.capacity}) and nobody takes from it{taker}; "
        f"thread {', '.join(t.label for t in blocked)} waits for room",
        because=[seen[0].ref, last.ref, *(t.last.ref for t in (*blocked, *takers))],
        severity=Severity.CRITICAL if main else Severity.WARNING,
        # what matters is that the thread that does the work waits for room
        role=FindingRole.CONTEXT if not main else FindingRole.CASCADE if beyond else FindingRole.ROOT,
        processes=[process],
        since=view.stall.since if view.stall else seen[0].at,
        does_not_show="why its consumer does not take",
        would_settle=[] if takers else ["the consumer thread's stack"],
    )


TEXTS = {
    "queue-at-capacity": Text(
        says="A bounded queue is full and its consumer does not take.",
        establishes="Depth equal to the bound in two samples, with the consumer's stack unmoved.",
        lower="Supported: the consumer was not seen.",
        next_steps=(QUEUE_OWNER,),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="queue_capacity",
    texts=TEXTS,
    about="While the engine stands still, a queue with a software bound is full in every reading.",
    requires=("objects",),
    optional=("stacks",),
    evaluate=evaluate,
    false_positives="Back-pressure: a queue behind a slow consumer is full in every look; a consumer that moves is therefore no case.",
    references=("CPython Lib/queue.py: put blocks while qsize() >= maxsize > 0",),
)
