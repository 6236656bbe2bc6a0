"""Sequences and sets: their lengths and the addresses of what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from collectors._cpython import _dicts
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense
from collectors._cpython._heap import Heap

_CHUNK = 512
_TABLE_LIMIT = 1 << 40
_LIVE_HASH = (1 << 64) - 1
"""The hash that no object has: -1 marks a deleted entry of a set."""


def sequence(heap: Heap, address: int, kind: str) -> Iterator[int]:
    """The elements of a list or tuple."""
    count = heap.size(address)
    start = heap.memory.word(address + heap.layout.list_items) if kind == "list" and count else address + heap.layout.tuple_items
    for first in range(0, count, _CHUNK):
        yield from heap.memory.words(start + 8 * first, min(_CHUNK, count - first))


def element(heap: Heap, address: int, kind: str, index: int) -> int:
    """One element of a list or tuple; the caller has checked the index."""
    start = heap.memory.word(address + heap.layout.list_items) if kind == "list" else address + heap.layout.tuple_items
    return heap.memory.word(start + 8 * index)


def set_members(heap: Heap, address: int) -> Iterator[int]:
    """The members of a set or frozenset, in the order of its table."""
    used, mask = heap.memory.signed(address + at.SET_USED), heap.memory.signed(address + at.SET_MASK)
    table = heap.memory.word(address + at.SET_TABLE)
    if used < 0 or not 0 <= mask < _TABLE_LIMIT or mask & (mask + 1):
        raise Nonsense(address, "set")
    for first in range(0, mask + 1, _CHUNK):
        flat = heap.memory.words(table + at.SET_ENTRY * first, 2 * min(_CHUNK, mask + 1 - first))
        for key, key_hash in zip(flat[::2], flat[1::2], strict=True):
            if key and key_hash != _LIVE_HASH:
                yield key
                used -= 1
                if not used:
                    return


def deque_items(heap: Heap, address: int) -> Iterator[int]:
    """The elements of a deque, left to right: blocks of 64, each with links to its neighbours."""
    left = heap.size(address)
    block = heap.memory.word(address + at.DEQUE_LEFT_BLOCK)
    index = heap.memory.word(address + at.DEQUE_LEFT_INDEX)
    if index >= at.DEQUE_BLOCK_ITEMS:
        raise Nonsense(address, "deque")
    while left > 0:
        count = min(left, at.DEQUE_BLOCK_ITEMS - index)
        yield from heap.memory.words(block + 8 + 8 * index, count)
        left, index = left - count, 0
        if left:
            block = heap.memory.word(block + 8 + 8 * at.DEQUE_BLOCK_ITEMS)


def deque_maxlen(heap: Heap, address: int) -> int | None:
    maxlen = heap.memory.signed(address + at.DEQUE_MAXLEN)
    return None if maxlen < 0 else maxlen


def ordered_pairs(heap: Heap, address: int) -> Iterator[tuple[int, int]]:
    """(key, value) of an OrderedDict in its own order, which `move_to_end` changes without touching the dict below."""
    values = dict(_dicts.pairs(heap, address))
    node = heap.memory.word(address + at.ODICT_FIRST)
    for _ in range(len(values)):
        if not node:
            break
        key = heap.memory.word(node)
        if key in values:
            yield key, values.pop(key)
        node = heap.memory.word(node + at.ODICT_NODE_NEXT)
    yield from values.items()


def simple_queue(heap: Heap, address: int) -> tuple[int, Iterator[int]]:
    """(depth, elements oldest first) of a queue.SimpleQueue."""
    memory = heap.memory
    if heap.layout.simple_queue == "list":  # 3.10 to 3.12: a list and how much of it was taken
        items, taken = memory.word(address + 32), memory.signed(address + 40)
        depth = heap.size(items) - taken
        if taken < 0 or depth < 0:
            raise Nonsense(address, "simple queue")
        return depth, (element(heap, items, "list", i) for i in range(taken, taken + depth))
    # struct RingBuf, 3.13 on: where to put next, where to take next, items, capacity, number
    _, first, items, capacity, depth = memory.words(address + 24, 5)
    if depth > capacity or first > capacity or capacity > _TABLE_LIMIT:
        raise Nonsense(address, "simple queue")
    return depth, (memory.word(items + 8 * ((first + i) % capacity)) for i in range(depth))
