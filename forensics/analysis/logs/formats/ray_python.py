"""Ray's Python side: worker files, dashboard, monitor, Serve."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import LEVELS, Format, Peeled, number, stamped


def _take(out: Peeled, m: re.Match[str]) -> None:
    if m["moment"]:
        stamped(FORMAT, out, m["moment"])
        out.level = LEVELS[m["grade"]]
        out.pid = number(m["writer"])


FORMAT = Format(
    name="ray-python",
    wrapper=False,
    starts="0123456789DIWEC",
    pattern=re.compile(
        r"(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})[\t ](?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
        r"|(?P<grade>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<moment>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
        r"(?P<process>[\w\-]{1,80}) (?P<writer>[0-9a-z]{1,40}))"
        r" (?:(?P<at>[\w./\-]{1,120}:\d{1,6}) )?--? "
    ),
    stamp="iso",
    engine="ray",
    take=_take,
    order=20,
    samples=(
        "2026-11-30 12:00:00,123\tINFO worker.py:1621 -- Connected to Ray cluster.",
        "2026-11-30 12:00:00,123 WARNING node_head.py:12 -- slow",
        "INFO 2026-11-30 12:00:00,123 controller 123 application_state.py:12 -- Deploying",
    ),
    negatives=("2026-11-30 12:00:00,123 - name - INFO - x", "INFO 11-30 12:00:00 [worker.py:1] -- x", "2026-11-30 12:00:00,123\tINFO x"),
)
