"""What an engine was told, and what it runs with."""

from __future__ import annotations

from tests.analysis.settings import test_settings
from tests.rules.registry import of

SOUND = ["healthy-serving", "host-stable", "no-crash-found"]
FIXTURES = [
    of(
        test_settings.test_what_runs_otherwise_than_it_was_asked_for_is_told_with_both_sides,
        {"config-disagreement": "established"},
        also=SOUND,
    ),
    of(
        test_settings.test_the_live_object_counts_before_the_log_and_the_log_before_the_command_line,
        also=SOUND,
        clear=["config_disagreement"],
        healthy=True,
    ),
    of(
        test_settings.test_a_setting_that_one_place_states_cannot_be_compared,
        also=["healthy-serving", "host-stable"],  # no log, so none without a crash
        unclear={"config_disagreement": ("live objects of the core", "the log's start-up lines")},
        healthy=True,
    ),
]
