"""TVM's and xgrammar's logs: a clock without a day, then the source place."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="dmlc",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"\[(?P<time>\d\d:\d\d:\d\d)\] (?P<at>[^\s:]{1,200}\.(?:cc|cpp|h|hpp|cu|cuh):\d{1,6}): "
        r"(?:(?P<level>Warning|Error|Fatal|Info|DEBUG|INFO|WARNING|ERROR|FATAL): )?"
    ),
    stamp="clock",
    order=20,
    samples=(
        "[12:59:59] /project/cpp/grammar_matcher.cc:526: Warning: The matcher has terminated",
        "[00:00:01] src/runtime/x.cc:1: Check failed: a == b",
    ),
    negatives=("[12:59:59] hello", "[12:59] /a.cc:1: x"),
)
