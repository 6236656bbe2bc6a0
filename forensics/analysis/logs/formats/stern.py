"""Pod and container as stern puts them before each line, and kubectl plug-ins like it."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import DIGITS, LETTERS, Format

FORMAT = Format(
    name="stern",
    wrapper=True,
    starts=DIGITS + LETTERS,
    pattern=re.compile(r"(?P<host>[a-z0-9]{1,63}(?:[.\-][a-z0-9]{1,63}){1,20}) [a-z0-9][a-z0-9\-]{0,62} (?:[|\u203a] )?"),
    weak=True,
    order=85,
    samples=(
        "vllm-6d5f7c9b8-x2k4j engine (EngineCore pid=7) INFO 09-01 10:00:00 [core.py:1] x",
        "vllm-0 engine INFO 09-01 10:00:00 [core.py:1] x",
    ),
    negatives=("vllm-0 engine is ready", "vllm engine INFO 09-01 10:00:00 [core.py:1] x"),
)
