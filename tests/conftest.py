"""For all tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

# the same examples at every run, so that a change and not chance decides; HYPOTHESIS_PROFILE=explore draws others each time
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="session", autouse=True)
def _own_history() -> Iterator[None]:
    """What tests analyse is no incident of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        kept = os.environ.get("FORENSICS_STATE_DIR")
        os.environ["FORENSICS_STATE_DIR"] = folder
        yield
        if kept is None:
            del os.environ["FORENSICS_STATE_DIR"]
        else:
            os.environ["FORENSICS_STATE_DIR"] = kept
