"""Who waits for whom: one edge for each wait that evidence shows, from the main threads outward to whoever they wait for.

A thread's place says what it waits for; who is to bring it comes from other evidence: the other ranks' stacks for a
collective, the engine's own order for an answer, the lock object for a lock. Where none of it says, the edge ends in a
description instead of a participant.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.locks import HeldLock
from forensics.analysis.stacks import ThreadView, operation
from forensics.analysis.view import View
from forensics.model import EngineProcess, EventWait, EvidenceRef, Grade, QueueDepth, Role, Wait

_VIA = {
    "collective": "collective",
    "rpc-response": "rpc-response",
    "ring-full": "rpc-request",
    "queue-put": "queue",
    "queue-get": "queue",
    "lock": "lock",
    "gpu-sync": "gpu",
    "future": "future",
    "join": "join",
    "event": "event",
}
_ONLY_FOR_OTHERS = frozenset({"queue-get", "event"})
"""Where threads spend their lives: a wait worth telling only of a thread that somebody else waits for."""

Member = tuple[EngineProcess, ThreadView | None]
"""A participant: one thread of a process, or the process where its threads were not seen."""


def of_engine(view: View) -> list[Wait]:
    """The edges of one engine that stands still; [] for one that moves."""
    if view.stall is None or view.moving:
        return []
    return list(_Graph(view).edges())


class _Graph:
    def __init__(self, view: View) -> None:
        self.view = view
        self.told: set[tuple[str, int, int | None]] = set()

    def edges(self) -> Iterator[Wait]:
        mains = [(p, self.view.main_thread(p)) for p in self.view.engine.processes if p.role in (Role.CORE, Role.WORKER)]
        todo: list[tuple[Member, bool]] = [(m, False) for m in mains]
        while todo:
            (process, thread), waited_for = todo.pop(0)
            if thread is None:
                continue
            key = (process.info.node, process.pid, thread.tid)
            if key in self.told or self._held(process) or (thread.state in _ONLY_FOR_OTHERS and not waited_for):
                continue
            self.told.add(key)
            for wait, target in self._of(process, thread):
                yield wait
                if target is not None:
                    todo.append((target, True))

    def _of(self, process: EngineProcess, thread: ThreadView) -> Iterator[tuple[Wait, Member | None]]:
        """What one thread waits for, with the thread that it waits for where that is known."""
        lock = self._lock(process, thread)
        state = "lock" if lock else thread.state
        if state not in _VIA:
            return
        grade = Grade.ESTABLISHED if thread.steady and len(thread.samples) > 1 else Grade.SUPPORTED
        if state == "lock":
            yield self._for_lock(process, thread, lock)
        elif state == "collective":
            for member in self._absent(process, thread):
                # a peer at another collective may be in another group of ranks, in which its own peers are
                elsewhere = member[1] is not None and member[1].state == "collective" and not self._held(member[0])
                grade = Grade.SUPPORTED if elsewhere else grade
                yield self._edge(process, thread, state, grade, self._name(member), member, operation(thread)), member
        elif state in ("rpc-response", "future") and process.role is Role.CORE:
            for worker in self._answering():
                member = self._carrier(worker)
                yield self._edge(process, thread, state, grade, self._name(member), member), member
        elif state in ("queue-put", "queue-get") and (queue := self._queue(process, thread)):
            yield self._for_queue(process, thread, state, grade, queue)
        elif waited := self._event(process, thread):
            yield self._for_event(process, thread, state, grade, waited)
        else:
            yield self._edge(process, thread, state, grade, thread.target or "unknown"), None

    # ---- for whom

    def _absent(self, process: EngineProcess, thread: ThreadView) -> list[Member]:
        """The ranks that have not come to the collective, or stand at another one."""
        group = next((g for g in self.view.groups if process in g), [])
        mine = operation(thread)
        missing: list[Member] = []
        for peer in group:
            other = self.view.main_thread(peer)
            # a stopped rank comes no further, though it may have been stopped inside the collective
            if peer is not process and (self._held(peer) or other is None or other.state != "collective"):
                missing.append((peer, other))
        if missing:
            return missing
        others = [(p, t) for p in group if p is not process and (t := self.view.main_thread(p)) and operation(t)]
        return [(p, t) for p, t in others if mine and operation(t) != mine]

    def _answering(self) -> list[EngineProcess]:
        workers = self.view.workers
        return [w for w in workers if w.rank and w.rank.rank == self.view.output_rank] or list(workers[:1])

    def _carrier(self, worker: EngineProcess) -> Member:
        """The thread that will bring a worker's answer: its delivery thread where that stands inside a result, else its main thread."""
        names = self.view.profile.delivery_threads
        carrying = [t for t in self.view.threads_of(worker) if t.name in names and t.state != "queue-get"]
        return worker, carrying[0] if carrying else self.view.main_thread(worker)

    def _lock(self, process: EngineProcess, thread: ThreadView) -> HeldLock | None:
        return next((lock for lock in self.view.locks if lock.process is process and thread.tid in lock.waiters), None)

    def _for_lock(self, process: EngineProcess, thread: ThreadView, lock: HeldLock | None) -> tuple[Wait, Member | None]:
        if lock is None:
            # which lock, and who holds it, no stack says: the innermost line is all that may be said
            frame = thread.last.frames[0]
            return self._edge(process, thread, "lock", Grade.POSSIBLE, f"whatever holds {frame.name} ({frame.file}:{frame.line})"), None
        holder = next((t for t in self.view.threads_of(process) if lock.holder is not None and t.tid == lock.holder), None)
        if holder is None:
            return self._edge(process, thread, "lock", Grade.POSSIBLE, f"whoever holds {lock.words}", refs=lock.refs), None
        member = (process, holder)
        grade = Grade.ESTABLISHED if lock.sure else Grade.SUPPORTED
        return self._edge(process, thread, "lock", grade, self._name(member), member, lock.words, lock.refs), member

    def _queue(self, process: EngineProcess, thread: ThreadView) -> QueueDepth | None:
        """The newest reading of the queue that a thread is in."""
        mine = [q for q in self.view.of(QueueDepth) if (q.node, q.pid) == (process.info.node, process.pid)]
        return max((q for q in mine if thread.tid in (*q.putting, *q.getting)), key=lambda q: q.sample, default=None)

    def _for_queue(
        self, process: EngineProcess, thread: ThreadView, state: str, grade: Grade, queue: QueueDepth
    ) -> tuple[Wait, Member | None]:
        """A put waits for a thread that takes, a get for one that gives: told by the function that such a thread runs."""
        taking = (*queue.getting, *queue.takers) if state == "queue-put" else (*queue.putting, *queue.givers)
        other = next((t for t in self.view.threads_of(process) if t.tid in taking and t is not thread), None)
        held = f"{queue.queue}, {queue.depth} of {queue.capacity}" if queue.capacity else f"{queue.queue}, {queue.depth} in it"
        if other:
            member = (process, other)
            return self._edge(process, thread, state, grade, self._name(member), member, held, (queue.ref,)), member
        who = "whoever takes from" if state == "queue-put" else "whoever puts into"
        return self._edge(process, thread, state, grade, f"{who} {queue.queue}", detail=held, refs=(queue.ref,)), None

    def _event(self, process: EngineProcess, thread: ThreadView) -> EventWait | None:
        """The newest reading of the event, future or thread that a thread waits for."""
        mine = [e for e in self.view.of(EventWait) if (e.node, e.pid, e.tid) == (process.info.node, process.pid, thread.tid)]
        return max(mine, key=lambda e: e.sample, default=None)

    def _for_event(
        self, process: EngineProcess, thread: ThreadView, state: str, grade: Grade, waited: EventWait
    ) -> tuple[Wait, Member | None]:
        other = next((t for t in self.view.threads_of(process) if waited.target is not None and t.tid == waited.target), None)
        if other:
            member = (process, other)
            return self._edge(process, thread, state, grade, self._name(member), member, "its end", (waited.ref,)), member
        what = f"whoever sets {waited.place or waited.kind}" if waited.flag == "false" else f"{waited.place or waited.kind}"
        return self._edge(process, thread, state, grade, what, refs=(waited.ref,)), None

    # ---- in words

    def _name(self, member: Member) -> str:
        process, thread = member
        return self.view.thread_name(process, thread) if thread else self.view.name(process)

    def _edge(
        self,
        process: EngineProcess,
        thread: ThreadView,
        state: str,
        grade: Grade,
        target: str,
        member: Member | None = None,
        detail: str = "",
        refs: tuple[EvidenceRef, ...] = (),
    ) -> Wait:
        return Wait(
            waiter=self.view.thread_name(process, thread),
            waits_for=target,
            via=_VIA[state],
            grade=grade,
            ref=refs[-1] if refs else thread.last.ref,
            waiter_rank=process.rank.rank if process.rank else None,
            target_rank=member[0].rank.rank if member and member[0].rank else None,
            detail=detail,
        )

    def _held(self, process: EngineProcess) -> bool:
        """Stopped or gone: where its thread stands does not say what it waits for."""
        return self.view.stopped(process) or self.view.ended(process)
