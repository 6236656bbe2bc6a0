"""SGLang: time and place of the scheduler in one bracket."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled

_TP_ONLY = re.compile(r"(?: TP(\d{1,5})| EP\d{1,5})+")


def _take(out: Peeled, m: re.Match[str]) -> None:
    process = f" {m['bare']}" if m["bare"] else m["process"]
    out.process = process.strip()
    # with pipeline stages or replicas beside it the TP rank is not the global one
    if whole := _TP_ONLY.fullmatch(process):
        out.rank = int(whole[1]) if whole[1] else None


FORMAT = Format(
    name="sglang",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?P<process>(?: [A-Z][A-Z_]{1,9}\d{1,5})+)\] ?"
        r"|\[(?P<bare>(?:DP|PP|TP|EP)\d{1,5}(?: (?:DP|PP|TP|EP)\d{1,5})*)\] (?=(?:Scheduler hit"
        r"|(?:Decode|Prefill) (?:batch|out of|transfer)|Watchdog timeout|Pyspy|Received sig|Load weight|Memory pool"
        r"|KV Cache|Init torch|Capture cuda))"  # its time was cut off
    ),
    stamp="iso",
    engine="sglang",
    take=_take,
    exact=True,
    order=10,
    samples=(
        "[2026-11-30 14:06:07 TP0] Decode batch, #running-req: 3, #token: 1234, token usage: 0.05",
        "[2026-11-30 14:06:07.123 DP1 TP3 EP3] Prefill batch, #new-seq: 1",
        "[DP0 TP3] Scheduler hit an exception: Traceback (most recent call last):",
        "[2026-11-30 14:06:07 DP0 PP1 ATTN_CP0 MOE_DP0 TP0 EP0] Scheduler hit an exception: Traceback (most recent call last):",
    ),
    negatives=(
        '[2026-11-30 14:06:07] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
        "[2026-11-30 14:06:07,123 E 12 34] core_worker.cc:1: x",
        "[2026-11-30 14:06:07 tp0] lower case",
        "[TP0] loss 2.31",
    ),
)
