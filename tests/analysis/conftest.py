from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.model import Finding, Report
from tests.analysis.scene import Scene


class Told:
    """A report with short ways to ask it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.by_id: dict[str, Finding] = {}
        for finding in report.findings:
            self.by_id.setdefault(finding.id, finding)

    def grade(self, id: str) -> str | None:
        finding = self.by_id.get(id)
        return finding.grade.value if finding else None

    def rule(self, name: str) -> str:
        return next(r.status.value for r in self.report.rules if r.rule == name)

    @property
    def established(self) -> set[str]:
        return {f.id for f in self.report.findings if f.grade.value == "established"}

    @property
    def root(self) -> tuple[str | None, int | None]:
        return self.report.root.finding, self.report.root.rank

    @property
    def state(self) -> str:
        return self.report.verdict.state


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Scene]:
    return lambda **kw: Scene(tmp_path, **kw)


@pytest.fixture
def tell() -> Callable[[Scene], Told]:
    return lambda scene: Told(analyze([scene.bundle()]))
