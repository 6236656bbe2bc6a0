"""The life of an engine in stretches: start-up, serving, onset, silence, teardown, with what separates them.

Boundaries are times that a finding or a line states; where one is not known the phases around it are left out, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, LogHit, Phase, Severity, TimeRange

NOTICED = ("wait", "timeout", "hang", "told")
"""Events in which an engine says that something takes too long or went wrong, and lives on."""
ENDED = ("fatal", "death-told", "worker-death")
"""Events from which on it is being torn down."""
SAME_NS = 2 * SECOND
"""Onset and last progress this close together are one moment: log lines are dated to the second."""


@dataclass(frozen=True)
class _Edge:
    name: str
    """Of the phase that begins here."""
    at: TimeRange
    what: str
    ref: EvidenceRef | None


def of_engine(view: View, findings: Sequence[Finding]) -> list[Phase]:
    """Phases of the last life, and of the life before it where that one broke; in order of time."""
    edges = list(_edges(view, findings))
    edges.sort(key=lambda e: e.at.earliest_ns)
    phases = []
    for i, edge in enumerate(edges):
        after = edges[i + 1] if i + 1 < len(edges) else None
        if edge.name == "end" or (after and after.at.earliest_ns <= edge.at.earliest_ns):
            continue
        phases.append(
            Phase(
                engine=view.engine.id,
                name=edge.name,
                since=edge.at,
                until=after.at if after else None,
                ended_by=after.what if after else "",
                ref=after.ref if after else edge.ref,
            )
        )
    return phases


def _edges(view: View, findings: Sequence[Finding]) -> Iterator[_Edge]:
    """What begins when: of one life, and the end of what is known of it."""
    starts = [h for h in view.events("start", "core-start") if h.at]
    ready = [h for h in view.events("ready") if h.at]
    begun = _dated(starts[:1])
    served = _served(view)
    again = view.life > 1 or len(view.hits) < len(view.every_hit)  # lines of an earlier life
    if begun:
        yield _Edge("restart" if again else "start-up", begun[0], _line(starts[0]), starts[0].ref)
    answering = [h for h in ready if not begun or (h.at and h.at.earliest_ns >= begun[0].earliest_ns)]
    if answering and answering[-1].at:
        yield _Edge("serving", answering[-1].at, _line(answering[-1]), answering[-1].ref)
    elif served:
        yield _Edge("serving", served[0], "the first sign of service in the evidence", served[1])
    broken = [f for f in findings if _broke(f) and (not begun or (f.since and f.since.earliest_ns >= begun[0].earliest_ns))]
    noticed = [h for h in view.events(*NOTICED, *ENDED) if h.at]
    if broken:
        first = min(broken, key=lambda f: f.since.earliest_ns if f.since else 0)
        assert first.since
        onset = first.since.earliest_ns
        later = [h for h in noticed if h.at and h.at.earliest_ns >= onset]
        alive = view.progress.last_moved(later[0].at.earliest_ns if later and later[0].at else None)
        moved = alive.until_ns if alive and alive.until_ns and alive.until_ns >= onset else None
        if moved is None or moved - onset > SAME_NS:
            yield _Edge("onset", first.since, first.title[:160], first.because[0])
        if moved is not None and alive:
            yield _Edge("silence", TimeRange(earliest_ns=moved, latest_ns=moved, basis="logged"), "the last progress", alive.refs[-1])
        for name, events in (("detection", (*NOTICED, *ENDED)), ("teardown", ENDED)):
            if seen := next((h for h in later if h.event in events), None):
                assert seen.at
                yield _Edge(name, seen.at, _line(seen), seen.ref)
    elif view.stopped_ns is not None:
        asked = next((h for h in view.events("stop") if h.at and h.at.earliest_ns == view.stopped_ns), None)
        if asked and asked.at:
            yield _Edge("teardown", asked.at, _line(asked), asked.ref)
    end = view.ended_ns
    if end is not None:
        yield _Edge("end", TimeRange(earliest_ns=end, latest_ns=end, basis="logged"), "the end of the evidence", None)


def _served(view: View) -> tuple[TimeRange, EvidenceRef] | None:
    moved = [i for i in view.progress.log if i.moved and i.since_ns is not None]
    if not moved:
        return None
    first = min(moved, key=lambda i: i.since_ns or 0)
    at = first.since_ns or 0
    return TimeRange(earliest_ns=at, latest_ns=at, basis="inferred"), first.refs[0]


def _broke(f: Finding) -> bool:
    grave = f.role is FindingRole.ROOT or f.severity is Severity.CRITICAL
    return bool(f.since) and grave and f.grade.strength >= Grade.SUPPORTED.strength


def _dated(hits: Sequence[LogHit]) -> list[TimeRange]:
    return [h.at for h in hits if h.at]


def _line(hit: LogHit) -> str:
    return f"{hit.process}: {hit.text[:120]}" if hit.process else hit.text[:120]
