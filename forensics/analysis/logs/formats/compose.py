"""The name that docker compose (or a swarm's service) puts before each line, and a bar."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import DIGITS, LETTERS, Format

FORMAT = Format(
    name="compose",
    wrapper=True,
    starts=DIGITS + LETTERS,
    pattern=re.compile(r"(?P<host>[A-Za-z0-9][\w.@\-]{0,100}) {1,64}\| ?"),
    weak=True,
    order=70,
    samples=(
        "vllm-1  | (APIServer pid=1) INFO:     Application startup complete.",
        "stack_vllm_1 | INFO 09-01 10:00:00 [core.py:1] x",
        "stack_vllm.1.p3ax0@node0    | INFO 09-01 10:00:00 [core.py:1] x",
        "vllm      | 2026-09-01T10:00:00.123456789Z x",
    ),
    negatives=("GPU | Memory | Power", "a||b", "  vllm-1 | INFO 09-01 10:00:00 [core.py:1] x"),
)
