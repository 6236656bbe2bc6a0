from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analysis import analyze
from tests.analysis.conftest import Told


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Told]:
    """Write files (name without dots to lines) into a folder and analyse it: `read(node0=[…], node1=[…])`."""

    def tell(files: dict[str, str] | None = None, **logs: list[str]) -> Told:
        folder = tmp_path / "mailed"
        folder.mkdir(exist_ok=True)
        for name, lines in logs.items():
            (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        told = Told(analyze([folder]))
        broken = [(r.rule, r.reason) for r in told.report.rules if r.status.value == "ERRORED"]
        assert not broken, broken
        return told

    return tell
