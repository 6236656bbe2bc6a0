"""The job and rank that mpirun's tagged output puts in front."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import CTIME, DIGITS, Format

FORMAT = Format(
    name="mpirun",
    wrapper=True,
    starts="[MTWFS" + DIGITS,
    pattern=re.compile(
        rf"(?P<time>{CTIME})?\[(?:[\w.@\-]{{1,100}}@)?\d{{1,9}},(?P<task>\d{{1,6}})\](?:<(?P<stream>stdout|stderr|stddiag)>)?: ?"
    ),
    stamp="ctime",
    order=5,
    samples=(
        "[1,5]<stderr>:[05/12/2026-14:10:00] [TRT-LLM] [RANK 5] [E] Hang detected after 300 seconds.",
        "[1,0]<stdout>: x",
        "[prterun-node0-77@1,3]<stderr>: x",
        "Mon Sep 13 19:44:02 2026[1,5]<stdout>:x",
    ),
    negatives=("[1,5] x", "[1]<stderr>:x", "[1,x]<stderr>:x"),
)
