"""What the reader hands out."""

from __future__ import annotations

from typing import Any, NamedTuple


class Bounds(NamedTuple):
    """Of one snapshot. What lies beyond is marked in the value, never dropped silently."""

    depth: int = 4
    items: int = 64
    """Of one container."""
    objects: int = 4000
    """In all."""
    text: int = 400
    """Characters or bytes of one string."""
    nbytes: int = 4 << 20
    """Read from the process in all."""
    seconds: float = 0.5


DEFAULT_BOUNDS = Bounds()


class Snapshot(NamedTuple):
    """A value as plain JSON, see `_snapshot`."""

    value: Any
    type: str
    torn: bool
    """It changed while it was read: what it says may never have been true at one moment."""
    cut: bool
    """A bound was reached or a part was unreadable; the places are marked in the value."""


class LockState(NamedTuple):
    """A lock as its memory shows it."""

    kind: str
    """Lock | RLock | Condition | Event | Thread"""
    address: int
    word_range: tuple[int, int] | None
    """[first, last) of the memory in which a blocked thread's futex address lies; None where waiters are parked elsewhere (3.14)."""
    locked: bool | None
    """Event: not set; Thread: not ended. None when it cannot be told."""
    owner_ident: int | None = None
    """Thread ident (pthread) of the holder: of re-entrant locks only, a plain lock stores none. Of a Thread its own."""
    depth: int | None = None
    """How often the owner has acquired it."""
    waiting: tuple[tuple[int, int], ...] = ()
    """Condition and Event: for each thread in wait(), the range of the futex word that it waits at. `word_range` is that of the lock."""


class Root(NamedTuple):
    """An object that a frame holds in a local variable."""

    name: str
    type: str
    """Module-qualified: "mypkg.engine.Scheduler"."""
    address: int
    thread_ident: int
    thread_name: str
    frame: str
    """Name of the function."""
    line: int
    file: str = ""
    os_thread_id: int | None = None
    """As this node counts it: the number under /proc/PID/task."""
    depth: int = 0
    """0 is the innermost frame."""


class Found(NamedTuple):
    """What an expression came to."""

    address: int | None
    """None for a computed value (len)."""
    value: Any
    type: str
    torn: bool = False
    cut: bool = False
    root: str = ""
    """How the first name was understood: "local self of step (engine.py:41) in MainThread"."""
