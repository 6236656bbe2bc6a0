"""What was loaded, and with what it was started: patches, builds, settings."""

from __future__ import annotations

from tests.analysis import test_circumstances
from tests.analysis.settings import test_settings
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
    of(
        test_settings.test_what_runs_otherwise_than_it_was_asked_for_is_told_with_both_sides,
        {"config-disagreement": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_settings.test_a_word_that_stands_for_another_is_no_disagreement,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["config_disagreement"],
    ),
]
