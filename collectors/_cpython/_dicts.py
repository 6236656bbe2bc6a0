"""Dictionaries: combined, split (attributes that share their keys with other instances), with keys of any kind or only strings."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, Unreadable
from collectors._cpython._heap import Heap
from collectors._cpython._scalars import read_str

SCAN_LIMIT = 1 << 20
"""Entries that a search by key looks at."""
_CHUNK_ENTRIES = 256
_GENERAL, _UNICODE, _SPLIT = 0, 1, 2


class Keys(NamedTuple):
    """The table of keys of one dict, or of all instances of a class."""

    entries: int
    """Address of the first entry."""
    filled: int
    """Entries in use, deleted ones included."""
    entry_bytes: int
    """24: hash, key, value. 16: key, value."""


class Dict(NamedTuple):
    """What the header of a dict says."""

    used: int
    keys: int
    values: int
    """Address of the values array of a split dict, else 0."""


def read_header(heap: Heap, address: int) -> Dict:
    used = heap.memory.signed(address + at.DICT_USED)
    # the word between them is a version number that changes with every other dict of the process (up to 3.11)
    keys = heap.memory.word(address + heap.layout.dict_keys)
    values = heap.memory.word(address + heap.layout.dict_values)
    if used < 0:
        raise Nonsense(address, "dict")
    return Dict(used, keys, values)


def read_keys(heap: Heap, address: int) -> Keys:
    """The header of a table of keys. Raises Nonsense when its figures do not fit each other."""
    if heap.layout.keys_kind:
        log2_size, log2_index_bytes, kind = heap.memory.read(address + 8, 3)
        (count,) = struct.unpack("<q", heap.memory.read(address + 24, 8))
        if log2_size > 40 or log2_index_bytes > 44 or kind > _SPLIT or not 0 <= count <= 1 << log2_size:
            raise Nonsense(address, "table of keys")
        return Keys(address + 32 + (1 << log2_index_bytes), count, 24 if kind == _GENERAL else 16)
    size, count = heap.memory.word(address + 8), heap.memory.signed(address + 32)
    if size > 1 << 40 or size & (size - 1) or not 0 <= count <= size:
        raise Nonsense(address, "table of keys")
    index_bytes = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
    return Keys(address + 40 + size * index_bytes, count, 24)


def entries(heap: Heap, keys_address: int, values: int = 0) -> Iterator[tuple[int, int]]:
    """Addresses of (key, value) of every live entry; of a split table the values come from the array at `values`."""
    keys = read_keys(heap, keys_address)
    words = keys.entry_bytes // 8
    for start in range(0, keys.filled, _CHUNK_ENTRIES):
        count = min(_CHUNK_ENTRIES, keys.filled - start)
        # a reader who wants ten entries of a million pays for one chunk
        flat = heap.memory.words(keys.entries + start * keys.entry_bytes, count * words)
        held = heap.memory.words(values + 8 * start, count) if values else flat[words - 1 :: words]
        for key, value in zip(flat[words - 2 :: words], held, strict=True):
            if key and value:
                yield key, value


def pairs(heap: Heap, address: int) -> Iterator[tuple[int, int]]:
    """Addresses of (key, value) of a dict in its order of insertion (a split one: in the order of its class)."""
    header = read_header(heap, address)
    return entries(heap, header.keys, header.values and header.values + heap.layout.values_items)


def find_str(heap: Heap, found: Iterable[tuple[int, int]], wanted: str) -> int | None:
    """The value whose key is the string `wanted`."""
    return find_strs(heap, found, (wanted,)).get(wanted)


def find_strs(heap: Heap, found: Iterable[tuple[int, int]], wanted: Collection[str]) -> dict[str, int]:
    """The values of all keys that are among the strings `wanted`, in one pass."""
    lengths = {len(name) for name in wanted}
    out: dict[str, int] = {}
    for key, value in islice(found, SCAN_LIMIT):
        try:
            # the length of a string follows its type: one read passes over nearly every other key
            kind, length = heap.memory.words(key + heap.layout.ob_type, 2)
            if length not in lengths or heap.type_at(kind).kind != "str":
                continue
            name = read_str(heap, key, length)
        except Unreadable:  # a key that was just replaced hides no other one
            continue
        if name in wanted:
            out[name] = value
            if len(out) == len(wanted):
                break
    return out


def named(heap: Heap, found: Iterator[tuple[int, int]], limit: int) -> dict[str, int]:
    """The entries whose keys are strings, as name -> address of the value; at most `limit`."""
    out: dict[str, int] = {}
    for key, value in found:
        if len(out) >= limit:
            break
        try:
            if heap.type_of(key).kind == "str":
                out[read_str(heap, key, 1024)] = value
        except Unreadable:
            continue
    return out
