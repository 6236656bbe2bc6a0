"""With less to read less is claimed: a file or a part of a log taken away raises no grade, clears nobody, and blames nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forensics.analysis import NothingToAnalyze
from forensics.model import Report
from tests.analysis.made import MAKERS, Files, grades, told

OF_WHAT_IS_LEFT = {
    "healthy-serving",
    "idle-healthy",
    "slow-progress",
    "startup-in-progress",
    "no-crash-found",
    "host-stable",
    "execution-mode",
}
"""True of what was left, and contradicted by what was taken: an engine serves up to where its log is cut off."""
CUTS = {"first quarter": (0.0, 0.25), "first half": (0.0, 0.5), "first three quarters": (0.0, 0.75), "last three quarters": (0.25, 1.0)}


def variants(files: Files) -> Iterator[tuple[str, Files]]:
    for name, content in files.items():
        if len(files) > 1:
            yield f"without {name}", {n: c for n, c in files.items() if n != name}
        lines = content.splitlines(keepends=True)
        for what, (since, until) in CUTS.items():
            if name.endswith(".log"):
                kept = lines[int(since * len(lines)) : int(until * len(lines))]
                yield f"{what} of {name}", files | {name: "".join(kept)}


def statuses(report: Report) -> dict[tuple[str, tuple[str, ...]], str]:
    nodes = {e.id: e.nodes for e in report.engines}
    return {(r.rule, nodes.get(r.engine, ())): r.status.value for r in report.rules}


@pytest.mark.parametrize("incident", MAKERS)
def test_less_evidence_makes_no_stronger_claim(tmp_path, incident: str) -> None:
    files = MAKERS[incident]()
    whole = told(tmp_path / "whole", files)
    most, ran = grades(whole), statuses(whole)
    for number, (what, less) in enumerate(variants(files)):
        try:
            report = told(tmp_path / str(number), less)
        except NothingToAnalyze:
            continue
        left = grades(report)
        risen = {f for f, grade in left.items() if grade > most.get(f, -1) and not f.startswith("evidence-missing:")}
        assert risen <= OF_WHAT_IS_LEFT, f"{what}: {risen - OF_WHAT_IS_LEFT}"
        cleared = {
            rule for (rule, nodes), status in statuses(report).items() if status == "CLEAR" and ran.get((rule, nodes)) == "INCONCLUSIVE"
        }
        assert not cleared, f"{what}: {cleared}"
        assert report.root.rank in (None, whole.root.rank), what
        assert report.root.node in (None, whole.root.node), what


def test_no_crash_is_told_for_sure_only_where_the_whole_engine_was_read(tmp_path) -> None:
    files = MAKERS["behind_in_a_collective"]()
    served = files["node0.log"].split("[rank0]")[0]
    report = told(tmp_path / "half", {"node0.log": served})
    assert grades(report).get("no-crash-found") == 2


def test_two_scrapes_without_a_time_do_not_establish_that_the_engine_serves_now(tmp_path) -> None:
    def scrape(tokens: int, running: int) -> str:
        return (
            f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} 0\n'
            f'vllm:generation_tokens_total{{engine="0"}} {tokens}\nvllm:prompt_tokens_total{{engine="0"}} 5\n'
        )

    held = told(tmp_path / "held", {"node0.metrics.1.txt": scrape(3, 1), "node0.metrics.2.txt": scrape(9, 1), "node0.ps.txt": PS})
    assert grades(held).get("healthy-serving") == 2


PS = "    PID    PPID STAT COMMAND\n    100       1 Ssl  vllm serve /m --tensor-parallel-size 1\n    101     100 Sl   VLLM::EngineCore\n"
