"""Two captures beside each other: what changed, in which direction, and whether the load was comparable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from forensics.analysis.compare.arm import Arm, read_arm
from forensics.analysis.compare.asymmetric import RULE, judge_load
from forensics.analysis.compare.changes import changes
from forensics.model import Comparison

__all__ = ["RULE", "Arm", "compare", "compare_arms", "read_arm"]


def compare(before: Sequence[str | Path], after: Sequence[str | Path]) -> Comparison:
    """Analyse both sides and compare them. Raises NothingToAnalyze when a side holds nothing that a parser knows."""
    return compare_arms(read_arm(before), read_arm(after))


def compare_arms(before: Arm, after: Arm) -> Comparison:
    """The same of sides that were read. A pure function."""
    load = judge_load(before, after)
    return Comparison(
        before=before.report.inputs,
        after=after.report.inputs,
        verdicts=(before.report.verdict, after.report.verdict),
        roots=(before.report.root, after.report.root),
        captured=bool(before.case.captured) and bool(after.case.captured),
        changes=tuple(changes(before, after)),
        load=load.sentence,
        believe=load.believe,
        findings=tuple(RULE.compare(before, after)),
        unmatched=tuple(_unmatched(before, after)),
    )


def _unmatched(before: Arm, after: Arm) -> Iterator[str]:
    for here, there, side in ((before, after, "before"), (after, before, "after")):
        if missing := [n for n in here.case.nodes if n not in there.case.nodes]:
            yield f"node {', '.join(missing)} was seen only {side}"
        mine, theirs = here.places, there.places
        if missing := sorted(p for p in mine - theirs if p.partition(" ")[0] in there.case.nodes):
            yield f"{', '.join(missing[:8])}{f' and {len(missing) - 8} more' if len(missing) > 8 else ''}: seen only {side}"
