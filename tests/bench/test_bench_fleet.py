"""Analysing what a fleet of 1,024 ranks left: CPU time against the goal, and whether it grows with the ranks and no faster."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest
from bench_fleet import RANKS_PER_NODE, fleet
from test_bench import result

from forensics.analysis import analyze
from forensics.report import FORMATS, render

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

RANKS = 1_024
OUTSIDE = 13
"""The rank that stands still in a step of its own."""


def measured(paths: list[Path], outside: int | None) -> tuple[float, float]:
    """(CPU seconds, seconds) of one analysis, whose verdict must be the right one."""
    gc.collect()
    cpu, began = time.process_time(), time.monotonic()
    report = analyze(paths)
    cpu, seconds = time.process_time() - cpu, time.monotonic() - began
    assert len(report.engines) == 1 and report.coverage.complete
    assert len(report.coverage.expected_ranks) == len(paths) * RANKS_PER_NODE
    assert (report.verdict.state, report.root.rank) == (("healthy", None) if outside is None else ("stalled", outside))
    return cpu, seconds


@pytest.mark.parametrize("outside", [None, OUTSIDE], ids=["serving", "one rank outside"])
def test_a_fleet_is_analysed(tmp_path: Path, outside: int | None) -> None:
    nodes = RANKS // RANKS_PER_NODE
    paths = fleet(tmp_path, nodes, outside=outside)
    files = sum(1 for path in paths for p in path.rglob("*") if p.is_file())
    whole, half = [], []
    for _ in range(2):
        whole.append(measured(paths, outside))
        half.append(cpu_of_half(tmp_path / f"half{len(half)}", nodes // 2, outside))
    cpu, seconds = min(whole)
    result(
        f"{RANKS} ranks on {nodes} nodes analysed in",
        cpu,
        10.0,
        "CPU s",
        limit=60.0,
        details=f"{seconds:.1f} s by the clock, {files} files",
    )
    result("CPU time of twice the ranks / time of the half", cpu / min(half), 2.5, limit=5.0)


def cpu_of_half(folder: Path, nodes: int, outside: int | None) -> float:
    return measured(fleet(folder, nodes, outside=outside), outside)[0]


def test_the_report_of_a_fleet_is_written(tmp_path: Path) -> None:
    report = analyze(fleet(tmp_path, RANKS // RANKS_PER_NODE, outside=OUTSIDE))
    began = time.process_time()
    sizes = ", ".join(f"{form} {len(render(report, form)) // 1024} KiB" for form in FORMATS)
    result(f"a report of {RANKS} ranks in every format", time.process_time() - began, 5.0, "CPU s", limit=30.0, details=sizes)
