"""One look at a shared-memory ring of an engine's size."""

from __future__ import annotations

import os
import statistics
import time
from multiprocessing import shared_memory

import pytest
from test_bench import result

from collectors._rings import MIB, Ring

pytestmark = [pytest.mark.bench, pytest.mark.timeout(120)]

SLOTS, READERS = 10, 8


def test_one_look() -> None:
    memory = shared_memory.SharedMemory(create=True, size=(16 * MIB + 1 + READERS) * SLOTS)
    try:
        flags = SLOTS * 16 * MIB
        for slot in range(SLOTS):
            memory.buf[flags + slot * (1 + READERS)] = 1
        fd = os.open(f"/dev/shm/{memory.name}", os.O_RDONLY)
        try:
            ring, spent = Ring(fd, memory.size), []
            for _ in range(100):
                began = time.perf_counter()
                ring.look()
                spent.append(time.perf_counter() - began)
        finally:
            os.close(fd)
    finally:
        memory.close()
        memory.unlink()
    result(
        "a look at a ring of 160 MiB", statistics.median(spent) * 1000, 5.0, "ms", limit=50.0, details=f"slowest {max(spent) * 1000:.2f} ms"
    )
