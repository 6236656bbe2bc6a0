"""Queues of a running program: those that a thread is in, and bounded ones that frames hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from collectors._locks import Locks
from collectors._threads import Frame, Thread
from collectors._waits import place_of

QUEUES_MAX = 64
SEARCH_S = 0.15
"""For bounded queues that nobody is in."""
INNERMOST = 12
KINDS = ("queue.Queue", "_queue.SimpleQueue", "asyncio.queues.Queue", "multiprocessing.queues.Queue")
_ATTRIBUTES = {"queue.Queue": ("maxsize", "unfinished_tasks"), "asyncio.queues.Queue": ("_maxsize", "_unfinished_tasks")}
_UNBOUNDED = 2**31 - 1
"""SEM_VALUE_MAX: the size of a multiprocessing queue that was given none."""
_SEMAPHORE = 16
"""Of _multiprocessing.SemLock: pointer to the sem_t, whose first four bytes are its value (glibc and musl)."""
_FILES = ("/queue.py", "/multiprocessing/queues.py", "/asyncio/queues.py")
_WAYS = {"put": "putting", "put_nowait": "putting", "get": "getting", "get_nowait": "getting"}


class Queues:
    """The queues of one process in one look."""

    def __init__(self, locks: Locks, threads: list[Thread]) -> None:
        self.locks, self.names = locks, locks.names
        self.threads = threads
        self.found: dict[int, dict[str, Any]] = {}

    def read(self, into: list[dict[str, Any]]) -> None:
        """Append every queue to `into`, also where it ends in OutOfBounds."""
        try:
            self._read()
        finally:
            into += self.found.values()

    def _read(self) -> None:
        for thread in self.threads:
            self._in(thread)
        for queue in list(self.found.values()):
            # who takes from a queue in which somebody waits to put, whatever that thread is doing now
            if queue["putting"]:
                queue["takers"] = self._users(queue["address"], "get", "get_nowait")
            if any(t.name == "MainThread" and t.tid in queue["getting"] for t in self.threads):
                queue["givers"] = self._users(queue["address"], "put", "put_nowait")
        for place, address in self._held():
            self._note(address, place, bounded=True)

    def _in(self, thread: Thread) -> None:
        for frame in thread.frames[:INNERMOST]:
            if frame.file.endswith(_FILES) and frame.function in _WAYS and "self" in frame.locals:
                queue = self._note(frame.locals["self"], "", thread)
                if queue is not None:
                    queue[_WAYS[frame.function]].append(thread.tid)
                return
        # SimpleQueue is written in C: the call is in the program's own line
        frame0 = thread.frames[0] if thread.frames and thread.tid in self.locks.futexes else None
        position = self.names.position(frame0) if frame0 else None
        for expr in position.calls("get") if frame0 and position else ():
            address = self.names.one(expr, frame0, position) if frame0 and position else None
            if address is not None and "_queue.SimpleQueue" in self.names.bases(address):
                queue = self._note(address, "", thread)
                if queue is not None:
                    queue["getting"].append(thread.tid)

    def _note(self, address: int, place: str, thread: Thread | None = None, bounded: bool = False) -> dict[str, Any] | None:
        """The record of a queue, made at its first mention."""
        if address in self.found:
            return self.found[address]
        kind = next((base for base in self.names.bases(address) if base in KINDS), None)
        if kind is None or len(self.found) >= QUEUES_MAX:
            return None
        size, unfinished = _ATTRIBUTES.get(kind, ("_maxsize", ""))
        maxsize = self.names.plain(address, size)
        maxsize = maxsize if isinstance(maxsize, int) and 0 < maxsize < _UNBOUNDED else None
        depth = self._depth(address, kind) if maxsize or not bounded else None
        if depth is None:
            return None
        queue: dict[str, Any] = {"address": address, "kind": self.names.bases(address)[0], "depth": depth}
        queue["place"] = place or (place_of(self.locks, thread, address) if thread else kind)
        tasks = self.names.plain(address, unfinished) if unfinished else None
        queue |= {"maxsize": maxsize, "unfinished": tasks if isinstance(tasks, int) else None}
        queue |= {"putting": [], "getting": []}
        self.found[address] = queue
        return queue

    def _depth(self, address: int, kind: str) -> int | None:
        process = self.names.process
        if kind != "multiprocessing.queues.Queue":
            return self.names.ask(lambda: process.length(address), None, address)
        # every put takes from a semaphore that began at the queue's size; items on their way in the pipe count
        semaphore, size = self.names.get(address, "_sem"), self.names.plain(address, "_maxsize")
        lock = self.names.get(semaphore, "_semlock") if semaphore else None
        left = self.names.ask(lambda: process.memory.read(process.memory.word((lock or 0) + _SEMAPHORE), 4), None)
        free = int.from_bytes(left, "little") if left else -1
        return size - free if isinstance(size, int) and 0 <= free <= size else None

    def _users(self, address: int, *methods: str) -> list[int]:
        """Threads that run a function which calls one of these methods on the queue, wherever in it they stand."""
        return sorted(t.tid for t in self.threads if any(self._uses(f, address, methods) for f in t.frames[: 4 * INNERMOST]))

    def _uses(self, frame: Frame, address: int, methods: tuple[str, ...]) -> bool:
        position = self.names.position(frame)
        return position is not None and any(self.names.one(expr, frame, position) == address for expr in position.anywhere(*methods))

    def _held(self) -> Iterator[tuple[str, int]]:
        """Objects that local variables hold, their attributes, and the variables of the frames' modules, as time permits."""
        until = time.monotonic() + SEARCH_S
        seen: set[int] = set()
        frames = [frame for thread in self.threads for frame in thread.frames[: 4 * INNERMOST]]
        for frame in frames:
            for name, address in frame.locals.items():
                yield name, address
                if address not in seen and time.monotonic() < until:
                    seen.add(address)
                    yield from self._attributes(address)
        for file in dict.fromkeys(frame.file for frame in frames):
            for module in self.names.modules_of(file) if time.monotonic() < until else ():
                yield from self._attributes(module, file.rpartition("/")[2].removesuffix(".py"))

    def _attributes(self, holder: int, owner: str = "") -> Iterator[tuple[str, int]]:
        bases = self.names.bases(holder)
        if not bases or bases[0] in ("dict", "list", "tuple", "str", "int", "float", "bool", "NoneType", "type"):
            return
        for name, address in self.names.attributes(holder).items():
            yield f"{owner or bases[0].rpartition('.')[2]}.{name}", address
