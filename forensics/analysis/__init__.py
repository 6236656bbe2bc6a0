"""Evidence to report: parse, join into engines, judge. Imports neither capture, report nor cli."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from forensics.model import Report


def analyze(paths: Sequence[str | Path]) -> Report:
    """Analyse bundles, folders of bare files, single files or "-".

    Returns one Report. Raises NothingToAnalyze when no input holds anything that a parser knows.
    """
    from forensics.analysis import engine, ingest, topology

    case = ingest.read_inputs(paths)
    topology.build(case)
    return engine.judge(case)


def __getattr__(name: str) -> object:
    if name == "NothingToAnalyze":
        from forensics.analysis.ingest import NothingToAnalyze

        return NothingToAnalyze
    raise AttributeError(name)


__all__ = ["NothingToAnalyze", "analyze"]
