"""The task number that `srun --label` puts in front."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import DIGITS, Format

FORMAT = Format(
    name="srun",
    wrapper=True,
    starts=" " + DIGITS,
    pattern=re.compile(r" {0,6}(?P<task>\d{1,6}): "),
    weak=True,
    order=80,
    samples=(" 0: [05/12/2026-14:10:00] [TRT-LLM] [RANK 0] [E] x", "12: (EngineCore pid=1) INFO 09-01 10:00:00 [core.py:1] x"),
    negatives=(" 0: just a list", "a: x", "0:x"),
)
