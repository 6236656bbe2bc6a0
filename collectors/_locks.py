"""Locks at which threads wait, with whoever can be shown to be inside them.

A thread blocked in a lock sleeps at a futex word inside the lock object, so which lock it waits for is a comparison of
addresses and no guess. A plain lock stores no owner: its holder is a thread whose frame keeps the `__exit__` of the very same
object, because it entered it with a `with` statement (see collectors._cpython._frames). A re-entrant lock stores the ident of
its owner, which outlives that thread and is given to a new one: the same proof tells whether that one ever entered it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from collectors._cpython import LockState, Running
from collectors._resolve import Names
from collectors._threads import Frame, Thread

SEARCH_FRAMES = 4
"""Innermost frames in which the lock that a thread waits at is looked for."""
SEARCH_OBJECTS = 400
SEARCH_S = 0.3
"""Of looking for locks that no source names, in all: a thread may wait in native code for something that is no lock of Python's."""
LOCK_TYPES = ("_thread.lock", "_thread.RLock")
IN_PYTHON = "threading._RLock"
"""A re-entrant lock where the interpreter has none of its own."""
LETS_GO = frozenset({"release", "release_lock", "__exit__"})
_RELEASE_SAVE = "_release_save"
"""What a condition calls to let its lock go for the time of a wait."""


class Wait(NamedTuple):
    """A thread at the lock that it waits for."""

    thread: Thread
    lock: int
    place: str


class Proof(NamedTuple):
    """That a thread has entered a lock: the same twice, while the lock was taken, and it is inside."""

    frame: int
    method: int


class Checks(Protocol):
    """Second looks, so that nothing is said of a thread that went on meanwhile."""

    def futex(self, tid: int) -> int | None:
        """The word that the thread waits at now."""

    def slept(self, thread: Thread) -> bool:
        """Whether the thread has not run at all since before its stack was read."""


class Locks:
    """The locks of one process in one look. `futexes`: thread id to the word that it waits at."""

    def __init__(self, names: Names, futexes: dict[int, int]) -> None:
        self.names = names
        self.futexes = futexes
        self._states: dict[int, LockState | None] = {}
        self._plain: dict[int, int | None] = {}
        self._words: dict[int, frozenset[str] | None] = {}
        self._search_until = time.monotonic() + SEARCH_S

    def state(self, address: int) -> LockState | None:
        """The lock at an address (remembered), None when it is none."""
        if address not in self._states:
            self._states[address] = self.fresh(address)
        return self._states[address]

    def fresh(self, address: int) -> LockState | None:
        return self.names.ask(lambda: self.names.process.lock(address), None)

    def plain(self, address: int) -> int | None:
        """The lock itself: that of a condition, where it is one; None for what is no lock."""
        if address not in self._plain:
            bases, lock = self.names.bases(address), address
            if "threading.Condition" in bases:
                lock = self.names.get(address, "_lock") or 0
                bases = self.names.bases(lock)
            self._plain[address] = lock if (bases[:1] and bases[0] in LOCK_TYPES) or IN_PYTHON in bases else None
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
            for address, place in candidates:
                lock = self.plain(address)
                if lock is None or lock in seen:
                    continue
                seen.add(lock)
                if self.waited_at(lock, futex):
                    return Wait(thread, lock, place)
        return None

    def _named(self, thread: Thread) -> Iterator[tuple[int, str]]:
        """What the source says is being taken at this line."""
        for frame in thread.frames[:SEARCH_FRAMES]:
            position = self.names.position(frame)
            if position is None or self._of_plumbing(frame):
                continue
            for expr in [*position.entering(), *position.calls("acquire", "__enter__")]:
                for address in self.names.all(expr, frame, position):
                    yield address, self.names.spelled(expr, frame)

    def _of_plumbing(self, frame: Frame) -> bool:
        """Whether it is a method of a lock that is written in Python: what it takes is a part of that lock."""
        own = frame.locals.get("self") if frame.file.endswith("/threading.py") else None
        return own is not None and IN_PYTHON in self.names.bases(own)

    def _held(self, thread: Thread) -> Iterator[tuple[int, str]]:
        """Where the source does not help: locks in local variables, in their attributes, in the module's variables."""
        left = SEARCH_OBJECTS
        for frame in thread.frames[:SEARCH_FRAMES]:
            for name, address in frame.locals.items():
                yield address, f"{name} ({frame.where})"
            if self._of_plumbing(frame):
                continue
            modules = self.names.modules_of(frame.file) if frame is thread.frames[0] else []
            holders = [("", module) for module in modules]
            holders += [
                (f"{(self.names.bases(address) or (name,))[0].rpartition('.')[2]}.", address) for name, address in frame.locals.items()
            ]
            for prefix, holder in holders:
                for name, address in self.names.attributes(holder).items():
                    left -= 1
                    if left < 0 or time.monotonic() > self._search_until:
                        return
                    yield address, f"{prefix}{name} ({frame.where})"

    def inside(self, thread: Thread, locks: set[int]) -> dict[int, Proof]:
        """Of these locks, those that the thread has entered with a `with` statement and has not visibly let go of since."""
        frames = self.names.frames_of(thread)
        entered = [(depth, self.plain(entry.manager), entry) for depth, frame in enumerate(frames) for entry in frame.entered]
        found: dict[int, Proof] = {}
        for depth, lock, entry in entered:
            # whatever its outer frames do, they did it before
            if lock in locks and lock is not None and not any(self._lets_go(f, thread, lock) for f in frames[: depth + 1]):
                found.setdefault(lock, Proof(frames[depth].address, entry.method))
        return found

    def _lets_go(self, now: Running, thread: Thread, lock: int) -> bool:
        """Whether a frame may have let the lock go, or is about to: by waiting in its condition, or by a call that may be of this lock."""
        if now.code not in self._words:
            self._words[now.code] = self.names.words_of(now)
        words = self._words[now.code]
        if words is None:
            return True
        if _RELEASE_SAVE in words:
            of = {self.plain(value) for value in self.names.values_of(now)} - {None}
            return lock in of or not of
        shown = self.names.shown(thread, now)
        if LETS_GO & words:
            position = self.names.position(shown) if shown else None
            owners = position.owners(*LETS_GO) if position else []
            addresses = [self.names.one(expr, shown, position) for expr in owners] if shown and position else []
            if not addresses or None in addresses or lock in {self.plain(a) for a in addresses if a is not None}:
                return True
        return any(name in LETS_GO and self.plain(owner) == lock for name, owner in self.names.methods_of(now, words))


def is_condition_wait(frame: Frame) -> bool:
    return frame.function == "wait" and frame.file.endswith("/threading.py") and "waiter" in frame.locals


def read(locks: Locks, threads: list[Thread], apart: set[int], check: Checks, found: list[dict[str, Any]]) -> None:
    """Append to `found` every lock that a thread waits for and that reads the same twice.

    `apart`: threads known to wait for something else. Raises OutOfBounds when its time is over; what was found by then is there.
    """
    at: dict[int, list[Wait]] = {}
    for thread in threads:
        wait = locks.find(thread) if thread.tid not in apart else None
        futex = check.futex(thread.tid) if wait else None
        if wait and futex is not None and locks.waited_at(wait.lock, futex):
            at.setdefault(wait.lock, []).append(wait)
    if not at:
        return
    proofs = {thread.tid: proof for thread in threads if thread.tid and (proof := locks.inside(thread, set(at)))}
    by_tid, tids = {thread.tid: thread for thread in threads}, {thread.ident: thread.tid for thread in threads if thread.tid}
    for lock, waiting in at.items():
        state, now = locks.state(lock), locks.fresh(lock)
        if state is None or state != now or not state.locked:
            continue  # it changed hands while we looked
        waiters = sorted(wait.thread.tid for wait in waiting)
        inside = [
            tid
            for tid, of in proofs.items()
            if lock in of
            and locks.inside(by_tid[tid], {lock}).get(lock) == of[lock]
            # who waits for what it has itself, does so for ever
            and (tid not in waiters or check.slept(by_tid[tid]))
        ]
        found.append(
            {
                "address": lock,
                "kind": state.kind,
                "place": waiting[0].place,
                "owner": tids.get(state.owner_ident or 0),
                "owner_known": state.owner_ident in tids,
                "count": state.depth,
                "waiters": waiters,
                # a lock has one holder: of two that entered it, one has let it go where it cannot be seen
                "inside": inside if len(inside) == 1 else [],
            }
        )
