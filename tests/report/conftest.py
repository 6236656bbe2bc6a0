"""`pytest tests/report --update-golden` rewrites the golden files; look at the diff before committing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", default=False, help="rewrite tests/report/golden from what is rendered now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """check(name, text): `text` must equal the golden file `name`."""
    update = request.config.getoption("--update-golden", default=False)

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest tests/report --update-golden and read the result"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: if that is meant, run pytest tests/report --update-golden"

    return check
