"""Ray's C++ processes: raylet, GCS and core workers."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="ray-core",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3,6}) (?P<level>[DIWEFC]) (?P<pid>\d{1,9}) \d{1,9}\] "
        r"(?:\((?P<process>[\w\- ]{1,40})\) )?(?:(?P<at>[\w./\-]{1,120}:\d{1,6}): ?)?"
    ),
    stamp="iso",
    engine="ray",
    exact=True,
    order=10,
    samples=(
        "[2026-11-30 12:00:00,123 E 123 456] (raylet) node_manager.cc:3064: 1 Workers (tasks / actors) killed due to memory pressure",
        "[2026-11-30 12:00:00,123 W 123 456] (gcs_server) gcs_health_check_manager.cc:12: node is dead",
        "[2026-11-30 12:00:00,123 I 123 123] core_worker.cc:1: x",
    ),
    negatives=("[2026-11-30 12:00:00,123] E 123 456", "[2026-11-30 12:00:00 TP0] x", "[2026-11-30 12:00:00,123 E] x"),
)
