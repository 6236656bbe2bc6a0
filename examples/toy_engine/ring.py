"""Messages between processes through shared memory: a ring with one flag per reader, and the barrier of an all-reduce.

Layout of a ring of S slots, C bytes each, R readers:  [S x C data][S x (1 + R) flags]
Flag byte 0 of a slot: written. Byte 1 + r: reader r has read it. A slot may be written again when all have read it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

SLOTS = 8
SLOT_BYTES = 64 * 1024
SPIN_S = 0.05
"""A reader polls without sleeping for this long after it starts to wait, then every POLL_S."""
POLL_S = 0.002


def open_memory(name: str, size: int = 0) -> SharedMemory:
    """Create (with a size) or attach. Whoever attaches must not track it: before 3.13 the tracker of the first process
    to end would unlink the segment under everybody else's feet."""
    if size:
        return SharedMemory(name=name, create=True, size=size)
    if sys.version_info >= (3, 13):
        return SharedMemory(name=name, track=False)
    register, resource_tracker.register = resource_tracker.register, lambda *_: None
    try:
        return SharedMemory(name=name)
    finally:
        resource_tracker.register = register


class Ring:
    """One writer, `readers` readers, JSON messages."""

    def __init__(self, name: str, readers: int, create: bool = False) -> None:
        self.readers = readers
        size = SLOTS * (SLOT_BYTES + 1 + readers)
        self.memory = open_memory(name, size if create else 0)
        self._next = 0

    def _flags(self, slot: int) -> int:
        return SLOTS * SLOT_BYTES + slot * (1 + self.readers)

    def acquire_write(self) -> int:
        """Wait until every reader has read what the next slot held."""
        flags = self._flags(self._next)
        while self.memory.buf[flags] and not all(self.memory.buf[flags + 1 : flags + 1 + self.readers]):
            time.sleep(POLL_S)
        return self._next

    def enqueue(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        slot = self.acquire_write()
        flags, start = self._flags(slot), slot * SLOT_BYTES
        self.memory.buf[flags] = 0
        self.memory.buf[start : start + 4 + len(body)] = struct.pack("<I", len(body)) + body
        self.memory.buf[flags + 1 : flags + 1 + self.readers] = bytes(self.readers)
        self.memory.buf[flags] = 1
        self._next = (slot + 1) % SLOTS

    def acquire_read(self, reader: int, timeout: float | None, cancelled: Callable[[], bool] | None = None) -> int:
        """Wait for an unread message in the next slot. Raises TimeoutError; ConnectionError when cancelled."""
        flags = self._flags(self._next)
        began = time.monotonic()
        while not self.memory.buf[flags] or self.memory.buf[flags + 1 + reader]:
            waited = time.monotonic() - began
            if cancelled and cancelled():
                raise ConnectionError("cancelled")
            if timeout is not None and waited > timeout:
                raise TimeoutError
            if waited < SPIN_S:
                os.sched_yield()
            else:
                time.sleep(POLL_S)
        return self._next

    def dequeue(self, reader: int, timeout: float | None = None, cancelled: Callable[[], bool] | None = None) -> dict[str, Any]:
        slot = self.acquire_read(reader, timeout, cancelled)
        start = slot * SLOT_BYTES
        (length,) = struct.unpack("<I", self.memory.buf[start : start + 4])
        message: dict[str, Any] = json.loads(bytes(self.memory.buf[start + 4 : start + 4 + length]))
        self.memory.buf[self._flags(slot) + 1 + reader] = 1
        self._next = (slot + 1) % SLOTS
        return message


class Group:
    """The ranks that meet in a collective: each publishes how many it has entered, and its value, then waits for the others.

    A rank's slot holds two values, used in turn: it can be at most one collective ahead of the slowest.
    """

    FORMAT = "<Qdd"

    def __init__(self, name: str, rank: int, world: int, create: bool = False) -> None:
        self.rank, self.world, self.count = rank, world, 0
        self.memory = open_memory(name, world * struct.calcsize(self.FORMAT) if create else 0)
        self._values = [0.0, 0.0]

    def all_reduce(self, value: float) -> float:
        """The sum over all ranks. Spins without sleeping until all are here, as the real ones do."""
        self.count += 1
        self._values[self.count % 2] = value
        size = struct.calcsize(self.FORMAT)
        # the count is written last: whoever sees it sees the value
        self.memory.buf[self.rank * size + 8 : (self.rank + 1) * size] = struct.pack("<dd", *self._values)
        self.memory.buf[self.rank * size : self.rank * size + 8] = struct.pack("<Q", self.count)
        total = 0.0
        for peer in range(self.world):
            while struct.unpack_from("<Q", self.memory.buf, peer * size)[0] < self.count:
                os.sched_yield()
            total += struct.unpack_from("<dd", self.memory.buf, peer * size + 8)[self.count % 2]
        return total
