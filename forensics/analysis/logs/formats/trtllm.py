"""TensorRT-LLM's Python side: American dates, the rank in a bracket when there are several."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="trtllm",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"(?:\[(?P<time>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT(?:-LLM)?\] "
        r"(?:\[(?:RANK|MPI_Rank|Rank) (?P<rank>\d{1,6})\] ?|\[(?P<level>[FEWIVDT])\] ?){1,2}(?:\[(?P<at>[\w./\-]{1,200}:\d{1,7})\] )?"
    ),
    stamp="us",
    engine="tensorrt-llm",
    exact=True,
    order=10,
    samples=(
        "[05/12/2026-14:10:00] [TRT-LLM] [RANK 0] [E] Hang detected after 300 seconds.",
        "[01/31/2025-08:00:00] [TRT-LLM] [MPI_Rank 3] [W] slow",
        "[01/31/2025-08:00:00] [TRT-LLM] [I] one rank only",
        "[TRT-LLM] [E] no time",
        "[01/31/2025-08:00:00] [TRT-LLM] [I] [RANK 1] the other way round",
    ),
    negatives=("[05/12/2026-14:10:00] [other] [E] x", "[TRT-LLM] no level", "[TensorRT-LLM][ERROR] the C++ side"),
)
