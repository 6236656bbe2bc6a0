"""A failure that had to wait behind an unfinished result."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.rules._raised import told_at, worker_exceptions
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity

LATE_S = 30.0
"""The output rank's failure reaches the core within a step; later than this it was held up."""


def evaluate(view: View) -> Iterator[Finding]:
    timeouts = [h for h in view.hits_of("vllm-rpc-timeout") if h.at]
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


RULE = Rule(
    name="head_of_line",
    emits=("failure-head-of-line-blocked",),
    about="The output rank's failure, which is normally delivered at once, reached the core only when the call timed out.",
    requires=("log",),
    optional=("stacks",),
    evaluate=evaluate,
    false_positives="A failure on any other rank is never delivered at all: that is worker-exception-swallowed.",
    references=("vllm v1/executor/multiproc_executor.py WorkerAsyncOutputCopy",),
)
