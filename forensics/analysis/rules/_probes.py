"""What a platform says of its probes of an engine: as an event, or in the log of whoever asks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forensics.analysis.view import View
from forensics.model import EvidenceRef, LogHit, PlatformEvent, TimeRange

_PROBE = re.compile(r"(Liveness|Readiness|Startup) probe (?:failed|errored)(?:: (.*))?", re.S)
_LATE = re.compile(r"(?i)deadline exceeded|client\.timeout|timed? ?out|timeout")


@dataclass(frozen=True)
class Probe:
    kind: str
    """Liveness | Readiness | Startup"""
    at: TimeRange | None
    ref: EvidenceRef
    late: bool
    """No answer in time, rather than a wrong one."""
    why: str


def failed_probes(view: View) -> list[Probe]:
    """Failed probes of this engine, dated ones in order of time."""
    found = []
    for event in events(view):
        if m := _PROBE.search(event.text):
            found.append(Probe(m[1], event.at, event.ref, bool(_LATE.search(m[2] or "")), m[2] or ""))
    for hit in view.case.of(LogHit):
        if hit.signature == "kubelet-probe-failed" and (hit.node in view.nodes or len(view.case.engines) == 1):
            why = hit.fields.get("why", "")
            found.append(Probe(hit.fields["probe"], hit.at, hit.ref, bool(_LATE.search(why)), why))
    return sorted(found, key=lambda p: p.at.earliest_ns if p.at else 0)


def events(view: View) -> list[PlatformEvent]:
    """Platform events that concern this engine: of its nodes, naming one of them, or of a case with no other engine."""
    alone = len(view.case.engines) == 1
    return [e for e in view.case.of(PlatformEvent) if alone or e.node in view.nodes or any(n in e.about for n in view.nodes)]
