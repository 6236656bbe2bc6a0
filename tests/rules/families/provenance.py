"""What was loaded: patches."""

from __future__ import annotations

from tests.analysis import test_circumstances
from tests.rules.registry import of

FIXTURES = [
    of(
        test_circumstances.test_a_patch_that_is_live_in_every_process,
        {"patch-live": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_circumstances.test_a_patch_that_is_absent_or_unreadable,
        {"patch-absent": "established", "patch-unreadable": "established", "patch-inconsistent": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found", "patch-live"],
    ),
    of(
        test_circumstances.test_a_file_changed_after_the_process_started_is_not_live,
        {"patch-stale": "established", "patch-inconsistent": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found", "patch-live"],
    ),
    of(
        test_circumstances.test_a_failure_with_the_patch_live_says_it_is_not_sufficient,
        {"patch-live-and-failed": "established"},
        also=[
            "engine-stalled",
            "health-endpoint-misleading",
            "host-stable",
            "no-crash-found",
            "patch-live",
            "process-stopped",
            "rank-divergence-collective",
            "rank-not-responding",
        ],
    ),
]
