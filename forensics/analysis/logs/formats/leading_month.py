"""A date of syslog's kind with no host behind it, as `ts` writes it."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import MONTH_TIME, Format

FORMAT = Format(
    name="leading-month",
    wrapper=True,
    starts="JFMASOND",
    pattern=re.compile(rf"(?P<time>{MONTH_TIME}) "),
    stamp="syslog",
    weak=True,
    order=80,
    samples=("Sep 17 15:23:34 INFO 09-17 15:23:34 [core.py:1] x",),
    negatives=("Sep 17 INFO 09-17 15:23:34 [core.py:1] x", "Sep 17 15:23:34 then something happened"),
)
