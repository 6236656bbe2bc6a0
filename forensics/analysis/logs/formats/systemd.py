"""journalctl's other forms and rsyslog's: a full date (or the time since boot), host, unit."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled, stamped
from forensics.analysis.logs.formats.syslog import of_program


def _take(out: Peeled, m: re.Match[str]) -> None:
    if m["boot"]:
        stamped(FORMAT, out, m["boot"], "boot")
    if m["bare"]:
        out.process = m["bare"]
    of_program(out, m["pri"])


FORMAT = Format(
    name="systemd",
    wrapper=True,
    starts="<[0123456789MTWFS",
    pattern=re.compile(
        r"(?:<(?P<pri>\d{1,3})>)?(?:(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?"
        r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d| [A-Z]{3,4})?)"
        r"|\[ {0,8}(?P<boot>\d{1,9}\.\d{6})\]) (?P<host>[A-Za-z0-9][\w.\-]{0,120}) "
        r"(?:(?P<process>[\w./@\-]{1,100})\[(?P<pid>\d{1,9})\]|(?P<bare>kernel|systemd)): ?"
    ),
    stamp="iso",
    take=_take,
    order=18,
    samples=(
        "2026-09-17T15:23:34+0000 node2 kernel: NVRM: Xid (PCI:0000:9b:00): 79, x",
        "2026-09-17T15:23:34.123456+02:00 node2 vllm[812]: INFO 09-17 15:23:34 [core.py:1] x",
        "Thu 2026-06-11 08:00:00 UTC node0 systemd[1]: Started vllm.service.",
        "[ 1234.567890] node0 vllm[812]: x",
    ),
    negatives=("2026-09-17T15:23:34Z node2 hello", "2026-09-17 node2 vllm[812]: x", "[ 1234.567890] NVRM: x"),
)
