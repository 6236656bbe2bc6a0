from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from forensics.analysis import analyze
from forensics.model import Report
from tests.rules.families import fixtures


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Report]:
    """The report of a fixture, made once."""
    named = {fixture.name: fixture for fixture in fixtures()}

    @functools.cache
    def of(name: str) -> Report:
        return analyze(named[name].build(tmp_path_factory.mktemp("fixture")))

    return of
