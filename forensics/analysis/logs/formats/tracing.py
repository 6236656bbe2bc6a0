"""Rust's tracing lines: Dynamo, and TGI's launcher and router."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled

_RANK = re.compile(r"\brank=(\d{1,6})\s*$")


def _take(out: Peeled, m: re.Match[str]) -> None:
    target = m["target"]
    if target.startswith("dynamo"):
        out.engine = "dynamo"
    elif target.startswith("text_generation"):
        out.engine = "tgi"
    elif target.partition(".")[0] in ("vllm", "sglang"):
        out.engine = target.partition(".")[0]
    out.at = m["file"] or out.at
    if rank := _RANK.search(m.string, max(m.end(), len(m.string) - 32)):
        out.rank = int(rank[1])


FORMAT = Format(
    name="tracing",
    wrapper=False,
    starts="0123456789",
    pattern=re.compile(
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) {1,2}(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) "
        r"(?:[A-Za-z_][\w\-]{0,60}(?:\{[^}\n]{0,400}\})?: ?){0,4}(?P<target>[A-Za-z_]\w{0,60}(?:(?:::|\.)\w{1,60}){0,8})"
        r"(?:: (?P<file>[\w./\-]{1,200}\.rs:\d{1,6}))?: "
    ),
    stamp="iso",
    take=_take,
    order=20,
    samples=(
        "2025-10-08T13:03:58.157268Z  INFO dynamo_runtime: shutting down worker",
        "2026-11-30T12:00:00.123456Z  WARN dynamo_runtime::transports::etcd::lease: keep alive failed lease_id=1",
        "2026-11-30T12:00:00.123456Z ERROR shard-manager: text_generation_launcher: Shard 0 crashed rank=0",
        "2026-11-30T12:00:00.123456Z  INFO core.run_busy_loop: started",
    ),
    negatives=(
        "2026-11-30T12:00:00.123456Z INFO 11-30 12:00:00 [core.py:1] kubectl's time before vLLM's line",
        "2026-11-30T12:00:00.123456Z INFO:     Application startup complete.",
        "2026-11-30 12:00:00 INFO dynamo_runtime: no zone",
    ),
)
