"""comparison-asymmetric: two captures that are compared carried different load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.compare.arm import Arm
from forensics.analysis.compare.changes import compare_figures
from forensics.analysis.compare.facts import Fact, Key
from forensics.analysis.compare.load import CARRIED, DECIDE, OUTSTANDING, load_of
from forensics.analysis.rules import PairRule, Text, grade
from forensics.model import Direction, EvidenceRef, Figure, Finding, FindingRole, Severity

LOAD_RATIO = 1.2
"""Load of one kind that differs by less than a fifth is comparable: gauges of a serving engine move by as much from second to second."""
FAILED = ("dead", "stalled", "degraded")
FINE = ("healthy",)


@dataclass(frozen=True)
class Load:
    """How the load of two sides relates."""

    relation: str
    """comparable | more | less | other | unknown: of the side after"""
    sentence: str
    believe: str
    refs: tuple[EvidenceRef, ...] = ()
    sampled: bool = True
    """Each figure that decides has more than one sample on both sides, or is a mean over many requests."""


def judge_load(before: Arm, after: Arm) -> Load:
    """A pure function over both sides."""
    mine, theirs = _named(load_of(before)), _named(load_of(after))
    both = [w for w in DECIDE if w in mine and w in theirs]
    if OUTSTANDING not in both and CARRIED in mine and CARRIED in theirs:
        both.append(CARRIED)
    if not both:
        sides = " and ".join(side for side, said in (("before", mine), ("after", theirs)) if not said) or "on one side or the other"
        return Load("unknown", f"Whether the load was comparable is not known: no counter tells it ({sides}).", _BELIEVE["unknown"])
    told, moves, refs, sampled = [], set(), [], True
    for what in both:
        a, b = mine[what].value, theirs[what].value
        assert isinstance(a, Figure) and isinstance(b, Figure)
        moved = _differs(a, b)
        moves |= {moved} - {Direction.SAME}
        told.append(f"{what} {a.value:.4g} before, {b.value:.4g} after")
        refs += [*mine[what].refs, *theirs[what].refs]
        if moved is not Direction.SAME and what in (OUTSTANDING, CARRIED):
            sampled = sampled and min(a.samples, b.samples) > 1
    relation = "comparable" if not moves else "other" if len(moves) > 1 else "more" if Direction.UP in moves else "less"
    figures = "; ".join(told)
    words = {
        "comparable": "The load was comparable",
        "more": "The side after carried more load",
        "less": "The side after carried less load",
        "other": "The two sides carried load of another kind",
    }
    lacking = [w for w in DECIDE if w not in both]
    gap = f" Not compared, since not read on both sides: {', '.join(lacking)}." if lacking else ""
    return Load(relation, f"{words[relation]}: {figures}.{gap}", _believe(relation, before, after), tuple(dict.fromkeys(refs)), sampled)


def _named(load: dict[Key, Fact]) -> dict[str, Fact]:
    return {key.what: fact for key, fact in load.items()}


def _differs(a: Figure, b: Figure) -> Direction:
    moved = compare_figures(a, b)
    small, large = sorted((a.value, b.value))
    return moved if large > small * LOAD_RATIO else Direction.SAME


_BELIEVE = {
    "unknown": "Neither direction of a result is backed: the load of the two sides is not known to be alike.",
    "comparable": "As far as load goes, a difference in either direction may be believed.",
    "other": "Neither direction may be believed: load of another kind may explain a better result as well as a worse one.",
}


def _believe(relation: str, before: Arm, after: Arm) -> str:
    if relation in _BELIEVE:
        return _BELIEVE[relation]
    was, now = before.report.verdict.state, after.report.verdict.state
    lighter, heavier = ("before", "after") if relation == "more" else ("after", "before")
    general = (
        f"A better result of the side {heavier}, which carried more load, may be believed all the more; a better result of the "
        f"side {lighter} may not: less load may explain it."
    )
    outcome = {(True, False): "an improvement", (False, True): "a worsening"}.get((was in FAILED, now in FAILED))
    if outcome is None or (was not in (*FAILED, *FINE) or now not in (*FAILED, *FINE)):
        return general
    backed = (relation == "more") == (outcome == "an improvement")
    verdict = (
        "may be believed: the load speaks against it, and it came all the same"
        if backed
        else "may not be believed: the load may explain it"
    )
    return f"Here {was} became {now}: as {outcome} that {verdict}. {general}"


def compare_load(before: Arm, after: Arm) -> Iterator[Finding]:
    load = judge_load(before, after)
    if load.relation not in ("more", "less", "other") or not load.refs:
        return
    # the gauges of an engine that stands still tell of its last step: requests that came since are not in them
    whole = load.sampled and not before.standing and not after.standing
    yield Finding(
        id="comparison-asymmetric",
        grade=grade(observed=True, whole=whole),
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        title=load.sentence,
        because=load.refs[:12],
        nodes=tuple(dict.fromkeys((*before.case.nodes, *after.case.nodes))),
        does_not_show="the load outside the seconds of the captures, nor how often a failure comes under either; " + load.believe,
        next_steps=TEXTS["comparison-asymmetric"].next_steps,
    )


TEXTS = {
    "comparison-asymmetric": Text(
        says="Two captures that are compared carried different load: a difference may come from the load, and not from the change.",
        establishes=(
            "Counters of both captures, sampled more than once while both engines advanced: requests outstanding, lengths of prompts and "
            "answers. A difference of less than a fifth, or within the noise of the samples, is none."
        ),
        lower="Supported where an engine stood still: its gauges tell of its last step, and requests that came since are not in them.",
        false_positives="Load that breathes: two captures of a few seconds may meet it at different moments.",
        next_steps=("repeat the arm with less load at the load of the other; only a result against the load's direction may be believed",),
    )
}
RULE = PairRule(
    name="comparison_asymmetric",
    texts=TEXTS,
    about="Two sides that are compared carried different load.",
    any_of=("metrics", "log"),
    compare=compare_load,
)
