"""Dates for kernel lines that count from boot, from whatever in the evidence tells when the node booted."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from forensics.analysis.case import Case
from forensics.analysis.times import SECOND
from forensics.model import BootTime, KernelEvent, KernelSpan, TimeRange

AGREE_NS = 300 * SECOND
"""Two words on one boot that lie further apart are of two boots: which of them the lines count from is then unknown."""


def date_kernel(case: Case) -> None:
    """Give the undated kernel lines of each node a time, where exactly one boot is known to be theirs."""
    events, spans = case.of(KernelEvent), case.of(KernelSpan)
    undated = {e.node for e in events if e.at is None and e.since_boot_ns is not None}
    undated |= {s.node for s in spans if s.at is None and s.since_boot_ns is not None}
    if not undated:
        return
    boots: dict[str, list[TimeRange]] = defaultdict(list)
    for boot in case.of(BootTime):
        boots[boot.node].append(boot.booted)
    for node in undated:
        boots[node] += _paired([e for e in events if e.node == node])
    previous = {(s.node, s.ref.source) for s in spans if s.previous_boot}
    booted = {node: found for node in undated if (found := _one(boots[node])) is not None}

    def at(node: str, source: str, since_ns: int) -> TimeRange | None:
        boot = booted.get(node)
        if boot is None or (node, source) in previous:  # what is known is when the present boot began
            return None
        return TimeRange(earliest_ns=boot.earliest_ns + since_ns, latest_ns=boot.latest_ns + since_ns, basis="kernel")

    case.replace_all(
        KernelEvent,
        [
            msgspec.structs.replace(e, at=at(e.node, e.ref.source, e.since_boot_ns)) if e.at is None and e.since_boot_ns is not None else e
            for e in events
        ],
    )
    dated = []
    for span in spans:
        if span.at is None and span.since_boot_ns is not None:
            first, last = (at(span.node, span.ref.source, ns) for ns in span.since_boot_ns)
            if first and last:
                whole = TimeRange(earliest_ns=first.earliest_ns, latest_ns=max(first.earliest_ns, last.latest_ns), basis="kernel")
                span = msgspec.structs.replace(span, at=whole)
        dated.append(span)
    case.replace_all(KernelSpan, dated)


def _paired(events: list[KernelEvent]) -> list[TimeRange]:
    """One message in a journal with its time and in dmesg with its count tells the boot; a message that repeats tells nothing."""
    dated: dict[str, list[KernelEvent]] = defaultdict(list)
    counted: dict[str, list[KernelEvent]] = defaultdict(list)
    for e in events:
        if e.at is not None and e.since_boot_ns is None:
            dated[e.text].append(e)
        elif e.at is None and e.since_boot_ns is not None:
            counted[e.text].append(e)
    found = []
    for text, (one, *more) in counted.items():
        twins = dated.get(text, [])
        if not more and len(twins) == 1 and (at := twins[0].at) is not None and one.since_boot_ns is not None:
            since = one.since_boot_ns
            found.append(TimeRange(earliest_ns=at.earliest_ns - since, latest_ns=at.latest_ns - since, basis="kernel"))
    return found


def _one(boots: list[TimeRange]) -> TimeRange | None:
    """The narrowest of several words on one boot."""
    if not boots or max(b.earliest_ns for b in boots) - min(b.latest_ns for b in boots) > AGREE_NS:
        return None
    return min(boots, key=lambda b: b.latest_ns - b.earliest_ns)
