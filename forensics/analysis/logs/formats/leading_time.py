"""A full date before anything else, put there by whoever collected the lines (log shippers, `ts`)."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import ISO, Format

FORMAT = Format(
    name="leading-time",
    wrapper=True,
    starts="0123456789",
    pattern=re.compile(rf"(?P<time>{ISO}|20\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?)[ \t]{{1,4}}"),
    stamp="iso",
    order=70,
    samples=(
        "2026-03-09 01:27:29.489253860 (MapWorker(MapBatches(E)) pid=1, ip=192.0.2.118) (EngineCore pid=3) INFO 03-08 17:27:28 [a.py:5] x",
        "2026-09-01 10:00:00 hello",
        "2026/07/20 18:01:55.000 hello",
    ),
    negatives=("2026-09-01 hello", "10:00:00 hello", "at 2026-09-01 10:00:00 hello"),
)
