"""Evidence to report: parse, join into engines, judge. Imports neither capture, report nor cli."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from forensics.model import Report

if TYPE_CHECKING:
    from forensics.analysis.ownrules import OwnRules


def analyze(
    paths: Sequence[str | Path],
    *,
    signature_folders: Sequence[str | Path] = (),
    hypotheses: Sequence[str] = (),
    own_rules: OwnRules | None = None,
    timing: bool = False,
) -> Report:
    """Analyse bundles, folders of bare files, single files or "-".

    signature_folders: an operator's own signatures, in force beside those that ship; one with a shipped id stands in its place.
    own_rules: an operator's own rules, beside those that ship (forensics.analysis.ownrules.load).
    timing: rule results tell how long each rule took.
    hypotheses: suspicions to answer beside those that are always answered: names of forensics.analysis.hypotheses.
    Returns one Report. Raises UnknownHypothesis for a name that is none of them, and NothingToAnalyze when no input holds anything
    that a parser knows.
    """
    from forensics.analysis import engine, ingest, topology
    from forensics.analysis import hypotheses as suspicions
    from forensics.analysis.signatures import using

    suspicions.check(hypotheses)
    with using([Path(f) for f in signature_folders]) as in_force:
        case = ingest.read_inputs(paths)
        topology.build(case)
        if in_force.own:
            case.meta["signatures"] = in_force.words()
        case.unread += [f"signature not used: {b}" for b in in_force.broken]
        case.timing = timing
        if own_rules is not None:
            case.own_rules = own_rules.rules
        report = engine.judge(case, hypotheses)
        if own_rules is not None and own_rules.broken:
            report = msgspec.structs.replace(report, rules=(*report.rules, *own_rules.broken))
        return report


def __getattr__(name: str) -> object:
    if name == "NothingToAnalyze":
        from forensics.analysis.ingest import NothingToAnalyze

        return NothingToAnalyze
    raise AttributeError(name)


__all__ = ["NothingToAnalyze", "analyze"]
