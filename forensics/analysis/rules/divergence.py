"""Ranks of one group stand at different places: some inside a collective, one outside. The one outside is the suspect."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._divergence_counts import by_counts
from forensics.analysis.rules._executor_places import by_places
from forensics.analysis.rules._positions import need_witness
from forensics.analysis.rules._raised import worker_exceptions
from forensics.analysis.stacks import AMBIGUOUS, IDLE, STATES, ThreadView, operation, place
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, Severity

Member = tuple[EngineProcess, ThreadView]


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving:
        return
    found = list(_by_stacks(view)) if view.stall else []
    # a stack shows where each rank is; counts are heard where there is none, or where they are the firmer word
    best = max((f.grade.strength for f in found), default=0)
    found = [f for f in by_counts(view) if f.grade.strength > best] or found or list(by_places(view))
    if not found:
        need_witness(view)
    yield from found


def _by_stacks(view: View) -> Iterator[Finding]:
    raised = [p for _, p in worker_exceptions(view) if p]
    for workers in view.groups:
        group = [(worker, thread) for worker in workers if (thread := view.main_thread(worker))]
        # where a stopped process stands says when it was stopped, not what it waits for
        inside = [m for m in group if m[1].state == "collective" and m[1].steady and not view.stopped(m[0])]
        outside = [m for m in group if m[1].steady and m[1].state != "collective" and (m[1].state not in AMBIGUOUS or view.stopped(m[0]))]
        whole = len(inside) + len(outside) == len(workers) and _all_known(view)
        if inside and outside and len(outside) < max(len(inside) + 1, 2):
            explained = all(m[0] in raised or view.stopped(m[0]) or view.ended(m[0]) for m in outside)
            yield _outside(view, inside, outside, whole, explained)
        elif len(inside) == len(group) and len(group) > 1:
            operations = {operation(t) for _, t in group}
            if len(operations) > 1 and "" not in operations:
                yield _different(view, inside, operations, whole)


def _all_known(view: View) -> bool:
    return view.engine.world_size is None or len(view.workers) >= view.engine.world_size


def _during(view: View, members: list[Member]) -> bool:
    """Whether the stacks were taken while the engine stood still: by a capture that saw it, or, mailed with a log, by their own times."""
    stall = view.stall
    if stall is None or stall.live:
        return stall is not None
    over = [h.at.latest_ns for h in view.events("fatal", "death-told") if h.at]
    end = min([*over, *([stall.until.latest_ns] if stall.until else [])], default=None)
    times = [s.at for _, t in members for s in t.samples]
    return all(at is not None and at.earliest_ns >= stall.since.earliest_ns and (end is None or at.latest_ns <= end) for at in times)


def _outside(view: View, inside: list[Member], outside: list[Member], whole: bool, explained: bool) -> Finding:
    first = outside[0][1]
    # once seen is a photograph of a moment that also a healthy step passes through: two samples, and the same place in both
    twice = all(len(t.samples) > 1 and not (t.moved and t.state in ("running", "lock")) for _, t in (*inside, *outside))
    # between two calls every rank is idle for an instant: once seen there is no more than a hint
    at_work = any(t.moved and t.state in ("running", "lock") for _, t in outside)
    stall = view.stall
    assert stall
    # nor does anybody wait in vain where it is not known that the engine stands still
    unsure = stall.grade.strength < Grade.SUPPORTED.strength and not explained
    hint = at_work or unsure or (not twice and first.state in IDLE)
    names = ", ".join(view.name(p) for p, _ in outside)
    where = place(first) if first.last.frames else None
    at = f" in {where.name} ({where.file}:{where.line})" if where else ""
    doing = "stopped" if view.stopped(outside[0][0]) else STATES[first.state]
    return view.finding(
        "rank-divergence-collective",
        grade(observed=twice and stall.grade.strength == 3 and _during(view, [*inside, *outside]), agreeing=0 if hint else 2, whole=whole),
        title=f"{names} is outside the collective that {len(inside)} other rank(s) wait in: {doing}{at}",
        because=[*(t.last.ref for _, t in outside), *(t.last.ref for _, t in inside[:3]), *stall.because[:2]],
        severity=Severity.CRITICAL,
        # a rank that raised, or that the kernel holds, is outside for a reason that another finding names
        role=FindingRole.CASCADE if explained else FindingRole.ROOT,
        processes=[p for p, _ in outside],
        since=stall.since,
        does_not_show="why it does not come; the ranks that spin inside the collective are its victims",
        would_settle=[] if twice else ["a second stack sample of every rank"],
        next_steps=[f"look at {names} first: its stack, its last log lines, its node"],
    )


def _different(view: View, inside: list[Member], operations: set[str], whole: bool) -> Finding:
    return view.finding(
        "rank-divergence-collective",
        grade(observed=all(len(t.samples) > 1 for _, t in inside) and _during(view, inside), agreeing=2, whole=whole),
        title=f"Ranks stand at different collectives: {', '.join(sorted(operations))}",
        because=[t.last.ref for _, t in inside[:6]],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        processes=[p for p, _ in inside],
        since=view.stall.since if view.stall else None,
        does_not_show="which of them is at the right one",
        would_settle=["flight recorder or RAS operation counts of every rank"],
    )


TEXTS = {
    "rank-divergence-collective": Text(
        says=(
            "While the engine stands still, ranks stand at different collectives, or one is outside the one that the others wait in. "
            "That rank is where to look."
        ),
        establishes="Two stack samples, or flight recorder or RAS counts, of all concerned ranks.",
        lower="Supported: one sample, or a rank that was not seen.",
        next_steps=("look at the rank that is outside first: its stack, its last log lines, its node",),
        while_lasts=(EVIDENCE_FIRST,),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="divergence",
    texts=TEXTS,
    about="While the engine stands still, one rank is outside the collective that its peers wait in, or they stand at different ones.",
    optional=("stacks", "log", "metrics"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A slow rank inside its step: while any counter moves nothing is claimed.",
    references=("STAT: several samples tell stuck from moving",),
)
