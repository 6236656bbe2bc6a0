"""What happened in which order: log lines and kernel lines that mean something, what findings say began, and who fell silent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from forensics.analysis.case import Case
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, KernelEvent, LogHit, LogSpan, PlatformEvent, TimelineEvent, TimeRange

QUIET_EVENTS = frozenset({"place", "stats", "held"})
"""Parts in an engine's life that serve rules and would only fill the page."""
QUIET = frozenset({"http-health-access", "python-traceback"})
NOISE = frozenset({"execution-mode", "startup-in-progress", "load-at-onset", "slow-weight-load"})
"""What lines of context feed that say how an engine is set up and how its start goes on, dozens of them in every log."""
TOLD = frozenset({"start", "core-start", "ready", "stop"})
"""Context that a reader wants all the same: it bounds the phases."""
BEGAN = ("engine-stalled", "process-stopped", "rank-divergence-collective", "backlog-before-onset", "transient-stall-recovered")
"""Findings of which the beginning stands in no line."""
EPISODE_NS = 300 * SECOND
"""The same line of the same process again within this time belongs to one event; later it is another."""
SILENT_NS = 30 * SECOND
"""Who says nothing for this long, while others go on, has fallen silent."""
MOST = 400
"""Events of one report. Context is left out first."""


@dataclass
class _Episode:
    first: LogHit | KernelEvent
    last_ns: int
    count: int


def build(case: Case, views: Sequence[View]) -> list[TimelineEvent]:
    """All events of all engines and nodes, in order of time; at most MOST of them, those of context left out first."""
    events: list[tuple[bool, TimelineEvent]] = []
    for view in views:
        events += [(h.role == "context" and h.event not in TOLD, e) for h, e in _lines(view)]
        events += [(False, e) for e in _began(view, case.judged.get(view.engine.id, []))]
    owned = {id(h) for view in views for h in view.every_hit}
    events += [(h.role == "context", e) for h, e in _others(h for h in case.of(LogHit) if id(h) not in owned)]
    events += [(k.role == "context", e) for k, e in _kernel(case.of(KernelEvent))]
    events += [(False, e) for e in _platform(case.of(PlatformEvent))]
    events += [(False, e) for e in _silences(case, views)]
    if len(events) > MOST:
        events.sort(key=lambda pair: pair[0])
        events = events[:MOST]
    return sorted((e for _, e in events), key=lambda e: (e.at.earliest_ns, e.at.latest_ns))


def _episodes(hits: Iterable[LogHit]) -> list[_Episode]:
    """The same line of the same process, again and again, is one event with a count."""
    open_: dict[tuple[str, int | None, str, str], _Episode] = {}
    made: list[_Episode] = []
    for hit in sorted((h for h in hits if h.at), key=lambda h: h.at.earliest_ns if h.at else 0):
        assert hit.at
        key = (hit.node, hit.pid, hit.process, hit.signature)
        known = open_.get(key)
        if known and hit.at.earliest_ns - known.last_ns <= EPISODE_NS:
            known.last_ns, known.count = hit.at.latest_ns, known.count + hit.count
            continue
        open_[key] = episode = _Episode(hit, hit.at.latest_ns, hit.count)
        made.append(episode)
    return made


def _wanted(hit: LogHit) -> bool:
    if hit.signature in QUIET or hit.event in QUIET_EVENTS:
        return False
    return hit.event in TOLD or hit.role != "context" or hit.feeds not in NOISE


def _lines(view: View) -> Iterator[tuple[LogHit, TimelineEvent]]:
    for episode in _episodes(h for h in view.every_hit if _wanted(h)):
        hit = episode.first
        assert isinstance(hit, LogHit)
        rank = view.rank_of(hit.node, hit.pid)
        yield hit, _event(episode, view.engine.id, rank if rank is not None else hit.rank)


def _others(hits: Iterable[LogHit]) -> Iterator[tuple[LogHit, TimelineEvent]]:
    """Lines of nodes on which no engine was recognised."""
    for episode in _episodes(h for h in hits if _wanted(h)):
        assert isinstance(episode.first, LogHit)
        yield episode.first, _event(episode, "", episode.first.rank)


def _event(episode: _Episode, engine: str, rank: int | None) -> TimelineEvent:
    hit = episode.first
    assert hit.at and isinstance(hit, LogHit)
    who = hit.process or (f"pid {hit.pid}" if hit.pid else "")
    # the quote of a block ends in its exception
    text = hit.ref.quote if "exc_type" in hit.fields else hit.text
    return TimelineEvent(
        at=hit.at,
        node=hit.node,
        what=f"{who}: {text[:200]}" if who else text[:200],
        ref=hit.ref,
        engine=engine,
        rank=rank,
        finding=hit.feeds,
        count=episode.count,
    )


def _kernel(told: Iterable[KernelEvent]) -> Iterator[tuple[KernelEvent, TimelineEvent]]:
    latest: dict[tuple[str, str, str], int] = {}
    for k in sorted((k for k in told if k.at), key=lambda k: k.at.earliest_ns if k.at else 0):
        assert k.at
        key = (k.node, k.signature, k.text[:80])
        again = key in latest and k.at.earliest_ns - latest[key] <= EPISODE_NS
        latest[key] = k.at.latest_ns
        if not again:
            yield k, TimelineEvent(at=k.at, node=k.node, what=f"kernel: {k.text[:200]}", ref=k.ref, finding=k.feeds)


def _platform(told: Iterable[PlatformEvent]) -> Iterator[TimelineEvent]:
    for p in told:
        if p.at:
            yield TimelineEvent(at=p.at, node=p.node, what=f"platform: {p.reason} {p.text[:200]}".rstrip(), ref=p.ref)


def _began(view: View, findings: Sequence[Finding]) -> Iterator[TimelineEvent]:
    for finding in findings:
        if finding.since and finding.id in BEGAN:
            yield TimelineEvent(
                at=finding.since,
                node=finding.nodes[0] if finding.nodes else "",
                what=f"began: {finding.title[:200]}",
                ref=finding.because[0],
                engine=view.engine.id,
                rank=finding.ranks[0] if len(finding.ranks) == 1 else None,
                finding=finding.id,
            )


def _silences(case: Case, views: Sequence[View]) -> Iterator[TimelineEvent]:
    """The last sign of life of every process and every node that fell silent while others of its engine went on."""
    for view in views:
        spans = [s for s in case.of(LogSpan) if s.node in view.nodes and s.last_ns is not None]
        end = max((s.last_ns or 0 for s in spans), default=0)
        quiet_nodes = set()
        for node in dict.fromkeys(s.node for s in spans):
            own = max((s for s in spans if s.node == node), key=lambda s: s.last_ns or 0)
            if end - (own.last_ns or 0) >= SILENT_NS:
                quiet_nodes.add(node)
                yield _silence(own.last_ns or 0, end, node, f"last line of {node}", own.ref, view.engine.id, None)
        for span in spans:
            for pid, ns in span.last_of.items():
                process = view.process(span.node, pid)
                if process is not None and span.node not in quiet_nodes and end - ns >= SILENT_NS:
                    rank = process.rank.rank if process.rank else None
                    yield _silence(ns, end, span.node, f"last line of {view.name(process)}", span.ref, view.engine.id, rank)


def _silence(at_ns: int, end_ns: int, node: str, what: str, ref: EvidenceRef, engine: str, rank: int | None) -> TimelineEvent:
    at = TimeRange(earliest_ns=at_ns - SECOND + 1, latest_ns=at_ns, basis="logged")
    words = f"{what}; silent from then on, for {duration((end_ns - at_ns) / SECOND)} to the end of the evidence"
    return TimelineEvent(at=at, node=node, what=words, ref=ref, engine=engine, rank=rank)
