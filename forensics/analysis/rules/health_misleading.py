"""200 from health while nothing moves, or a failing probe while everything does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.progress import Interval
from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.rules._probes import failed_probes
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, Severity, ThreadStack, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    stall = view.stall
    failing = [h for h in view.health if h.status != 200 and "health" in h.url]
    if view.moving and failing:
        busy = failing[0].status is None
        yield view.finding(
            "health-probe-timeout-under-load" if busy else "health-endpoint-misleading",
            Grade.ESTABLISHED,
            title=f"The health probe failed ({failing[0].error or failing[0].status}) while the engine's counters moved",
            because=[*(h.ref for h in failing[:2]), *(r for i in view.progress.moving_metrics()[-1:] for r in i.refs)],
            severity=Severity.WARNING,
            since=failing[0].at,
            does_not_show="why the front did not answer in time",
            next_steps=["a restart on this probe would end an engine that works"],
        )
    yield from _probed(view)
    if stall is None:
        if not view.progress.measured and not view.of(ThreadStack):
            raise CannotTell("nobody saw whether the engine advances", "metrics")
        return
    end = stall.until.earliest_ns if stall.until else view.ended_ns
    refs: list[EvidenceRef] = []
    for hit in view.hits_of("http-health-access"):
        inside = hit.at and end and hit.at.earliest_ns >= stall.since.latest_ns and hit.at.latest_ns <= end + 10**9
        if hit.fields.get("status") == "200" and inside:
            refs.append(hit.ref)
    if stall.live:
        refs += [h.ref for h in view.health if h.status == 200 and "version" not in h.url]
    if refs:
        yield view.finding(
            "health-endpoint-misleading",
            stall.grade,
            title=f"The health endpoint said 200 ({len(refs)} times seen) while the engine stood still",
            because=[*refs[:4], *stall.because[:2]],
            severity=Severity.WARNING,
            role=FindingRole.CONTEXT,
            since=stall.since,
            until=stall.until,
            does_not_show="anything about the cause: this endpoint only asks whether the front still runs",
        )


def _probed(view: View) -> Iterator[Finding]:
    """Probes of a platform that failed while tokens flowed."""
    probes = failed_probes(view)
    told = [view.progress]
    if probes and not view.past and view.life:
        told.append(View(view.case, view.engine, view.life - 1).progress)  # the probe may have ended that life
    flowing = [i for p in told for i in (*p.log, *p.metrics) if i.moved and i.since_ns is not None and i.until_ns is not None]
    for late in (True, False):
        seen = [(p, i) for p in probes for i in flowing if p.late is late and p.at and _within(p.at, i)]
        if not seen or (not late and not any(re.search(r"50\d", p.why) for p, _ in seen)):
            continue
        first, interval = seen[0]
        yield view.finding(
            "health-probe-timeout-under-load" if late else "health-endpoint-misleading",
            Grade.ESTABLISHED,
            title=f"The {first.kind.lower()} probe {'got no answer in time' if late else 'failed'} while tokens flowed",
            because=[first.ref, *interval.refs],
            severity=Severity.WARNING,
            since=first.at,
            until=seen[-1][0].at,
            does_not_show="why the front did not answer in time" if late else "why the front said so",
            next_steps=["a restart on this probe would end an engine that works"],
        )


def _within(at: TimeRange, interval: Interval) -> bool:
    return interval.since_ns is not None and interval.until_ns is not None and interval.since_ns <= at.earliest_ns <= interval.until_ns


TEXTS = {
    "health-endpoint-misleading": Text(
        says="The health endpoint said the opposite of the truth: 200 while the engine stood still, or failing while it moved.",
        establishes="Both seen over the same interval.",
        lower="Supported: the two were not seen at the same time.",
        next_steps=("watch progress (iteration counters while requests are held), not health",),
        references=("vllm v1/engine/async_llm.py check_health: it reads a flag and never asks the engine",),
    ),
    "health-probe-timeout-under-load": Text(
        says="A probe ran into its limit because the front was busy; the engine was making progress.",
        establishes="The probe's failure, with counters that moved over the same interval.",
        next_steps=(
            "a restart on this probe would end an engine that works",
            "give the probe a longer limit and more failures before it acts",
        ),
    ),
}

RULE = Rule(
    name="health_misleading",
    texts=TEXTS,
    about="The health endpoint answered 200 during a stall, or failed while counters moved.",
    any_of=("health", "log"),
    evaluate=evaluate,
    false_positives="A probe that failed while the engine was starting, or with a limit shorter than a garbage collection of the front.",
    references=("vllm serve/instrumentator/health.py: asks for an error flag, never for progress",),
)
