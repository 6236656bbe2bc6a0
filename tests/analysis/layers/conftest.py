from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.layers.folder import Tell, told_in


@pytest.fixture
def told(tmp_path: Path) -> Tell:
    return told_in(tmp_path)
