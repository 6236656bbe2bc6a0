"""What a transfer of KV blocks between two engines leaves behind, on either side."""

from __future__ import annotations

import re

from forensics.analysis.case import Case
from forensics.analysis.view import View
from forensics.model import LogHit

TROUBLES = ("kv-transfer-not-retrieved", "kv-transfer-peer-gone", "kv-sender-failed", "kv-receiver-waits-forever")
_CONNECTOR = re.compile(r"kv_connector\W+[A-Z]\w+|kv_transfer_config\W+(?:KVTransferConfig|\{)|disaggregation_mode\W+(?:prefill|decode)")


def transfer_troubles(case: Case, since_ns: int, until_ns: int) -> list[LogHit]:
    """Lines of any engine that say that a transfer failed or was not fetched, of which what they report falls into this time."""
    hits = [h for h in case.of(LogHit) if h.feeds in TROUBLES and h.at and h.began]
    return [h for h in hits if h.at and h.began and h.began.earliest_ns <= until_ns and h.at.latest_ns >= since_ns]


def connector(view: View) -> list[LogHit]:
    """Lines that say that this engine hands blocks to another one, or takes them."""
    told = view.hits_of("vllm-kv-connector-created")
    return told or [h for h in view.hits if h.event in ("start", "core-start") and _CONNECTOR.search(" ".join(h.fields.values()))]
