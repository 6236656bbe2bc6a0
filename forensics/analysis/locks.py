"""Locks as read in the memory of a process: who waits at each, who holds it, and whether two looks agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, LockReading


@dataclass(frozen=True)
class HeldLock:
    """One lock over all its readings."""

    process: EngineProcess
    address: int
    kind: str
    place: str
    waiters: tuple[int, ...]
    """Threads (kernel ids) that waited at it in every reading."""
    holder: int | None
    """The thread that holds it, the same in every reading; None where nothing says."""
    how: str
    """How the holder is known."""
    sure: bool
    """Seen at least twice, and the holder stood still meanwhile."""
    refs: tuple[EvidenceRef, ...]

    @property
    def words(self) -> str:
        return self.place or f"the {self.kind} at {self.address:#x}"


def held_locks(view: View) -> list[HeldLock]:
    """Locks at which a thread of this engine waits, with what is known of their holders."""
    readings: dict[tuple[str, int, int], list[LockReading]] = defaultdict(list)
    for reading in view.of(LockReading):
        readings[reading.node, reading.pid, reading.address].append(reading)
    found = []
    for (node, pid, _), seen in readings.items():
        process = view.process(node, pid)
        if process is None:
            continue
        seen.sort(key=lambda r: r.sample)
        waiters = set(seen[0].waiters).intersection(*(r.waiters for r in seen))
        if waiters:
            found.append(_held(view, process, seen, tuple(sorted(waiters))))
    return found


def _held(view: View, process: EngineProcess, seen: list[LockReading], waiters: tuple[int, ...]) -> HeldLock:
    owners, inside = {r.owner for r in seen}, {r.inside for r in seen}
    holder, how = None, ""
    if len(owners) == 1 and (owner := next(iter(owners))) is not None:
        holder, how = owner, "the lock's own owner field"
    elif len(inside) == 1 and len(within := next(iter(inside))) == 1 and owners == {None}:
        # a plain lock stores no owner; two threads "inside" one would be a misreading of the source
        holder, how = within[0], "a frame inside its with block"
    thread = next((t for t in view.threads_of(process) if t.tid == holder), None) if holder is not None else None
    still = thread is not None and thread.moved is False
    first = seen[0]
    return HeldLock(
        process=process,
        address=first.address,
        kind=first.kind,
        place=next((r.place for r in seen if r.place), ""),
        waiters=waiters,
        holder=holder if holder not in waiters else None,
        how=how,
        sure=len(seen) > 1 and still,
        refs=(first.ref, seen[-1].ref) if len(seen) > 1 else (first.ref,),
    )
