"""Locks as read in the memory of a process: who waits at each, who holds it, and whether the looks agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from forensics.analysis.stacks import ThreadView
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
    """Threads (kernel ids) that waited at it in every reading, and do in the newest look."""
    holder: ThreadView | None
    """The thread that holds it, the same in every reading; None where nothing says."""
    sure: bool
    """Read at least twice, with a holder that stood still meanwhile inside a `with` block of this lock."""
    refs: tuple[EvidenceRef, ...]

    @property
    def words(self) -> str:
        return self.place or f"the {self.kind} at {self.address:#x}"


def held_locks(view: View) -> list[HeldLock]:
    """Locks at which a thread of this engine waits now, with what is known of their holders."""
    readings: dict[tuple[str, int, int], list[LockReading]] = defaultdict(list)
    for reading in view.of(LockReading):
        readings[reading.node, reading.pid, reading.address].append(reading)
    found = []
    for (node, pid, _), seen in readings.items():
        process = view.process(node, pid)
        seen.sort(key=lambda r: r.sample)
        waiters = set(seen[0].waiters).intersection(*(r.waiters for r in seen))
        if process is not None and waiters and view.fresh(seen[-1]):
            found.append(_held(view, process, seen, tuple(sorted(waiters))))
    return found


def _held(view: View, process: EngineProcess, seen: list[LockReading], waiters: tuple[int, ...]) -> HeldLock:
    first = seen[0]
    owners, inside = {r.owner for r in seen}, {r.inside for r in seen}
    # a plain lock stores no owner; two threads "inside" one would be a misreading of the source
    within = next(iter(inside)) if len(inside) == 1 else ()
    holder = next(iter(owners)) if len(owners) == 1 else None
    if owners == {None} and len(within) == 1:
        holder = within[0]
    if holder in waiters and first.kind == "RLock":
        holder = None  # its owner may take it again: it does not wait
    thread = next((t for t in view.threads_of(process) if t.tid == holder), None) if holder is not None else None
    return HeldLock(
        process=process,
        address=first.address,
        kind=first.kind,
        place=next((r.place for r in seen if r.place), ""),
        waiters=waiters,
        holder=thread,
        # an owner's id may have passed to a thread that was started after the owner had ended: its frames must say so too
        sure=len({r.sample for r in seen}) > 1 and thread is not None and thread.moved is False and thread.tid in within,
        refs=(first.ref, seen[-1].ref) if len(seen) > 1 else (first.ref,),
    )
