"""Syslog as RFC 5424 writes it."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled
from forensics.analysis.logs.formats.syslog import of_program


def _take(out: Peeled, m: re.Match[str]) -> None:
    out.process = "" if m["app"] == "-" else m["app"]
    of_program(out, m["pri"])


FORMAT = Format(
    name="syslog5424",
    wrapper=True,
    starts="<",
    pattern=re.compile(
        r"<(?P<pri>\d{1,3})>\d{1,2} (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (?:-|(?P<host>[^\s]{1,255})) "
        r"(?P<app>[^\s]{1,64}) (?:-|(?P<pid>\d{1,9})|[^\s]{1,128}) [^\s]{1,32} (?:-|(?:\[[^\]\n]{0,1000}\]){1,8}) ?\ufeff?"
    ),
    stamp="iso",
    take=_take,
    order=20,
    samples=(
        "<30>1 2026-09-01T10:00:00.123456+00:00 node0 vllm 812 - - INFO 09-01 10:00:00 [core.py:1] x",
        '<3>1 2026-09-01T10:00:00Z node0 kernel - - [meta sequenceId="1"] NVRM: Xid',
    ),
    negatives=("<30>Sep  1 10:00:00 node0 vllm[812]: x", "<30>1 - x", "<6>[ 1.000000] x"),
)
