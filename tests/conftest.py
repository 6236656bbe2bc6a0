"""For all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# the same examples at every run, so that a change and not chance decides; HYPOTHESIS_PROFILE=explore draws others each time
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
