"""SGLang's load snapshot (managers/load_snapshot.py): what every scheduler last said of its queues, in shared memory.

It answers when nothing else does: a scheduler that hangs stops writing, and the age of its last word says since when.
Header "<4sHHI": b"SLNS", version, number of slots (one for each data-parallel rank), bytes of a slot. Slot: "<I" length of the
payload, 0 while it is being written, then a msgpack map in which a value of zero may be left out.

The writer holds flock(LOCK_EX) while it writes. We take no lock: a scheduler would have to wait for us. A slot is believed when two
reads of it agree, and its length of 0 marks the writer that was stopped in the middle.
"""

from __future__ import annotations

import math
import os
import struct
import time
from typing import Any

MAGIC = b"SLNS"
HEADER = struct.Struct("<4sHHI")
SLOTS_MAX, SLOT_BYTES_MAX = 1024, 1024 * 1024
FIRST_READ_BYTES = 2048
PAYLOAD_MAX, LOOK_BYTES_MAX = 16 * 1024, 2 * 1024 * 1024
"""Of one slot, and of all slots in one look. A scheduler says half a KiB."""
TRIES, PAUSE_S = 4, 0.001
ITEMS_MAX, DEPTH_MAX, LIST_MAX = 1024, 6, 16
NUMBERS_MAX = 200_000
"""Kept of all looks together; each is some 30 bytes in memory and in what is sent."""
_FIELDS = (
    "timestamp dp_rank num_running_reqs num_waiting_reqs num_waiting_uncached_tokens num_used_tokens num_total_tokens "
    "max_total_num_tokens max_running_requests token_usage gen_throughput cache_hit_rate utilization queues disaggregation memory"
)
FIELDS = frozenset(_FIELDS.split())
"""The fields of LoadSnapshot. Their parts are arrays of numbers; a name that is not here stays on the node."""
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
    """What of a decoded value is a number, or made of numbers under names of FIELDS; None for the rest. No text leaves the node."""
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [numbers(one) for one in value[:LIST_MAX]]
    if isinstance(value, dict):
        kept = {key: numbers(one) for key, one in value.items() if key in FIELDS}
        return {key: one for key, one in kept.items() if one is not None}
    return None


def _count(value: Any) -> int:
    if isinstance(value, (list, dict)):
        return 1 + sum(map(_count, value.values() if isinstance(value, dict) else value))
    return 1


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
        self._numbers = 0

    def look(self) -> None:
        """One snapshot of all slots, each read until two reads agree. Raises OSError."""
        at_ns, began = time.time_ns(), time.perf_counter_ns()
        slots: list[dict[str, Any]] = [{} for _ in range(self.slots)]
        pending, budget = list(range(self.slots)), LOOK_BYTES_MAX
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S)  # a writer in the middle of a slot must be able to end
            again = []
            for index in pending:
                # one slot at a time: what was decoded of it is small, its payload need not be
                settled, slots[index], read = self._slot(HEADER.size + index * self.slot_bytes, budget)
                budget -= read
                if not settled:
                    again.append(index)
            pending = again
            if not pending:
                break
        took_ns = time.perf_counter_ns() - began
        self.looks.append({"at_ns": at_ns, "took_ns": took_ns, "slots": slots})

    def _slot(self, offset: int, budget: int) -> tuple[bool, dict[str, Any], int]:
        """(whether it is worth no further try, what it says, bytes of its payload)."""
        payload = self._payload(offset, min(PAYLOAD_MAX, budget))
        if isinstance(payload, str):
            return True, {"error": payload}, 0
        if not payload:
            return False, {"error": "being written, or never written"}, 0
        if payload != self._payload(offset, PAYLOAD_MAX):
            return False, {"error": "it changed each time while it was read"}, len(payload)
        return True, self._decoded(payload), len(payload)

    def _payload(self, offset: int, limit: int) -> bytes | str:
        """The payload of a slot, b"" while there is none; a text says why it is not read."""
        first = os.pread(self._fd, min(FIRST_READ_BYTES, self.slot_bytes), offset)
        count = int.from_bytes(first[:4], "little")
        if count > min(limit, self.slot_bytes - 4):
            return f"a payload of {count} bytes is more than a load snapshot holds"
        payload = first[4 : 4 + count]
        return payload + os.pread(self._fd, count - len(payload), offset + len(first)) if len(payload) < count else payload

    def _decoded(self, payload: bytes) -> dict[str, Any]:
        try:
            value = unpack(payload)
        except ValueError as error:
            return {"error": str(error)}
        kept = numbers(value)
        if not isinstance(kept, dict):
            return {"error": "no map"}
        self._numbers += _count(kept)
        return {"values": kept} if self._numbers <= NUMBERS_MAX else {"error": f"more than {NUMBERS_MAX} numbers in all"}

    def facts(self) -> dict[str, Any]:
        return {"version": self.version, "slot_bytes": self.slot_bytes, "looks": self.looks}

    def outcome(self) -> tuple[str, str, str]:
        """PARTIAL when a slot could not be read in the last look."""
        wrong = [f"slot {i}: {slot['error']}" for i, slot in enumerate(self.looks[-1]["slots"]) if "error" in slot]
        return ("PARTIAL", "; ".join(wrong[:4]), "") if wrong else ("OK", "", "")
