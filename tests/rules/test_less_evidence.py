"""With less to read less is claimed, of every fixture: a collector or a file taken away raises no grade and clears no rule."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from forensics.analysis import NothingToAnalyze, analyze
from forensics.model import Grade, Report, RuleStatus
from tests.analysis.made import grades
from tests.analysis.test_removal import OF_WHAT_IS_LEFT
from tests.rules.exceptions import WITHOUT_WHAT_CONTRADICTS
from tests.rules.families import fixtures

POSSIBLE = Grade.POSSIBLE.strength
"""What nothing excludes is possible: so much may be said when what excluded it was taken away."""
ALL = {fixture.name: fixture for fixture in fixtures()}


@pytest.mark.parametrize("name", ALL)
def test_less_evidence_makes_no_stronger_claim(reported: Callable[[str], Report], tmp_path: Path, name: str) -> None:
    whole = reported(name)
    most, unclear = grades(whole), statuses(whole, RuleStatus.INCONCLUSIVE)
    (tmp_path / "whole").mkdir()
    paths = ALL[name].build(tmp_path / "whole")
    risen, cleared = [], []
    for what, less in without_a_source(paths, tmp_path):
        try:
            report = analyze(less)
        except NothingToAnalyze:
            continue
        left = grades(report)
        risen += [(what, id, grade) for id, grade in left.items() if grade > max(most.get(id, -1), POSSIBLE)]
        cleared += [(what, *rule) for rule in unclear & statuses(report, RuleStatus.CLEAR)]
        shutil.rmtree(less[0].parent)
    excused = {*OF_WHAT_IS_LEFT, *WITHOUT_WHAT_CONTRADICTS.get(name, {})}
    assert not [r for r in risen if r[1] not in excused and not r[1].startswith("evidence-missing:")]
    assert not cleared


def statuses(report: Report, status: RuleStatus) -> set[tuple[str, tuple[str, ...]]]:
    """Rules that came out so, with the nodes of the engine that they were asked of."""
    nodes = {e.id: e.nodes for e in report.engines}
    return {(r.rule, nodes.get(r.engine, ())) for r in report.rules if r.status is status}


def without_a_source(paths: Sequence[Path], into: Path) -> Iterator[tuple[str, list[Path]]]:
    """Copies of the evidence, each without one collector of a bundle or without one file of a folder."""
    for at, path in enumerate(paths):
        manifest = path / "manifest.json"
        told = json.loads(manifest.read_text()) if manifest.is_file() else {}
        files = [] if told else [str(f.relative_to(path)) for f in sorted(path.rglob("*")) if f.is_file()] if path.is_dir() else []
        sources = sorted({a["collector"] for a in told.get("attempts", ())} - {"discovery", "capture"}) or (files if len(files) > 1 else [])
        for source in sources:
            folder = into / f"less-{at}"
            folder.mkdir()
            copies = [Path(shutil.copytree(p, folder / p.name) if p.is_dir() else shutil.copy2(p, folder)) for p in paths]
            if told:
                leave_out(copies[at], told, source)
            else:
                (copies[at] / source).unlink()
            yield source, copies


def leave_out(bundle: Path, told: dict[str, list[dict[str, str]]], collector: str) -> None:
    """Make a bundle that of a collector which never ran."""
    for evidence in told["evidence"]:
        if evidence["collector"] == collector:
            (bundle / evidence["path"]).unlink(missing_ok=True)
    kept = {key: [record for record in told[key] if record["collector"] != collector] for key in ("attempts", "evidence")}
    (bundle / "manifest.json").write_text(json.dumps(told | kept))
