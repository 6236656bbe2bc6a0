from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.engines.folder import Look, look_in


@pytest.fixture
def look(tmp_path: Path) -> Look:
    return look_in(tmp_path)
