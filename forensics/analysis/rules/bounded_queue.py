"""A queue that software bounds refused an item."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forensics.analysis.rules._advice import QUEUE_OWNER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._raised import doubts, told_at, worker_exceptions
from forensics.analysis.rules._victims import REFUSALS
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, QueueDepth, Severity


def evaluate(view: View) -> Iterator[Finding]:
    for hit, process in worker_exceptions(view):
        if hit.fields.get("exc_type") not in REFUSALS:
            continue
        name = view.name(process) if process else hit.process or f"pid {hit.pid}"
        code = hit.fields.get("exc_code", "")
        read, unread = _read_live(view, process), "the queue's capacity and depth"
        outlived = not told_at(view, hit) and doubts(view, hit, process)[0]
        told = "the engine was told and ended" if told_at(view, hit) else "the engine was not told"
        yield view.finding(
            "bounded-queue-overflow",
            grade(observed=True),
            title=f"A bounded queue refused an item in {name} at {iso(hit.at.earliest_ns) if hit.at else '?'}: "
            f"{hit.fields['exc_type']} from {hit.fields.get('exc_at', '?')}; {told}"
            + "".join(f"; {q.queue} holds {q.depth} of {q.capacity}" for q in read),
            because=[hit.ref, *(q.ref for q in read), *([msgspec.structs.replace(hit.ref, quote=code)] if code else [])],
            severity=Severity.WARNING if outlived else Severity.CRITICAL,
            # a refusal that the engine must have outlived is a fact, and not the cause of what came later
            role=FindingRole.CONTEXT if outlived else FindingRole.ROOT,
            processes=[process] if process else [],
            ranks=[hit.rank] if hit.rank is not None and not process else [],
            since=hit.at,
            does_not_show=f"{'' if read else unread + ', and '}why its consumer did not take; more memory would not have helped",
            would_settle=["the consumer thread's stack while the queue is full", *([] if read else [f"{unread}, read live"])],
        )


def _read_live(view: View, process: EngineProcess | None) -> list[QueueDepth]:
    """The full queues of that process, each in its newest reading: one of them refused."""
    live = sorted((q for q in view.of(QueueDepth) if q.kind == "live"), key=lambda q: q.sample)
    mine = {q.queue: q for q in live if process and (q.node, q.pid) == (process.info.node, process.pid)}
    return [q for q in mine.values() if q.capacity and q.depth >= q.capacity]


TEXTS = {
    "bounded-queue-overflow": Text(
        says=(
            "A queue with a bound in software refused an item (queue.Full) and the worker that put it failed. More memory would not "
            "have helped."
        ),
        establishes="The exception of the put in a worker's traceback; capacity and depth are told when they were read.",
        lower="Supported: the engine says only that a worker failed with an empty reason, which is how queue.Full looks.",
        next_steps=(QUEUE_OWNER,),
    ),
}

RULE = Rule(
    name="bounded_queue",
    texts=TEXTS,
    about="A worker's put on a queue with a software bound failed because the queue was full.",
    requires=("log",),
    optional=("objects",),
    evaluate=evaluate,
    false_positives="Programs that use a full queue as back-pressure and catch it print no traceback.",
    references=("CPython Lib/queue.py: put_nowait raises queue.Full, whose text is empty",),
)
