"""The flags and call names of a shared-memory ring of vLLM (distributed/device_communicators/shm_broadcast.py), read from outside.

Layout: `slots` chunks of payload, then for each slot one byte "written" and one byte per reader "has taken it out". There is no
magic, no index and no time in it: which segment is a ring follows from its size alone, so every geometry that fits is kept.

The payload holds prompts and token ids. Of a slot only its first bytes are looked at, and only the name of the call leaves.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from collectors._calls import call_name

MIB = 1024 * 1024
SLOTS_MAX, READERS_MAX = 64, 1024
KNOWN = ((10, 0), (6, 4 * MIB), (8, 256 * MIB))
"""(slots, bytes of a slot or 0 for any whole MiB) that vLLM makes: executor, GroupCoordinator, tensor arena. Flags take less than a
MiB and the payloads 10 x N, 24 and 2048 MiB, so no size fits two of them."""
HEAD_BYTES = 512
"""Of a slot. The name of a call stands within its first hundred bytes."""
TRIES, SNAPSHOT_NS = 3, 5_000_000
"""A snapshot takes 0.2 ms. One that had to wait for a processor may join the flags of one lap with the calls of another."""


class Geometry(NamedTuple):
    slots: int
    readers: int
    chunk_bytes: int
    known: bool
    """vLLM makes rings of this form; the others merely fit."""

    @property
    def flag_bytes(self) -> int:
        return self.slots * (1 + self.readers)


def geometries(size: int) -> list[Geometry]:
    """Every geometry with whole MiB chunks that adds up to exactly `size` bytes, the most plausible first."""
    found = []
    for slots in range(1, SLOTS_MAX + 1):
        chunk, rest = divmod(size // slots, MIB)
        if size % slots == 0 and chunk and 2 <= rest <= READERS_MAX + 1:
            known = any(slots == n and size_of in (0, chunk * MIB) for n, size_of in KNOWN)
            found.append(Geometry(slots, rest - 1, chunk * MIB, known))
    return sorted(found, key=lambda g: (not g.known, g.slots not in (10, 6, 8), g.readers))


class Ring:
    """A segment, looked at as a ring. Raises ValueError when its size or its flag bytes fit no geometry."""

    kind = "ring-json"

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._open = geometries(size)
        self._refuted: list[Geometry] = []
        if not self._open:
            raise ValueError(f"a size of {size} bytes fits no ring: N x (whole MiB + 1 + readers)")
        self.looks: list[dict[str, Any]] = []

    def look(self) -> None:
        """One snapshot, taken again when it took too long to be one. Raises OSError, ValueError."""
        for _ in range(TRIES):
            shot = self._snapshot()
            if shot["took_ns"] < SNAPSHOT_NS:
                break
        self.looks.append(shot)

    def _snapshot(self) -> dict[str, Any]:
        """The flags first, in one read, then the heads of the written slots."""
        at_ns, began = time.time_ns(), time.perf_counter_ns()
        tail = self._tail(max(g.flag_bytes for g in self._open))
        self._weigh(tail)
        ring = self._open[0]
        flags = tail[len(tail) - ring.flag_bytes :]
        width = 1 + ring.readers
        names = {i: self._name(i * ring.chunk_bytes) for i in range(ring.slots) if flags[i * width]}
        after = self._tail(ring.flag_bytes)
        calls: list[dict[str, Any]] = []
        for i, named in names.items():
            part = slice(i * width, (i + 1) * width)
            # a slot in use only ever gains flags: one that was lost says that the slot was written anew under our eyes
            torn = any(was and not now for was, now in zip(flags[part], after[part], strict=True))
            calls.append({"slot": i, "torn": True} if torn else {"slot": i, **named})
        took_ns = time.perf_counter_ns() - began
        return {"at_ns": at_ns, "took_ns": took_ns, "flags": flags.hex(), "calls": calls}

    def _tail(self, count: int) -> bytes:
        tail = os.pread(self._fd, count, self._size - count)
        if len(tail) != count:
            raise ValueError("the segment shrank while it was read")
        return tail

    def _weigh(self, tail: bytes) -> None:
        """Drop geometries whose flag area holds anything but 0 and 1: those bytes are payload and go nowhere."""
        for g in list(self._open):
            if tail[len(tail) - g.flag_bytes :].strip(b"\0\1"):
                self._open.remove(g)
                self._refuted.append(g)
        if not self._open:
            raise ValueError("its size fits a ring, but bytes other than 0 and 1 stand where the flags would be")

    def _name(self, offset: int) -> dict[str, Any]:
        head = os.pread(self._fd, HEAD_BYTES, offset)
        if head[:1] == b"\1":
            return {"overflow": True}  # too large for a slot: it went through the socket, and what lies here is older
        if head[:1] != b"\0":
            return {"name": ""}
        # two bytes number of buffers, four bytes length of the first one, which is the pickle
        return {"name": call_name(head[7 : 7 + int.from_bytes(head[3:7], "big")])}

    def facts(self) -> dict[str, Any]:
        geometry = [{**g._asdict(), "refuted": False} for g in self._open] + [{**g._asdict(), "refuted": True} for g in self._refuted]
        return {"geometries": geometry, "ambiguous": len(self._open) > 1 and not self._open[0].known, "looks": self.looks}

    def outcome(self) -> tuple[str, str, str]:
        return "OK", "", ""
