"""Prompts against the size of the cache, as far as a log gives both numbers."""

from __future__ import annotations

from forensics.analysis.episodes import Parked
from forensics.analysis.progress import STATS_WINDOW_NS
from forensics.analysis.view import View
from forensics.model import LogHit


def too_big(view: View, run: Parked) -> tuple[LogHit, LogHit, list[LogHit]] | None:
    """(request, capacity, its abort): a prompt that came before the queue stood still and needs more than all blocks together."""
    sizes = [h for h in view.hits_of("vllm-kv-cache-size") if not h.at or h.at.earliest_ns <= run.since.earliest_ns]
    if not sizes:
        return None
    size = min(sizes, key=tokens)
    gone = [h for h in view.hits_of("vllm-request-aborted", "vllm-request-client-gone") if h.at]
    end = run.until.latest_ns if run.until else None
    for request in view.hits_of("vllm-request-received"):
        if not request.at or tokens(request) <= tokens(size) or request.at.earliest_ns > run.since.latest_ns:
            continue
        aborts = [a for a in gone if a.at and a.fields.get("request", "?").startswith(request.fields["request"])]
        early = any(a.at and a.at.latest_ns < run.since.earliest_ns for a in aborts)
        # where the queue was empty meanwhile, it had been refused
        since = request.at.latest_ns + STATS_WINDOW_NS
        lines = [i for i in view.progress.log if i.until_ns is not None and since <= i.until_ns <= run.since.latest_ns]
        if not early and all(i.waiting for i in lines):
            return request, size, [a for a in aborts if end is None or (a.at and a.at.earliest_ns <= end)]
    return None


def tokens(hit: LogHit) -> int:
    digits = hit.fields.get("tokens", "").replace(",", "")
    return int(digits) if digits.isdigit() else 0
