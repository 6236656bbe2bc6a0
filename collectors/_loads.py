"""SGLang's load snapshot (managers/load_snapshot.py): what every scheduler last said of its queues, in shared memory.

It answers when nothing else does: a scheduler that hangs stops writing, and the age of its last word says since when.
Header "<4sHHI": b"SLNS", version, number of slots (one for each data-parallel rank), bytes of a slot. Slot: "<I" length of the
payload, 0 while it is being written, then a msgpack map in which a value of zero may be left out.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import struct
import time
from typing import Any

MAGIC = b"SLNS"
HEADER = struct.Struct("<4sHHI")
SLOTS_MAX, SLOT_BYTES_MAX = 1024, 1024 * 1024
FIRST_READ_BYTES = 2048
TRIES, PAUSE_S = 4, 0.001
ITEMS_MAX, DEPTH_MAX = 4096, 6
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_FIXED = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZED = {0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
          0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}  # fmt: skip


def unpack(data: bytes) -> Any:
    """One msgpack value that fills `data` exactly. Raises ValueError. Extension types are not read; bytes become None."""
    reader = _Msgpack(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise ValueError("bytes follow the value")
    return value


class _Msgpack:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.items = 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise ValueError("the value is cut")
        self.at += count
        return piece

    def value(self, depth: int) -> Any:
        self.items += 1
        if depth > DEPTH_MAX or self.items > ITEMS_MAX:
            raise ValueError("more than a load snapshot holds")
        first = self.take(1)[0]
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _FIXED:
            form = _FIXED[first]
            return struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if first < 0xC0:
            kind = "map" if first < 0x90 else "array" if first < 0xA0 else "str"
            count = first & (0x1F if kind == "str" else 0x0F)
        elif first in _SIZED:
            kind, width = _SIZED[first]
            count = int.from_bytes(self.take(width), "big")
        else:
            raise ValueError(f"type 0x{first:02x} is not read")
        if kind == "map":
            pairs = ((self.value(depth + 1), self.value(depth + 1)) for _ in range(count))
            return {key: value for key, value in pairs if isinstance(key, str)}
        if kind == "array":
            return [self.value(depth + 1) for _ in range(count)]
        raw = self.take(count)
        return raw.decode("utf-8", "replace") if kind == "str" else None


def numbers(value: Any) -> Any:
    """What of a decoded value is a number, or made of numbers under plain names; None for the rest. No text leaves the node."""
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [numbers(one) for one in value]
    if isinstance(value, dict):
        kept = {key: numbers(one) for key, one in value.items() if _NAME.fullmatch(key)}
        return {key: one for key, one in kept.items() if one is not None}
    return None


class LoadSnapshot:
    """A segment, looked at as a load snapshot. Raises ValueError when its header is another one."""

    kind = "load-snapshot"

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        head = os.pread(fd, HEADER.size, 0)
        magic, self.version, self.slots, self.slot_bytes = HEADER.unpack(head) if len(head) == HEADER.size else (b"", 0, 0, 0)
        if magic != MAGIC:
            raise ValueError(f"it does not begin with {MAGIC.decode()}: no load snapshot of a known form")
        fits = HEADER.size + self.slots * self.slot_bytes <= size
        if not (fits and 1 <= self.slots <= SLOTS_MAX and 8 <= self.slot_bytes <= SLOT_BYTES_MAX):
            raise ValueError(f"its header speaks of {self.slots} slots of {self.slot_bytes} bytes in a file of {size}")
        self.looks: list[dict[str, Any]] = []

    def look(self) -> None:
        """One snapshot of all slots, under a shared lock where the writer lets us. Raises OSError."""
        at_ns, began = time.time_ns(), time.perf_counter_ns()
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S)  # without the lock: a writer in the middle of a slot must be able to end
            locked, raw = self._read()
            if locked and all(raw):
                break
        took_ns = time.perf_counter_ns() - began
        slots = [self._decoded(payload) for payload in raw]
        self.looks.append({"at_ns": at_ns, "took_ns": took_ns, "locked": locked, "slots": slots})

    def _read(self) -> tuple[bool, list[bytes]]:
        """(whether no writer was at it, the payload of each slot or b"")."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:  # a writer holds it, perhaps one that was stopped in the middle: read all the same, and say so
            locked = False
        try:
            return locked, [self._payload(HEADER.size + i * self.slot_bytes) for i in range(self.slots)]
        finally:
            if locked:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _payload(self, offset: int) -> bytes:
        first = os.pread(self._fd, min(FIRST_READ_BYTES, self.slot_bytes), offset)
        count = int.from_bytes(first[:4], "little")
        if count > self.slot_bytes - 4:
            return b"\xc1"  # the one byte that msgpack never uses: told as unreadable
        payload = first[4 : 4 + count]
        return payload + os.pread(self._fd, count - len(payload), offset + len(first)) if len(payload) < count else payload

    def _decoded(self, payload: bytes) -> dict[str, Any]:
        if not payload:
            return {"error": "being written, or never written"}
        try:
            value = unpack(payload)
        except ValueError as error:
            return {"error": str(error)}
        kept = numbers(value)
        return {"values": kept} if isinstance(kept, dict) else {"error": "no map"}

    def facts(self) -> dict[str, Any]:
        return {"version": self.version, "slot_bytes": self.slot_bytes, "looks": self.looks}

    def outcome(self) -> tuple[str, str, str]:
        """PARTIAL when a slot could not be read in the last look."""
        wrong = [f"slot {i}: {slot['error']}" for i, slot in enumerate(self.looks[-1]["slots"]) if "error" in slot]
        if wrong:
            return "PARTIAL", "; ".join(wrong[:4]), ""
        return ("OK", "", "") if self.looks[-1]["locked"] else ("PARTIAL", "a writer held the lock: values may be torn", "")
