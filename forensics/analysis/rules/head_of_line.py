"""A failure that had to wait behind an unfinished result."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import NO_LONGER_LIMIT
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._raised import doubts, told_at, worker_exceptions
from forensics.analysis.stacks import place
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LiveValue, Severity

LATE_S = 30.0
"""The output rank's failure reaches the core within a step; later than this it was held up."""


def evaluate(view: View) -> Iterator[Finding]:
    seen = list(_seen_waiting(view))
    yield from seen
    if not seen:
        yield from _told_by_times(view)


def _seen_waiting(view: View) -> Iterator[Finding]:
    """The worker has failed, and the thread that would carry the failure stands inside an earlier result."""
    if view.moving:
        return
    for hit, process in worker_exceptions(view):
        if process is None or hit.at is None or told_at(view, hit) or process not in view.standing:
            continue
        # only the output rank's failures are sent at all
        if process.rank is None or process.rank.rank != view.output_rank:
            continue
        stuck = view.delivering(process)
        mine = (process.info.node, process.pid)
        queued = [v for v in view.of(LiveValue) if (v.node, v.pid) == mine and v.name == "async_output_queue" and not v.torn]
        if not stuck or not (stuck[0].steady and stuck[0].moved is False) or any(v.value == "0" for v in queued):
            continue
        learned = next((h for h in view.events("timeout") if h.at and hit.at.before(h.at)), None)
        end = learned.at if learned else None
        told = f"the engine learned of it at {iso(end.earliest_ns)}" if end else "the engine has not learned of it yet"
        frame, at = place(stuck[0]), stuck[0].samples[0].at
        where = f"{frame.name} ({frame.file}:{frame.line})" + (f" since {iso(at.earliest_ns)} at the latest" if at else "")
        yield view.finding(
            "failure-head-of-line-blocked",
            # a traceback alone may have been handled; a queue that holds something behind the result is what was not delivered
            grade(
                observed=hit.signature == "vllm-worker-exception" and bool(queued), alternatives=doubts(view, hit, process)[1], agreeing=2
            ),
            title=f"The failure of {view.name(process)} at {iso(hit.at.earliest_ns)} waits behind an unfinished result: "
            f'its delivery thread "{stuck[0].name}" stands in {where}; {told}',
            because=[
                hit.ref,
                stuck[0].samples[0].ref,
                stuck[0].last.ref,
                *(v.ref for v in queued[:1]),
                *([learned.ref] if learned else []),
            ],
            severity=Severity.CRITICAL,
            role=FindingRole.CASCADE,
            processes=[process],
            since=hit.at,
            until=end,
            does_not_show="why the result in front does not become ready",
        )


def _told_by_times(view: View) -> Iterator[Finding]:
    timeouts = [h for h in view.events("timeout") if h.at]
    if view.output_rank is None or not timeouts:
        return
    for hit, process in worker_exceptions(view):
        rank = process.rank.rank if process and process.rank else hit.rank
        if rank != view.output_rank or not hit.at or told_at(view, hit):
            continue
        learned = next((h for h in timeouts if h.at and hit.at.before(h.at)), None)
        if learned is None or not learned.at:
            continue
        late = (learned.at.earliest_ns - hit.at.earliest_ns) / SECOND
        if late < LATE_S:
            continue
        yield view.finding(
            "failure-head-of-line-blocked",
            # only the delivery thread's stack (or a recorder) would show what it waited behind
            grade(agreeing=2),
            title=f"The output rank failed {duration(late)} before the engine knew: its failure waited behind an unfinished result",
            because=[hit.ref, learned.ref],
            severity=Severity.WARNING,
            role=FindingRole.CASCADE,
            processes=[process] if process else [],
            since=hit.at,
            until=learned.at,
            does_not_show="which result stood in front: the delivery thread's stack was not captured",
            would_settle=["the stack of the worker's delivery thread during the stall"],
        )


TEXTS = {
    "failure-head-of-line-blocked": Text(
        says=(
            "A worker's failure sat behind an unfinished result in its response queue: the engine learnt of it only when the call timed "
            "out."
        ),
        establishes="The delivery thread's stack waiting for that result while the worker has already failed.",
        lower="Supported: from times alone, the worker's exception long before the engine's learning of it.",
        next_steps=("deliver failures past unfinished results, or bound the wait for a result", NO_LONGER_LIMIT),
    ),
}

RULE = Rule(
    name="head_of_line",
    texts=TEXTS,
    about="The output rank's failure, which is normally delivered at once, reached the core only when the call timed out.",
    requires=("log",),
    optional=("stacks", "objects"),
    evaluate=evaluate,
    false_positives="A failure on any other rank is never delivered at all: that is worker-exception-swallowed.",
    references=("vllm v1/executor/multiproc_executor.py WorkerAsyncOutputCopy",),
)
