"""The container runtime interface: time, stream and whether the line is whole."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled


def _take(out: Peeled, m: re.Match[str]) -> None:
    out.partial = m["tag"] == "P"


FORMAT = Format(
    name="cri",
    wrapper=True,
    starts="0123456789",
    pattern=re.compile(
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
        r"(?P<stream>stdout|stderr) (?P<tag>[FP])(?::\w{1,20}){0,4}(?: |$)"
    ),
    stamp="iso",
    take=_take,
    exact=True,
    order=5,
    samples=(
        "2026-09-01T10:00:00.123456789Z stdout F (EngineCore pid=280) INFO 09-01 10:00:00 [core.py:1] x",
        "2026-09-01T10:00:00.123456789+02:00 stderr P a long line begins",
        "2026-09-01T10:00:00.123456789Z stdout F ",
    ),
    negatives=("2026-09-01T10:00:00.123456789Z stdout X x", "2026-09-01 10:00:00 stdout F x", "2026-09-01T10:00:00.1Z F x"),
)
