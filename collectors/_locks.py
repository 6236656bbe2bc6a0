"""Locks at which threads wait, with whoever can be shown to hold them; events, conditions and threads that are waited for.

A thread blocked in a lock sleeps at a futex word inside the lock object, so which lock it waits for is a comparison of
addresses and no guess. A plain lock stores no owner: its holder is a thread with a frame inside a `with` block of the very
same object, a re-entrant lock's holder is its owner field.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from collectors._cpython import Gone, LockState, OutOfBounds, PeekError
from collectors._resolve import Names
from collectors._threads import Frame, Thread

SEARCH_FRAMES = 4
"""Innermost frames in which the lock that a thread waits at is looked for."""
SEARCH_OBJECTS = 400
SEARCH_S = 0.3
"""Of looking for locks that no source names, in all: a thread may wait in native code for something that is no lock of Python's."""
LOCK_TYPES = ("_thread.lock", "_thread.RLock")


class Wait(NamedTuple):
    """A thread at the lock that it waits for."""

    thread: Thread
    lock: int
    place: str
    held: tuple[int, ...] = ()
    """Locks that the same `with` statement had taken before it came to this one."""


class Checks(Protocol):
    """Second looks, so that nothing is said of a thread that went on meanwhile."""

    def futex(self, tid: int) -> int | None:
        """The word that the thread waits at now."""

    def stood(self, thread: Thread, depth: int) -> bool:
        """Whether the thread has not left the frame at `depth`, nor its line there, since its stack was read."""


class Locks:
    """The locks of one process in one look. `futexes`: thread id to the word that it waits at."""

    def __init__(self, names: Names, futexes: dict[int, int]) -> None:
        self.names = names
        self.futexes = futexes
        self._states: dict[int, LockState | None] = {}
        self._plain: dict[int, int | None] = {}
        self._search_until = time.monotonic() + SEARCH_S

    def state(self, address: int) -> LockState | None:
        """The lock at an address (remembered), None when it is none."""
        if address not in self._states:
            self._states[address] = self.fresh(address)
        return self._states[address]

    def fresh(self, address: int) -> LockState | None:
        try:
            return self.names.process.lock(address)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return None

    def plain(self, address: int) -> int | None:
        """The lock itself: that of a condition, where it is one; None for what is no lock."""
        if address not in self._plain:
            bases, lock = self.names.bases(address), address
            if "threading.Condition" in bases:
                lock = self.names.get(address, "_lock") or 0
                bases = self.names.bases(lock)
            self._plain[address] = lock if bases[:1] and bases[0] in LOCK_TYPES else None
        return self._plain[address]

    def waited_at(self, address: int, futex: int) -> bool:
        state = self.state(address)
        return bool(state and state.word_range and state.word_range[0] <= futex < state.word_range[1])

    def find(self, thread: Thread) -> Wait | None:
        """The lock whose word the thread sleeps at, searched in what its innermost frames name and hold."""
        futex = self.futexes.get(thread.tid)
        if futex is None:
            return None
        seen: set[int] = set()
        for candidates in (self._named(thread), self._held(thread)):
            for address, place, held in candidates:
                lock = self.plain(address)
                if lock is None or lock in seen:
                    continue
                seen.add(lock)
                if self.waited_at(lock, futex):
                    return Wait(thread, lock, place, held)
        return None

    def _named(self, thread: Thread) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """What the source says is being taken at this line."""
        for depth, frame in enumerate(thread.frames[:SEARCH_FRAMES]):
            position = self.names.position(frame)
            if position is None:
                continue
            for items in position.entering():
                before: list[int] = []
                for expr in items:
                    found = self.names.all(expr, frame, position)
                    for address in found:
                        yield address, self.names.spelled(expr, frame), tuple(before) if depth == 0 else ()
                    lock = self.plain(found[0]) if len(set(found)) == 1 else None
                    before += [lock] if lock is not None else []
            for expr in position.calls("acquire", "__enter__"):
                for address in self.names.all(expr, frame, position):
                    yield address, self.names.spelled(expr, frame), ()

    def _held(self, thread: Thread) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Where the source does not help: locks in local variables, in their attributes, in the module's variables."""
        left = SEARCH_OBJECTS
        for frame in thread.frames[:SEARCH_FRAMES]:
            for name, address in frame.locals.items():
                yield address, f"{name} ({frame.where})", ()
            modules = self.names.modules_of(frame.file) if frame is thread.frames[0] else []
            holders = [("", module) for module in modules]
            holders += [
                (f"{(self.names.bases(address) or (name,))[0].rpartition('.')[2]}.", address) for name, address in frame.locals.items()
            ]
            for prefix, holder in holders:
                for name, address in self._attributes(holder).items():
                    left -= 1
                    if left < 0 or time.monotonic() > self._search_until:
                        return
                    yield address, f"{prefix}{name} ({frame.where})", ()

    def _attributes(self, address: int) -> dict[str, int]:
        try:
            return self.names.process.attributes(address)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return {}

    def inside(self, thread: Thread, locks: set[int]) -> dict[int, int]:
        """Of these locks, those in whose `with` block the thread stands, with the depth of the frame that does."""
        found: dict[int, int] = {}
        # waiting in a condition lets its lock go, and so may any function that was called from inside the block
        let_go = {lock for frame in thread.frames if is_condition_wait(frame) and (lock := self._of_condition(frame)) is not None}
        for depth, frame in enumerate(thread.frames):
            position = self.names.position(frame) if locks - let_go else None
            if position is None:
                continue
            for block in position.blocks():
                address = self.names.one(block.expr, frame, position) if block.certain else None
                lock = self.plain(address) if address is not None else None
                if lock is not None and lock in locks - let_go:
                    found.setdefault(lock, depth)
            for expr in position.anywhere("release"):
                address = self.names.one(expr, frame, position)
                lock = self.plain(address) if address is not None else None
                let_go |= locks if address is None else set() if lock is None else {lock}
        return found

    def _of_condition(self, frame: Frame) -> int | None:
        """The lock that a thread in Condition.wait has let go of."""
        owner = frame.locals.get("self")
        return self.plain(owner) if owner is not None else None


def is_condition_wait(frame: Frame) -> bool:
    return frame.function == "wait" and frame.file.endswith("/threading.py") and "waiter" in frame.locals


def read(locks: Locks, threads: list[Thread], apart: set[int], check: Checks) -> list[dict[str, Any]]:
    """Every lock that a thread waits for and that reads the same twice. `apart`: threads known to wait for something else."""
    waits = [wait for thread in threads if thread.tid not in apart and (wait := locks.find(thread))]
    waits = [wait for wait in waits if (futex := check.futex(wait.thread.tid)) is not None and locks.waited_at(wait.lock, futex)]
    at: dict[int, list[Wait]] = {}
    for wait in waits:
        at.setdefault(wait.lock, []).append(wait)
    holders = _holders(locks, threads, waits, set(at), check)
    tids = {thread.ident: thread.tid for thread in threads}
    found = []
    for lock, waiting in at.items():
        state, now = locks.state(lock), locks.fresh(lock)
        if state is None or state != now or not state.locked:
            continue  # it changed hands while we looked
        inside = holders.get(lock, [])
        found.append(
            {
                "address": lock,
                "kind": state.kind,
                "place": waiting[0].place,
                "owner": tids.get(state.owner_ident or 0),
                "owner_known": state.owner_ident is None or state.owner_ident in tids,
                "count": state.depth,
                "waiters": sorted(wait.thread.tid for wait in waiting),
                # a plain lock has one holder: two mean that one of the frames has moved on
                "inside": inside if len(inside) == 1 and state.owner_ident is None else [],
            }
        )
    return found


def _holders(locks: Locks, threads: list[Thread], waits: list[Wait], wanted: set[int], check: Checks) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    if not wanted:
        return found
    for thread in threads:
        for lock, depth in locks.inside(thread, wanted).items() if thread.tid else ():
            if check.stood(thread, depth):
                found.setdefault(lock, []).append(thread.tid)
    for wait in waits:  # `with a, b:` at b has a
        for lock in wait.held:
            if lock in wanted and wait.thread.tid not in found.get(lock, []) and check.stood(wait.thread, 0):
                found.setdefault(lock, []).append(wait.thread.tid)
    return found
