"""The engine ended fatally while serving."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import CannotTell, Rule, grade
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    fatal = [h for h in view.ends if h.at and not _after_stop(view, h.at.earliest_ns)]
    asked = view.stopped_ns is not None
    gone = [s for c in view.cores if (s := view.state_of(c)) and view.ended(c)]
    told = [] if fatal or gone or asked else failed_by_death(view)
    # of samples in a folder nobody knows whether they were taken before
    bundled = any(n in view.case.bundled for n in view.nodes)
    if told and bundled and (view.moving or any(view.state_of(c) for c in view.cores)):
        raise CannotTell("requests failed as after an engine death, but the core was seen alive", "the log's beginning")
    if not (fatal or told) and (asked or not gone):
        return
    # the newest death counts; a second fatal line within its teardown belongs to it
    newest = fatal[-1].at.earliest_ns if fatal and fatal[-1].at else None
    first = next((h for h in fatal if h.at and newest is not None and newest - h.at.earliest_ns < 60 * 10**9), None)
    at = first.at if first else told[0].at if told else gone[0].at
    restarted = view.replaced_ns
    reason = first.fields.get("exc_type", "") if first else ""
    detail = f": {reason} {first.fields.get('exc_message', '')}".rstrip() if first and reason else ""
    back = f"; started again at {iso(restarted)}" if restarted else ""
    yield view.finding(
        "engine-died",
        # the front knows that the core is dead; what the core said of it was cut off
        grade(observed=bool(fatal or gone), agreeing=2),
        title=f"The engine died at {iso(at.earliest_ns) if at else 'an unknown time'}{detail}{back}",
        because=[
            *(h.ref for h in (*fatal[:3], *told[:3])),
            *(s.ref for s in gone[:2]),
            *(h.ref for h in view.events("told")[:1]),
        ],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        since=at,
        until=TimeRange(earliest_ns=restarted, latest_ns=restarted, basis="logged") if restarted else None,
        does_not_show="the cause: the core's own line is often the last of the chain, and its reason may be empty",
        next_steps=["restart all nodes of the engine together, never the head alone"],
    )


def failed_by_death(view: View) -> list[LogHit]:
    """Lines of a front that lost its core."""
    return [h for h in view.events("death-told") if h.at]


def _after_stop(view: View, at_ns: int) -> bool:
    return view.stopped_ns is not None and at_ns >= view.stopped_ns


RULE = Rule(
    name="engine_died",
    emits=("engine-died",),
    about="The engine core (or its executor) ended fatally, or its process is gone, and nobody had asked it to stop.",
    any_of=("log", "process"),
    evaluate=evaluate,
    false_positives="An orderly stop kills its own workers: lines after a stop signal do not count.",
    references=("vllm v1/engine/core.py run_engine_core",),
)
