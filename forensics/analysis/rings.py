"""Shared-memory rings by role: which calls of the core each rank has taken out of the broadcast ring, and which it has not.

A flag says that a reader took a call, not that it executed it: a rank stuck inside a call has read everything. So a ring
can show a rank that no longer comes for work, and never that one is well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, RingReading, Role

LOOKS = 3
"""On a busy engine what is unread changes from look to look; the same slots in so many looks are not being taken."""


@dataclass(frozen=True)
class Untaken:
    """Calls that lie in the ring of one core for a rank that does not take them."""

    process: EngineProcess
    calls: tuple[str, ...]
    """Their names, oldest first; "" where a name could not be read."""
    taken_by: tuple[EngineProcess, ...]
    """The ranks that have taken all of them."""
    refs: tuple[EvidenceRef, ...]


def untaken(view: View) -> list[Untaken]:
    """The ranks that left the same calls in their ring in every look, LOOKS of them at least."""
    found = []
    for readings, readers in _broadcast(view):
        if len(readings) < LOOKS:
            continue
        last = readings[-1]
        steady = [tuple(s for s in last.unread[r] if all(s in x.unread[r] for x in readings)) for r in range(len(readers))]
        for r, slots in enumerate(steady):
            if slots and slots == last.unread[r]:
                taken = tuple(p for q, p in enumerate(readers) if q != r and not set(slots) & set(last.unread[q]))
                calls = tuple(last.calls[s] if s < len(last.calls) else "" for s in slots)
                found.append(Untaken(readers[r], calls, taken, (readings[0].ref, last.ref)))
    return found


def _broadcast(view: View) -> list[tuple[list[RingReading], list[EngineProcess]]]:
    """Each ring from a core to its workers, with its readings and who reader 0, 1, … is: told by who holds it open."""
    grouped: dict[tuple[str, str], list[RingReading]] = defaultdict(list)
    for reading in view.of(RingReading):
        if not reading.ambiguous:
            grouped[reading.node, reading.ring].append(reading)
    out = []
    for (node, _), readings in grouped.items():
        readings.sort(key=lambda r: (r.sample, r.at.earliest_ns if r.at else 0))
        last = readings[-1]
        who = [p for pid in last.holders if (p := view.process(node, pid))]
        workers = sorted((p for p in who if p.role is Role.WORKER), key=lambda p: p.rank.rank if p.rank and p.rank.rank is not None else -1)
        cores = [p for p in who if p.role is Role.CORE]
        # with one worker the ring of its answers looks just the same: nothing is said then
        if len(cores) == 1 and len(workers) == last.readers > 1 and all(len(r.unread) == last.readers for r in readings):
            out.append((readings, workers))
    return out
