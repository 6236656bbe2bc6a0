"""What a transfer of KV blocks between two engines leaves behind, on either side."""

from __future__ import annotations

import re

from forensics.analysis.case import Case
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import FindingRole, LogHit, ProgressSample

TROUBLES = ("kv-transfer-not-retrieved", "kv-transfer-peer-gone", "kv-sender-failed", "kv-receiver-waits-forever")
STUCK_LINES = 3
"""One line without a token is a hand-over that took its time."""
_CONNECTOR = re.compile(r"kv_connector\W+[A-Z]\w+|kv_transfer_config\W+(?:KVTransferConfig|\{)|disaggregation_mode\W+(?:prefill|decode)")


def transfer_troubles(case: Case, since_ns: int, until_ns: int) -> list[LogHit]:
    """Lines of any engine that say that a transfer failed or was not fetched, of which what they report falls into this time."""
    hits = [h for h in case.of(LogHit) if h.feeds in TROUBLES and h.at and h.began]
    return [h for h in hits if h.at and h.began and h.began.earliest_ns <= until_ns and h.at.latest_ns >= since_ns]


def connector(view: View) -> list[LogHit]:
    """Lines that say that this engine hands blocks to another one, or takes them."""
    told = view.hits_of("vllm-kv-connector-created")
    return told or [h for h in view.hits if h.event in ("start", "core-start") and _CONNECTOR.search(" ".join(h.fields.values()))]


def total(hits: list[LogHit]) -> int:
    """How many lines these are: a repeated one is kept a few times and counted."""
    return sum(h.count for h in hits)


def own_role(view: View, hits: list[LogHit]) -> FindingRole:
    """Teardown where the engine's own end came before the first of these lines, else a cause."""
    ends = view.events("fatal", "stop")
    return FindingRole.TEARDOWN if any(view.before(e, hits[0]) for e in ends) else FindingRole.ROOT


def healthy_around(view: View, first: LogHit, last: LogHit) -> bool:
    """Whether every engine of the case that says how far it has come went on moving over and after these lines, and none ended."""
    if first.at is None or last.at is None or view.events("fatal", "timeout", "worker-death"):
        return False
    # a line speaks of the time before it
    since, until = (first.began or first.at).earliest_ns, last.at.latest_ns + 60 * SECOND
    near = [s for s in view.case.of(ProgressSample) if s.via == "log" and s.at and since <= s.at.earliest_ns <= until]
    stuck = [s for s in near if (s.waiting or s.running) and not s.step and not s.generation_tps and not s.prompt_tps]
    here = [i for i in view.progress.log if i.moved and i.until_ns is not None and since <= i.until_ns <= until]
    return bool(here) and len(stuck) < STUCK_LINES
