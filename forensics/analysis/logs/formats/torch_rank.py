"""The rank that PyTorch puts before each line of an uncaught exception, and torchrun before each line of a child."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="torch-rank",
    wrapper=True,
    starts="[",
    pattern=re.compile(r"\[rank(?P<rank>\d{1,6})\]:(?: |$)|\[(?P<process>(?:default|worker|trainer)\d{1,6})\]:"),
    order=30,
    samples=(
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "a.py", line 1, in f',
        "[default3]:[rank3]: RuntimeError: x",
    ),
    negatives=("[rank1] step failed", "[rankx]: y", "[1]: y"),
)
