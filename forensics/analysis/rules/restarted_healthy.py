"""A supervisor restarted an engine that was making progress, because a probe of it had failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.episodes import point
from forensics.analysis.progress import Interval
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._probes import Probe, events, failed_probes
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, PlatformEvent, Severity

RECENT_NS = 30 * SECOND
"""Movement that was told this shortly before an end says that the engine was well then: stats lines are ten seconds apart."""
PROBES_NS = 900 * SECOND
LIVENESS = re.compile(r"(?i)fail\w* (?:liveness|startup) probe|will be restarted|unhealthy")


def evaluate(view: View) -> Iterator[Finding]:
    if view.past:
        return
    probes = [p for p in failed_probes(view) if p.kind != "Readiness"]  # a readiness probe restarts nothing
    if not probes:
        return
    for life in range(max(0, view.life - 4), view.life + 1):
        lived = view if life == view.life else View(view.case, view.engine, life)
        end, why = _end(lived)
        if end is None:
            continue
        mine = [p for p in probes if p.at is None or end - PROBES_NS <= p.at.earliest_ns <= end + SECOND]
        moved = [i for i in lived.progress.log if i.moved and i.until_ns is not None and end - RECENT_NS <= i.until_ns <= end + SECOND]
        if mine and moved and not lived.events("fatal", "timeout", "worker-death"):
            yield _finding(lived, end, mine, moved, why)


def _end(view: View) -> tuple[int | None, list[PlatformEvent]]:
    """When this life was ended from outside, as a stop, a kill or the next start tells."""
    kills = [e for e in events(view) if e.reason in ("Killing", "BackOff") or "will be restarted" in e.text]
    if view.stopped_ns is not None:
        return view.stopped_ns, kills
    if view.replaced_ns is not None:
        last = max((i.until_ns for i in view.progress.log if i.until_ns is not None), default=None)
        return (last if last is not None else view.replaced_ns), kills
    # the present life: only a kill after which nothing more was written ended it
    ended = view.ended_ns
    killed = [e.at.latest_ns for e in kills if e.reason == "Killing" and e.at]
    if killed and ended is not None and ended <= max(killed) + 2 * RECENT_NS and (view.begun_ns or 0) < max(killed):
        return ended, kills
    return None, []


def _finding(view: View, end: int, probes: list[Probe], moved: list[Interval], why: list[PlatformEvent]) -> Finding:
    # who stops an engine gives no reason: that it was for the probe only the platform says
    said = any(LIVENESS.search(e.text) and (e.at is None or abs(e.at.earliest_ns - end) <= PROBES_NS) for e in why)
    after = [p for p in probes if p.at and moved[-1].until_ns and moved[-1].until_ns >= p.at.latest_ns]
    return view.finding(
        "healthy-engine-restarted",
        grade(observed=bool(after) and said, agreeing=2),
        title=f"The engine was ended at {iso(end)} {'for' if said else 'after'} a failed probe, while tokens flowed "
        f"({moved[-1].rate or 0:g} tokens/s)",
        because=[probes[0].ref, probes[-1].ref, *moved[-1].refs, *(e.ref for e in why[:2])],
        severity=Severity.WARNING,
        role=FindingRole.ROOT,
        since=probes[0].at,
        until=point(end),
        does_not_show=("why the probe got no answer in time" if probes[-1].late else "why the probe was answered as it was")
        + ("" if said else "; that the probe is why: whoever rolls out a new version stops it in the same way"),
        would_settle=[] if said else ["the platform's events around that moment (kubectl get events)"],
    )


TEXTS = {
    "healthy-engine-restarted": Text(
        says="A supervisor restarted an engine that was making progress: the probe, not the engine, failed.",
        establishes="Progress after the probe failed, and the supervisor's restart.",
        next_steps=("let the probe ask for progress, or give it a longer limit: the restart lost the requests and the cache",),
    ),
}

RULE = Rule(
    name="restarted_healthy",
    texts=TEXTS,
    about="A liveness or start-up probe failed, the engine went on making progress, and was restarted.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="A restart for another reason (a new version) in the minutes after a failed probe.",
    references=("Kubernetes pkg/kubelet/kuberuntime: Container NAME failed liveness probe, will be restarted",),
)
