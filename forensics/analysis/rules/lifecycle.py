"""Starting, ready, stopped on request, or failed to start."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.rules._victims import lost_peer
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, LogSpan, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    starts = [h for h in view.events("start", "core-start") if h.at]
    ready = [h for h in view.events("ready") if h.at]
    failed = view.events("start-failed")
    if starts:
        first = starts[0]
        assert first.at
        if ready:
            done = ready[-1]
            took = (done.at.earliest_ns - first.at.earliest_ns) / 1e9 if done.at else 0.0
            yield view.finding(
                "startup-completed",
                grade(observed=True),
                title=f"Start-up completed {duration(took)} after {iso(first.at.earliest_ns)}",
                because=[first.ref, done.ref],
                since=first.at,
                until=done.at,
            )
        elif view.starting:
            shown = max((h for h in view.hits if h.at), key=lambda h: h.at.latest_ns if h.at else 0)
            live = any(n in view.case.bundled for n in view.nodes)
            quiet_s = (view.ended_ns - (_last_line(view) or 0)) / SECOND if view.ended_ns else 0.0
            yield view.finding(
                "startup-in-progress",
                # only a start that was seen to advance while we looked is known to be going on
                grade(observed=live and quiet_s < QUIET_S, agreeing=2 if quiet_s < QUIET_S else 1),
                title="The engine is starting: no ready line yet, and ranks legitimately wait for each other for minutes",
                because=[first.ref, shown.ref],
                since=first.at,
                does_not_show="whether start-up itself is stuck: its calls have no limit",
                next_steps=["compare with the duration of an earlier start before calling this a hang"],
            )
    if failed:
        yield _start_failed(view, failed)
    yield from _stopped(view)


def _last_line(view: View) -> int | None:
    spans = [s.last_ns for s in view.on_nodes(LogSpan) if s.last_ns is not None]
    return max(spans, default=None)


def _start_failed(view: View, failed: list[LogHit]) -> Finding:
    workers = [h for h in failed if h.role == "root"]
    first = (workers or failed)[0]
    process = view.process(first.node, first.pid)
    kind, message = first.fields.get("exc_type", ""), first.fields.get("exc_message", "")
    reason = f"{kind} {message}".strip()
    return view.finding(
        "worker-start-failed",
        grade(observed=bool(workers), agreeing=2),
        title=f"{view.name(process) if process else first.process} failed before it was ready{': ' + reason if reason else ''}",
        because=[h.ref for h in (workers or failed)[:3]],
        severity=Severity.CRITICAL,
        # one that waited in vain for the others is their victim
        role=FindingRole.ROOT if workers and not lost_peer(kind, message) else FindingRole.CASCADE,
        processes=[process] if process else [],
        since=first.at,
    )


def _stopped(view: View) -> Iterator[Finding]:
    if view.stopped_ns is None:
        return
    asked = [h for h in view.events("stop") if h.at and h.at.earliest_ns == view.stopped_ns]
    restarted = view.replaced_ns
    yield view.finding(
        "orderly-shutdown",
        grade(observed=True),
        title=f"Somebody stopped the engine at {iso(view.stopped_ns)}",
        because=[h.ref for h in asked[:2]],
        role=FindingRole.CONTEXT,
        since=asked[0].at,
        until=TimeRange(earliest_ns=restarted, latest_ns=restarted, basis="logged") if restarted else None,
        does_not_show="who sent the signal",
    )


QUIET_S = 120.0
"""A start that prints nothing for longer may itself be stuck."""

RULE = Rule(
    name="lifecycle",
    emits=("startup-in-progress", "startup-completed", "worker-start-failed", "orderly-shutdown"),
    about="Where the engine is in its life: starting, ready, failed to start, stopped on request.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="The launcher prints shutdown lines after an engine death too; a fatal line before them decides.",
)
