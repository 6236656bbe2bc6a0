"""One side of a comparison: its evidence, its report, and names for its processes that outlive a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from forensics.analysis.case import Case
from forensics.analysis.view import View
from forensics.model import EngineProcess, Figure, Report


@dataclass
class Arm:
    """One side, analysed."""

    case: Case
    report: Report

    @cached_property
    def views(self) -> list[View]:
        return [View(self.case, engine) for engine in self.case.engines]

    @cached_property
    def places(self) -> set[str]:
        return {place(p) for v in self.views for p in v.engine.processes}

    def seen(self, *sources: str) -> bool:
        """Whether any of these sources was read of any engine, so that what is not there was not there."""
        return any((o := v.outcome(s)) is not None and not o.blind for v in self.views for s in sources)

    @cached_property
    def standing(self) -> bool:
        """Whether an engine stands still at the end: its gauges then tell of the last step that ended."""
        return any(v.stall is not None and v.stall.until is None and not v.moving for v in self.views)


def read_arm(paths: Sequence[str | Path]) -> Arm:
    """Read and judge one side. Raises NothingToAnalyze."""
    from forensics.analysis import engine, ingest, topology
    from forensics.analysis.signatures import home_folder, using

    with using([f for f in (home_folder(),) if f]):
        case = ingest.read_inputs(paths)
        topology.build(case)
        return Arm(case, engine.judge(case))


def place(process: EngineProcess) -> str:
    """ "gpu-1 rank 3", "gpu-1 core DP0": node and rank or role, as people match processes over a restart. Helpers share one name."""
    rank = process.rank.rank if process.rank else None
    who = f"rank {rank}" if rank is not None and process.role.value == "worker" else process.label or process.role.value
    return f"{process.info.node} {who}"


def figure(samples: Iterable[float]) -> Figure | None:
    """Of the samples of one thing; None of none."""
    values = list(samples)
    if not values:
        return None
    return Figure(value=sum(values) / len(values), low=min(values), high=max(values), samples=len(values))


def total(parts: Iterable[Figure]) -> Figure | None:
    """Of several things together: their noise adds up at the worst."""
    all_of = list(parts)
    if not all_of:
        return None
    return Figure(
        value=sum(f.value for f in all_of),
        low=sum(f.low for f in all_of),
        high=sum(f.high for f in all_of),
        samples=min(f.samples for f in all_of),
    )
