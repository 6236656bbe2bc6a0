"""One process whose objects are read: the face of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collectors._cpython._records import Bounds, LockState, Snapshot


def attach(pid: int, sysroot: str = "") -> Process:
    """Open a process for reading; nothing happens to it. Raises Denied, Gone, NotPython, Unsupported."""
    raise NotImplementedError


class Process:
    """Addresses in, addresses or plain values out. Every method raises Unreadable (torn or garbage), Gone or OutOfBounds."""

    pid: int
    version: tuple[int, int]

    def close(self) -> None: ...

    def type_name(self, address: int) -> str:
        """Module-qualified name of an object's type: "queue.Queue", "dict"."""
        raise NotImplementedError

    def base_names(self, address: int) -> tuple[str, ...]:
        """Module-qualified names of the type and its bases, nearest first."""
        raise NotImplementedError

    def attributes(self, address: int) -> dict[str, int]:
        """Addresses of the attributes of an instance, slots included; those of a module or a class likewise."""
        raise NotImplementedError

    def get(self, address: int, name: str) -> int:
        """Address of an attribute: of the instance, else of its classes (as stored: a property is not called), or a global of a module."""
        raise NotImplementedError

    def value(self, address: int, bounds: Bounds = Bounds()) -> Any:
        """The value as plain JSON. See `snapshot` for whether it changed meanwhile."""
        raise NotImplementedError

    def snapshot(self, address: int, bounds: Bounds = Bounds()) -> Snapshot:
        """The value as plain JSON, read again when it changed under the first read."""
        raise NotImplementedError

    def length(self, address: int) -> int:
        """len() of a container, computed from its header; of queue.Queue & Co the depth."""
        raise NotImplementedError

    def items(self, address: int, limit: int = 1000) -> Iterator[int]:
        """Addresses of the elements of a list, tuple, set, deque or queue, or of the *keys* of a dict."""
        raise NotImplementedError

    def pairs(self, address: int, limit: int = 1000) -> Iterator[tuple[int, int]]:
        """Addresses of (key, value) of a dict."""
        raise NotImplementedError

    def lock(self, address: int) -> LockState:
        """A Lock, RLock, Condition, Event or Thread. Raises Nonsense for any other object."""
        raise NotImplementedError

    def globals_of(self, function: int) -> int:
        """Address of the globals dict of a Python function or method."""
        raise NotImplementedError

    def modules(self, any_address: int | None = None) -> dict[str, int]:
        """sys.modules: name -> module object, found without any frame."""
        raise NotImplementedError
