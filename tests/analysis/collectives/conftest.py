from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.collectives.lines import Read, read_in


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return read_in(tmp_path)
