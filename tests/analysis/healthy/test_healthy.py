"""Nothing is wrong with these engines, and nobody says that anything is: not with all of the evidence, and not with parts of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.analysis import NothingToAnalyze, analyze
from forensics.model import Finding, FindingRole, Grade, Report, Severity
from tests.analysis.conftest import Told
from tests.analysis.healthy.made import SET, STOPS, Files
from tests.analysis.made import told as told_of
from tests.analysis.scene import API, CORE, CORE_IDLES, IN_COLLECTIVE, IN_STEP, WORKER, WORKER_IDLES, Scene
from tests.rules.registry import recorded

CIRCUMSTANCES = {
    *("cpu-saturated", "cpu-pressure", "thermal-high", "thermal-throttled", "power-capped", "power-brake", "clock-unsynchronised"),
    *("log-clock-offset", "time-limit-raised", "slow-weight-load", "busy-spin", "idle-cpu-spin", "evidence-missing"),
}
"""True or not of the machine and its settings, whatever the engine does; they amplify at most."""
MOVED = {"slow-progress", "long-prefill", "transient-stall-recovered", "queue-waiting-behind-capacity", "orderly-shutdown"}
"""What healthy engines do."""
WELL = {"healthy", "starting", "stopped", "unknown"}
SLOW = {"slow_steps", "one_slow_client_at_the_end", "few_steps"}


def claims(report: Report, least: Grade) -> list[Finding]:
    """What is said to be wrong at this grade or above."""
    free = CIRCUMSTANCES | MOVED
    said = [
        f
        for f in report.findings
        if f.grade.strength >= least.strength and not (least is Grade.ESTABLISHED and f.id.startswith("symptom-"))
    ]
    return [f for f in said if f.role is FindingRole.ROOT or (f.severity is not Severity.INFO and f.id.partition(":")[0] not in free)]


def is_well(report: Report, name: str, what: str = "") -> None:
    """With all of the evidence nothing is said to be wrong but as a possibility; with a part of it, named by `what`, nothing is established."""
    wrong = [(f.id, f.grade.value, f.title) for f in claims(report, Grade.ESTABLISHED if what else Grade.SUPPORTED)]
    assert not wrong, (what, wrong)
    assert report.root.grade is not Grade.ESTABLISHED and (what or report.root.finding is None), (what, report.root)
    assert what or report.verdict.state in WELL | ({"degraded"} if name in SLOW else set()), report.verdict


def parts(files: Files) -> Iterator[tuple[str, Files]]:
    """The same with less: a file gone, a log cut at either end or in its middle."""
    for name, content in files.items():
        if len(files) > 1:
            yield f"without {name}", {n: c for n, c in files.items() if n != name}
        lines = content.splitlines(keepends=True)
        if ".log" in name and len(lines) > 8:
            for part in (0.3, 0.5, 0.8):
                cut = int(part * len(lines))
                yield f"{name} to {part:.0%}", files | {name: "".join(lines[:cut])}
                yield f"{name} from {part:.0%}", files | {name: "".join(lines[cut:])}
            yield f"{name} with a gap", files | {name: "".join(lines[: len(lines) // 3] + lines[2 * len(lines) // 3 :])}


@pytest.mark.parametrize("name", SET)
def test_a_healthy_folder(tmp_path: Path, name: str) -> None:
    files = SET[name]()
    report = told_of(tmp_path / "whole", files)
    is_well(report, name)
    assert (report.verdict.state == "stopped") is (name in STOPS) or report.verdict.state == "unknown"
    for number, (what, less) in enumerate(parts(files)):
        try:
            left = told_of(tmp_path / str(number), less)
        except NothingToAnalyze:
            continue
        if left.engines:  # of a machine without an engine what its log tells is told
            is_well(left, name, what)


# ---- captured


def serving(s: Scene) -> None:
    """As it stands."""


def idling(s: Scene) -> None:
    s.idle()


def prefilling(s: Scene) -> None:
    """No token for the length of the capture: every rank computes, each sample elsewhere, and steps are counted."""
    s.metrics = [s._metrics(100 + n, 1, 0, 0) for n in range(3)]
    for rank in range(s.ranks):
        s.stacks[WORKER + rank, "MainThread"] = [IN_STEP, IN_COLLECTIVE, IN_STEP]


def few_steps(s: Scene) -> None:
    s.metrics = [s._metrics(100), s._metrics(101), s._metrics(102)]


def between_requests(s: Scene) -> None:
    """Requests come and are answered between the samples: a gauge that says 0, counters that move."""
    s.metrics = [s._metrics(100, 0), s._metrics(140, 0), s._metrics(180, 0)]
    s.everywhere(CORE, CORE_IDLES)
    for rank in range(s.ranks):
        s.everywhere(WORKER + rank, WORKER_IDLES)


def many_ranks(s: Scene) -> None:
    s.metrics = [s._metrics(100), s._metrics(400), s._metrics(900)]


def waiting_clients_of_an_idle_engine(s: Scene) -> None:
    """Connections that clients keep open without asking anything."""
    s.idle()
    s.clients = 12


def stopping(s: Scene) -> None:
    """It was asked to stop, and its processes go one after the other while it is photographed."""
    s.idle()
    s.metrics = []
    s.health = None
    s.log(-1, "APIServer", API, "INFO", "[shutdown] API server: shutdown triggered", "launcher.py:110")
    for rank in range(s.ranks):
        s.states[WORKER + rank, 2] = s.states[WORKER + rank, 3] = "gone"
    s.states[CORE, 3] = "gone"


SCENES = (serving, idling, prefilling, few_steps, between_requests, many_ranks, waiting_clients_of_an_idle_engine, stopping)
SOURCES = ("", "stacks", "process", "cpu", "metrics", "queues", "health", "memory", "kernel", "rpclogs", "discovery")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("change", SCENES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_healthy_capture(tmp_path: Path, change, source: str, ranks: int) -> None:
    s = Scene(tmp_path, ranks=ranks)
    change(s)
    if source:
        s.denied[source] = "TIMEOUT"
    is_well(Told(analyze([s.bundle()])).report, change.__name__, source)


# ---- real processes


@pytest.mark.parametrize("name", ["serving", "serving-unprivileged", "idle", "slow", "told-to-stop"])
def test_a_healthy_toy_engine_as_it_was_photographed(tmp_path: Path, name: str) -> None:
    (whole,) = recorded(name)(tmp_path / "whole")
    # nothing that the toy engine prints says that it was asked to end: that it is gone is supported then
    is_well(analyze([whole]), "few_steps" if name == "slow" else name, "whole" if name == "told-to-stop" else "")
    for folder in sorted(p.name for p in whole.iterdir() if p.is_dir()):
        (left,) = recorded(name)(tmp_path / folder)
        shutil.rmtree(left / folder)
        is_well(analyze([left]), name, f"without {folder}")
