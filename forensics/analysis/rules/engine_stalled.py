"""Work is outstanding and nothing advances."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, NO_LONGER_LIMIT, RACE, TOGETHER
from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity, ThreadStack


def evaluate(view: View) -> Iterator[Finding]:
    stall = view.stall
    if stall is None:
        if not view.progress.measured and not view.of(ThreadStack):
            raise CannotTell("no counter, no stats line and no stack was read", "metrics", "stacks")
        return
    verb = "stood still" if stall.until else "stands still"
    yield view.finding(
        "engine-stalled",
        stall.grade,
        title=f"The engine {verb} with work outstanding: {stall.how}",
        because=stall.because,
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        since=stall.since,
        until=stall.until,
        does_not_show="; ".join((*stall.unsure, *filter(None, [stall.vague]))) or "which rank broke first: see who waits for whom",
        would_settle=["a second capture a minute later"] if stall.unsure else [],
    )


TEXTS = {
    "engine-stalled": Text(
        says="Work is outstanding and nothing advances. It says that it stands still, never why.",
        establishes=(
            "Two samples of progress evidence without movement while work is held: iteration counter, unread ring slots, identical "
            "stacks, open connections; or a stats line with running requests and no tokens that repeats, or is followed by silence and "
            "a timeout."
        ),
        lower="Supported: movement or held work was seen only once. Possible: the evidence ends before a second look.",
        while_lasts=(
            EVIDENCE_FIRST,
            "look at who waits for whom: the rank that spins is the victim, the culprit is stopped, asleep or idle",
            NO_LONGER_LIMIT,
        ),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="engine_stalled",
    texts=TEXTS,
    about="The engine holds work and neither its counters nor its threads advance.",
    any_of=("metrics", "log", "stacks"),
    optional=("sockets", "process"),
    evaluate=evaluate,
    false_positives="A single very long step (a huge prefill, a kernel compiled while serving) that outlasts the sampling window.",
    references=("vllm v1/executor/multiproc_executor.py get_response",),
)
