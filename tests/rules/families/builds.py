"""What was loaded: builds, and the files that a package brought."""

from __future__ import annotations

from tests.analysis import test_builds
from tests.rules.registry import of

WELL = ["healthy-serving", "host-stable", "no-crash-found"]

FIXTURES = [
    of(
        test_builds.test_files_that_differ_from_the_record_are_listed_with_who_has_them,
        {"installed-code-modified": "established"},
        also=WELL,
        clear=["version_skew"],
    ),
    of(test_builds.test_the_same_builds_everywhere_and_no_file_touched, also=WELL, clear=["installed_code", "version_skew"], healthy=True),
    of(
        test_builds.test_what_was_not_compared_is_not_called_unmodified,
        also=WELL,
        unclear={"installed_code": ("builds",)},
        healthy=True,
        checks=[test_builds.check(sources_hashed=900, hashed=900, cut="no bytes left")],
        pids=test_builds.EVERYBODY,
        why="no bytes left",
    ),
    of(
        test_builds.test_one_rank_with_another_build,
        {"version-skew": "established"},
        also=WELL,
        clear=["installed_code"],
        odd={"nccl": ("2.26.2", "bb22")},
        component="nccl",
        said=(),
    ),
    of(test_builds.test_a_process_whose_build_was_not_read_leaves_it_open, also=WELL, unclear={"version_skew": ("builds",)}, healthy=True),
    of(
        test_builds.test_nodes_whose_logs_name_two_versions_of_nccl,
        {"version-skew": "supported"},
        also=["clock-unsynchronised", "no-crash-found", "startup-in-progress"],
    ),
]
