"""Who waits for whom: one edge for each wait that evidence shows, from the main threads outward to whoever they wait for.

A thread's place says what it waits for; who is to bring it comes from other evidence: the other ranks' stacks for a
collective, the engine's own order for an answer, the lock object for a lock. Where none of it says, the edge ends in a
description instead of a participant. No edge is firmer than the standstill itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.locks import HeldLock
from forensics.analysis.stacks import AMBIGUOUS, ThreadView, frame_text, operation
from forensics.analysis.view import View
from forensics.model import Coverage, EngineProcess, EventWait, EvidenceRef, Grade, QueueDepth, Role, Wait

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
_AT_A_LOCK = frozenset({"lock", "running", "unknown", "event"})
"""States that a thread at a lock can show: its innermost Python line is the program's own, or one of threading's."""
_STEP = r"(?m)(?:^|\.)(?:\w*step\w*|execute_model|sample_tokens|execute_dummy_batch|take_draft_token_ids) \("
"""Frames of a core that runs a step: of all calls, those that one rank answers. Others wait for every rank."""
MOST_ABSENT = 8
"""Ranks that one waiter's edges name; where half of a thousand ranks are elsewhere, the rest is a number."""

Member = tuple[EngineProcess, ThreadView | None]
"""A participant: one thread of a process, or the process where its threads were not seen."""


def of_engine(view: View) -> list[Wait]:
    """The edges of those replicas that stand still; [] where nothing does."""
    return list(_Graph(view).edges()) if view.standing else []


def whole(view: View, seen: Coverage) -> bool:
    """Whether the graph tells of everybody: all ranks were seen, and whoever is in neither end of an edge is idle."""
    told = {at for w in view.waits for at in (w.waiter_at, w.target_at)}
    mains = [(p, view.main_thread(p)) for p in view.standing if p.role in (Role.CORE, Role.WORKER)]
    return seen.complete and all((p.info.node, p.pid) in told or (t is not None and t.state in ("rpc-idle", "core-idle")) for p, t in mains)


class _Graph:
    def __init__(self, view: View) -> None:
        self.view = view
        self.told: set[tuple[str, int, int | None]] = set()
        self.group = {(p.info.node, p.pid): workers for workers in view.groups for p in workers}
        self.locks: dict[tuple[str, int, int | None], HeldLock] = {
            (k.process.info.node, k.process.pid, tid): k for k in view.locks for tid in k.waiters
        }
        self.workers = [p for p in view.standing if p.role is Role.WORKER]

    def edges(self) -> Iterator[Wait]:
        todo: list[tuple[Member, bool]] = [
            ((p, self.view.main_thread(p)), False) for p in self.view.standing if p.role in (Role.CORE, Role.WORKER)
        ]
        while todo:
            (process, thread), waited_for = todo.pop(0)
            if thread is None:
                continue
            key = (process.info.node, process.pid, thread.tid)
            if key in self.told or self._held(process) or (thread.state in _ONLY_FOR_OTHERS and not waited_for and key not in self.locks):
                continue
            self.told.add(key)
            for wait, target in self._of(process, thread):
                yield wait
                if target is not None:
                    todo.append((target, True))

    def _of(self, process: EngineProcess, thread: ThreadView) -> Iterator[tuple[Wait, Member | None]]:
        """What one thread waits for, with the thread that it waits for where that is known."""
        lock = self.locks.get((process.info.node, process.pid, thread.tid)) if thread.state in _AT_A_LOCK else None
        state = "lock" if lock else thread.state
        grade = Grade.ESTABLISHED if thread.steady and len(thread.samples) > 1 else Grade.SUPPORTED
        if state not in ("collective", "rpc-response", "ring-full") and thread.moved is not False:
            grade = Grade.SUPPORTED  # it went from one such wait to another
        if state == "lock":
            yield self._for_lock(process, thread, grade, lock)
        elif state == "collective":
            yield from self._for_peers(process, thread, grade)
        elif state in ("rpc-response", "future") and process.role is Role.CORE:
            yield from self._for_answers(process, thread, state, grade)
        elif state in ("queue-put", "queue-get") and (queue := self._queue(process, thread)):
            yield self._for_queue(process, thread, state, grade, queue)
        elif state in _VIA and (waited := self._event(process, thread)):
            yield self._for_event(process, thread, state, grade, waited)
        elif state in _VIA:
            yield self._edge(process, thread, state, grade, thread.target or "unknown"), None

    # ---- for whom

    def _for_peers(self, process: EngineProcess, thread: ThreadView, grade: Grade) -> Iterator[tuple[Wait, Member | None]]:
        """The ranks that have not come to the collective; else those that stand at another one."""
        mine = operation(thread)
        peers = [p for p in self.group.get((process.info.node, process.pid), ()) if p is not process]
        absent = [(m, g) for p in peers if (g := self._is_absent(m := (p, self.view.main_thread(p)), grade))]
        if not absent:
            # a peer at another collective may be in another group of ranks, in which its own peers are
            others = [(p, t) for p in peers if (t := self.view.main_thread(p)) and operation(t) and mine and operation(t) != mine]
            absent = [((p, t), min(grade, Grade.SUPPORTED, key=_strength)) for p, t in others]
        for member, firm in absent[:MOST_ABSENT]:
            yield self._edge(process, thread, "collective", firm, self._name(member), member, mine), member
        if left := absent[MOST_ABSENT:]:
            firm = min((g for _, g in left), key=_strength)
            yield self._edge(process, thread, "collective", firm, f"{len(left)} more ranks of its group", detail=mine), None

    def _is_absent(self, member: Member, grade: Grade) -> Grade | None:
        """How firmly a peer may be said not to be in the collective; None when it is there."""
        peer, thread = member
        # a stopped rank comes no further, though it may have been stopped inside the collective
        if self._held(peer):
            return grade
        if thread is None:
            return Grade.POSSIBLE
        if thread.state == "collective":
            return None
        return min(grade, Grade.SUPPORTED, key=_strength) if thread.state in AMBIGUOUS or not thread.steady else grade

    def _for_answers(self, process: EngineProcess, thread: ThreadView, state: str, grade: Grade) -> Iterator[tuple[Wait, Member | None]]:
        """A step is answered by one rank of the core's own replica, where the engine says by which; any other call by all of them."""
        mine = [w for w in self.workers if _replica(w) == _replica(process) or len(self.view.cores) == 1]
        output = [w for w in mine if w.rank and w.rank.rank == self.view.output_rank]
        if self.view.engine.world_size in (None, 1) and len(mine) == 1:
            output = mine
        if not re.search(_STEP, frame_text(thread.last.frames)) or (self.view.output_rank is None and not output):
            busy = [w for w in mine if (t := self.view.main_thread(w)) is None or t.state != "rpc-idle" or self._held(w)]
            output, grade = busy, min(grade, Grade.SUPPORTED, key=_strength)
        for worker in output[:MOST_ABSENT]:
            member = self._carrier(worker)
            yield self._edge(process, thread, state, grade, self._name(member), member), member
        if not output:
            unseen = (
                f"the answer of rank {self.view.output_rank}, which was not seen" if self.view.output_rank is not None else thread.target
            )
            yield self._edge(process, thread, state, grade, unseen or "an answer"), None

    def _carrier(self, worker: EngineProcess) -> Member:
        """The thread that will bring a worker's answer: its delivery thread where that stands inside a result, else its main thread."""
        carrying = self.view.delivering(worker)
        return worker, carrying[0] if carrying else self.view.main_thread(worker)

    def _for_lock(self, process: EngineProcess, thread: ThreadView, grade: Grade, lock: HeldLock | None) -> tuple[Wait, Member | None]:
        if lock is None:
            # which lock, and who holds it, no stack says: the innermost line is all that may be said
            frame = thread.last.frames[0]
            whose = f"whatever holds {frame.name} ({frame.file}:{frame.line}) of {self.view.name(process)}"
            return self._edge(process, thread, "lock", Grade.POSSIBLE, whose), None
        if lock.holder is None:
            whose = f"whoever holds {lock.words} of {self.view.name(process)}"
            return self._edge(process, thread, "lock", Grade.POSSIBLE, whose, refs=lock.refs), None
        member = (process, lock.holder)
        firm = grade if lock.sure else min(grade, Grade.SUPPORTED, key=_strength)
        return self._edge(process, thread, "lock", firm, self._name(member), member, lock.words, lock.refs), member

    def _queue(self, process: EngineProcess, thread: ThreadView) -> QueueDepth | None:
        """The queue that a thread is in, as the newest look read it."""
        mine = [q for q in self.view.of(QueueDepth) if q.kind == "live" and (q.node, q.pid) == (process.info.node, process.pid)]
        return next((q for q in mine if thread.tid in (*q.putting, *q.getting) and self.view.fresh(q)), None)

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
        """The event, future or thread that a thread waits for, as the newest look read it."""
        mine = [e for e in self.view.of(EventWait) if (e.node, e.pid, e.tid) == (process.info.node, process.pid, thread.tid)]
        return next((e for e in mine if self.view.fresh(e)), None)

    def _for_event(
        self, process: EngineProcess, thread: ThreadView, state: str, grade: Grade, waited: EventWait
    ) -> tuple[Wait, Member | None]:
        other = next((t for t in self.view.threads_of(process) if waited.target is not None and t.tid == waited.target), None)
        if other:
            member = (process, other)
            return self._edge(process, thread, state, grade, self._name(member), member, "its end", (waited.ref,)), member
        what = waited.place or waited.kind
        return self._edge(
            process, thread, state, grade, f"whoever sets {what}" if waited.flag == "false" else what, refs=(waited.ref,)
        ), None

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
        stall = self.view.stall
        return Wait(
            waiter=self.view.thread_name(process, thread),
            waits_for=target,
            via=_VIA[state],
            grade=min(grade, stall.grade, key=_strength) if stall else grade,
            ref=refs[-1] if refs else thread.last.ref,
            waiter_rank=process.rank.rank if process.rank else None,
            target_rank=member[0].rank.rank if member and member[0].rank else None,
            detail=detail,
            waiter_at=(process.info.node, process.pid),
            target_at=(member[0].info.node, member[0].pid) if member else None,
        )

    def _held(self, process: EngineProcess) -> bool:
        """Stopped or gone: where its thread stands does not say what it waits for."""
        return self.view.stopped(process) or self.view.ended(process)


def _replica(process: EngineProcess) -> int | None:
    return process.rank.dp if process.rank else None


def _strength(grade: Grade) -> int:
    return grade.strength
