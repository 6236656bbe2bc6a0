"""The engine ended fatally while serving."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, RACE, TOGETHER
from forensics.analysis.rules._afterwards import Gone
from forensics.analysis.rules._afterwards import gone as afterwards
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.engines import PROFILES
from forensics.model import Finding, FindingRole, LogHit, LogSpan, Outcome, Severity, TimeRange

FAILED = ("torch-elastic-failed", "torch-elastic-first-failure", "torch-elastic-exitcode")
"""How torchrun's agent tells that a rank ended: it ends the others, and itself where no attempt is left."""
FRONT_ENDS = ("uvicorn-shutdown-complete", "uvicorn-stopping")
"""What a front says at its end, whether it was asked to or lost its engine."""
GOES_ON_NS = 300 * 10**9
"""So long the ranks that were not yet ended go on printing: each watchdog and each monitor has a limit of its own."""

SHOWN_NS = 30 * 10**9
"""An engine that serves prints its load every ten seconds."""


def evaluate(view: View) -> Iterator[Finding]:
    ends = [*view.ends, *_taken_down(view)]
    fatal = [h for h in ends if h.at and not _after_stop(view, h.at.earliest_ns) and not _of_a_start(view, h)]
    if not fatal and view.stopped_ns is None and view.replaced_ns is None:
        fatal = [h for h in ends if h.at is None]  # a log that tells no time at all
    asked = view.stopped_ns is not None
    gone = [s for c in view.cores if (s := view.state_of(c)) and view.ended(c)]
    told = [] if fatal or gone or asked or _never_served(view) else failed_by_death(view)
    # of samples in a folder nobody knows whether they were taken before
    bundled = any(n in view.case.bundled for n in view.nodes)
    if told and bundled and (view.moving or any(view.state_of(c) for c in view.cores)):
        raise CannotTell("requests failed as after an engine death, but the core was seen alive", "the log's beginning")
    if not (fatal or told) and (asked or not gone):
        if not asked and (end := afterwards(view)) is not None and end.how == "container" and not end.wanted and end.soon:
            yield from _cut_off(view, end)
        return
    # the newest death counts; a second fatal line within its teardown belongs to it
    newest = fatal[-1].at.earliest_ns if fatal and fatal[-1].at else None
    first = next((h for h in fatal if h.at and newest is not None and newest - h.at.earliest_ns < 60 * 10**9), fatal[0] if fatal else None)
    at = first.at if first else told[0].at if told else gone[0].at
    # that it is gone tells nobody who ended it, unless it would have said that it was asked
    unheard = view.profile.name == PROFILES[-1].name or not (view.outcome("log") or Outcome.DENIED).seen
    silent = bool(gone) and not (fatal or told) and (unheard or bool(view.hits_of(*FRONT_ENDS)))
    restarted = view.replaced_ns
    reason = first.fields.get("exc_type", "") if first else ""
    detail = f": {reason} {first.fields.get('exc_message', '')}".rstrip() if first and reason else ""
    back = f"; started again at {iso(restarted)}" if restarted else ""
    yield view.finding(
        "engine-died",
        # the front knows that the core is dead; what the core said of it was cut off
        grade(observed=bool(fatal or gone), agreeing=2, alternatives=["somebody stopped it"] if silent else ()),
        title=f"The engine {'is gone: its core ended' if silent else 'died'}{f' at {iso(at.earliest_ns)}' if at else ''}{detail}{back}",
        because=[
            *(h.ref for h in (*fatal[:3], *told[:3])),
            *(s.ref for s in gone[:2]),
            *(h.ref for h in view.events("told")[:1]),
        ],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        since=at,
        until=TimeRange(earliest_ns=restarted, latest_ns=restarted, basis="logged") if restarted else None,
        does_not_show="whether it broke or was told to stop: no line says either"
        if silent
        else "the cause: the core's own line is often the last of the chain, and its reason may be empty",
    )


def _cut_off(view: View, end: Gone) -> Iterator[Finding]:
    """The log of an engine at work stops, and the platform saw its container end at that moment."""
    shown = [i for i in view.progress.log if i.running and i.until_ns is not None and (view.ended_ns or 0) - i.until_ns <= SHOWN_NS]
    if view.starting or not view.progress.log:
        return
    yield view.finding(
        "engine-died",
        grade(observed=bool(shown), agreeing=2),
        title=f"The engine's log stops{' with requests running' if shown else ''}: {end.what}",
        because=[*end.because, *(r for i in shown[-1:] for r in i.refs)],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        nodes=[end.node],
        since=end.at,
        does_not_show="the cause: an exit code tells a signal at most, and not who sent it",
        would_settle=["the kernel log of this node", "the log of the container before this one (kubectl logs --previous)"],
    )


def failed_by_death(view: View) -> list[LogHit]:
    """Lines of a front that lost its core."""
    return [h for h in view.events("death-told") if h.at]


def _taken_down(view: View) -> list[LogHit]:
    """Ranks of a plain job that their own watchdog ended. Where the log goes on for long, an agent has started them again."""
    if view.engine.kind != "torchrun" and (view.progress.measured or view.events("ready", "timeout", "hang")):
        return []  # an engine has words of its own for its end
    ends = [s.last_ns for s in view.on_nodes(LogSpan) if s.last_ns is not None]
    hits = view.hits_of("torch-watchdog-aborts", "torch-watchdog-terminated", "torch-heartbeat-terminates", *FAILED)
    return [h for h in hits if h.at is None or max(ends, default=0) - h.at.latest_ns < GOES_ON_NS]


def _of_a_start(view: View, hit: LogHit) -> bool:
    """Whether the core's last word is that of a start that failed, which is told as such."""
    if hit.signature == "vllm-core-raised":
        return bool(view.events("start-failed")) and not view.events("ready")
    # before 0.9 the core said the same of a failed start as of an end in serving
    return hit.signature == "vllm-core-exception" and _never_served(view)


def _never_served(view: View) -> bool:
    return bool(view.events("start-failed")) and not view.events("ready") and not view.progress.log


def _after_stop(view: View, at_ns: int) -> bool:
    return view.stopped_ns is not None and at_ns >= view.stopped_ns


TEXTS = {
    "engine-died": Text(
        says=(
            "The engine's core or executor ended while serving, and nobody had asked it to. It is where the story ends, not where it began."
        ),
        establishes="Its own fatal line, or its process gone while requests were held.",
        lower="Supported: only the front says that its core is gone.",
        next_steps=(
            "look for the earliest ERROR of any worker: the core's own last line is often secondary (cancelled, a KeyError, "
            "an empty reason)",
        ),
        while_lasts=(EVIDENCE_FIRST,),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="engine_died",
    texts=TEXTS,
    about="The engine core (or its executor) ended fatally, or its process is gone, and nobody had asked it to stop.",
    any_of=("log", "process"),
    evaluate=evaluate,
    false_positives="An orderly stop kills its own workers: lines after a stop signal do not count.",
    references=("vllm v1/engine/core.py run_engine_core",),
)
