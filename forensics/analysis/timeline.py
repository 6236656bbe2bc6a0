"""What happened in which order, one engine: log lines that mean something, samples of the capture, what findings say began."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.analysis.view import View
from forensics.model import Finding, LogHit, TimelineEvent

QUIET = frozenset({"http-health-access", "vllm-rank-assigned", "vllm-world", "python-traceback"})
"""Signatures that serve other rules and would only fill the page."""
MOST = 200


def of_engine(view: View, findings: Sequence[Finding]) -> list[TimelineEvent]:
    """At most MOST events; of a signature that repeats, the first with the count."""
    events = []
    groups: dict[tuple[str, int | None, str], list[LogHit]] = {}
    for hit in view.every_hit:
        if hit.at and hit.signature not in QUIET:
            groups.setdefault((hit.node, hit.pid, hit.signature), []).append(hit)
    for (node, pid, _), hits in groups.items():
        first = hits[0]
        assert first.at
        rank = view.rank_of(node, pid)
        who = first.process or (f"pid {pid}" if pid else "")
        text = first.ref.quote if first.signature.endswith(("exception", "fatal", "failed")) else first.text
        events.append(
            TimelineEvent(
                at=first.at,
                node=node,
                what=f"{who}: {text[:200]}" if who else text[:200],
                ref=first.ref,
                engine=view.engine.id,
                rank=rank if rank is not None else first.rank,
                finding=first.feeds,
                count=sum(h.count for h in hits),
            )
        )
    for finding in findings:
        if finding.since and finding.id in ("engine-stalled", "process-stopped", "rank-divergence-collective", "backlog-before-onset"):
            events.append(
                TimelineEvent(
                    at=finding.since,
                    node=finding.nodes[0] if finding.nodes else "",
                    what=f"began: {finding.title[:200]}",
                    ref=finding.because[0],
                    engine=view.engine.id,
                    rank=finding.ranks[0] if len(finding.ranks) == 1 else None,
                    finding=finding.id,
                )
            )
    events.sort(key=lambda e: (e.at.earliest_ns, e.at.latest_ns))
    return events[:MOST]
