"""Python's logging with a date, a logger and a level, in the orders that people configure."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import ISO, Format, Peeled
from forensics.analysis.logs.formats.python_basic import engine_of

_RANK = re.compile(r"\[?\brank[ =:]{0,3}(\d{1,6})\b", re.IGNORECASE)
_PID = re.compile(r"\bpid[ =:]{1,2}(\d{1,9})\b")


def _take(out: Peeled, m: re.Match[str]) -> None:
    head = m.string[m.end() : m.end() + 100]
    if rank := _RANK.search(head):
        out.rank = int(rank[1])
    if pid := _PID.search(head):
        out.pid = int(pid[1])
    out.engine = engine_of(m["logger"] or m["later"] or "") or out.engine


FORMAT = Format(
    name="python-logging",
    wrapper=False,
    starts="0123456789",
    pattern=re.compile(
        rf"(?P<time>{ISO})(?: \||:)?[ \t]{{1,8}}(?:- )?(?:(?P<logger>[A-Za-z_][\w.]{{0,100}}) (?:- |: ?)?)?"
        r"\[?(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b"
        # what another format writes behind its own level
        r"(?!:(?: {2,}\S|[A-Za-z_])| \d\d-\d\d | \d{4}-\d\d-\d\d | [\w.:]{1,100}:? -- )\]?[ \t]{0,8}(?:[-|:] )?"
        r"(?:\[(?P<at>[\w./\-]{1,200}:\d{1,7})\] ?|(?P<later>[A-Za-z_][\w.]{0,100})(?: -|:) )?"
    ),
    stamp="iso",
    take=_take,
    order=40,
    samples=(
        "2026-09-01 12:00:00,250 - vllm.engine - ERROR - step failed",
        "2026-09-01 09:00:00,100 ERROR [rank3] step failed",
        "2026-09-01 12:00:00,250 [WARNING] queue is long",
        "2026-09-01 12:00:00.250 | INFO     | app:main:12 - loguru's bars",
        "2026-09-01 12:00:00 INFO [launch.py:12] spawned",
    ),
    negatives=(
        "2026-09-01 12:00:00 INFO 09-01 11:59:59 [core.py:1] a wrapper around vLLM",
        "2026-09-01 12:00:00 hello",
        "12:00:00 INFO no date",
    ),
)
