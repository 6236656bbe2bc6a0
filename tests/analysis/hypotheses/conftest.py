"""Ledgers of a scene: asked of the whole analysis, so that the time of the onset is the one that it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.analysis.hypotheses import names
from forensics.model import Hypothesis
from tests.analysis.scene import Scene

ASKED = [n for n in names() if ":" not in n]


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Scene]:
    return lambda **kw: Scene(tmp_path, **kw)


@pytest.fixture
def ledger() -> Callable[..., Hypothesis]:
    """ledger(scene, "memory"): its ledger, and every claim of a verdict checked for what it rests on."""

    def ask(scene: Scene, name: str) -> Hypothesis:
        report = analyze([scene.bundle()], hypotheses=[*ASKED, *([name] if name not in ASKED else [])])
        for h in report.hypotheses:
            sound(h)
        return next(h for h in report.hypotheses if h.name == name)

    return ask


def sound(h: Hypothesis) -> None:
    """What every ledger holds: a verdict rests on entries that decide and that cite what was read."""
    grades = {n.verdict.value for n in h.nodes}
    if h.verdict.value == "refuted":
        assert grades == {"refuted"} and not h.unread
        assert any((e.decides and e.ref and any(c.isdigit() for c in e.text)) or e.finding for e in h.against), h
    if h.verdict.value == "supported":
        assert any(e.decides and e.ref for e in h.supporting), h
    if h.verdict.value == "possible":
        assert h.supporting, h
    assert h.sentence and h.claim
    assert h.verdict.value != "established"
