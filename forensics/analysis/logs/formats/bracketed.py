"""A time alone in a bracket: SGLang's HTTP process, launchers, many scripts."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import ISO, Format

FORMAT = Format(
    name="bracketed",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        rf"\[(?P<time>{ISO})\][ \t]{{1,4}}"
        r"(?:\[?(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|error|warning|info)\b(?!: {2})\]?:?[ \t]{0,4})?"
    ),
    stamp="iso",
    goes_on=True,
    order=60,
    samples=(
        '[2026-11-30 14:06:07] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
        "[2026-11-30 14:06:07] server_args=ServerArgs(model_path='/m')",
        "[2026-11-30T14:06:07.123] error: *** JOB 7 CANCELLED ***",
        "[2026-11-30 14:06:07,123] [ERROR] [launch.py:1] killed",
    ),
    negatives=("[2026-11-30] a day", "[14:06:07] a clock", "[info] no time"),
)
