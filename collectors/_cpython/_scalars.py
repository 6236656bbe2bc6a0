"""Values that hold no other objects: numbers, strings, bytes. Bounded; what is longer comes back cut."""

from __future__ import annotations

import struct

from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense
from collectors._cpython._heap import Heap

DIGIT_BITS = 30
INT_DIGITS_LIMIT = 1 << 16
"""Two million bits. No program that serves holds a larger integer on purpose."""
_CHARACTER_BYTES = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


def read_int(heap: Heap, address: int) -> int:
    """An integer of any size. Raises Nonsense beyond INT_DIGITS_LIMIT."""
    layout = heap.layout
    if layout.int_tagged:
        tag = heap.memory.word(address + layout.int_tag)
        count, sign = tag >> 3, (1, 0, -1, 0)[tag & 3]
    else:
        size = heap.memory.signed(address + layout.int_tag)
        count, sign = abs(size), (size > 0) - (size < 0)
    if count > INT_DIGITS_LIMIT:
        raise Nonsense(address, "integer of a sensible size")
    if not sign:
        return 0
    digits = struct.unpack(f"<{count}I", heap.memory.read(address + layout.int_digits, 4 * count))
    return sign * _join(digits)


def _join(digits: tuple[int, ...]) -> int:
    """Halving keeps the work below quadratic for the largest ones."""
    if len(digits) <= 32:
        value = 0
        for digit in reversed(digits):
            value = value << DIGIT_BITS | digit
        return value
    half = len(digits) // 2
    return _join(digits[half:]) << (DIGIT_BITS * half) | _join(digits[:half])


def read_float(heap: Heap, address: int) -> float:
    value: float = struct.unpack("<d", heap.memory.read(address + heap.layout.float_value, 8))[0]
    return value


def str_length(heap: Heap, address: int) -> int:
    length = heap.memory.signed(address + heap.layout.str_length)
    if length < 0:
        raise Nonsense(address, "string")
    return length


def read_str(heap: Heap, address: int, limit: int = 1 << 16) -> str:
    """At most `limit` characters of a string, lone surrogates kept. Compact or not, of every width."""
    length = min(str_length(heap, address), limit)
    data, width = _characters(heap, address)
    raw = heap.memory.read(data, width * length)
    try:
        text = raw.decode(_CHARACTER_BYTES[width], "surrogatepass")
    except UnicodeDecodeError as error:
        raise Nonsense(address, "string") from error
    if len(text) != length:  # two lone surrogates side by side are two characters here, and one in UTF-16
        text = "".join(map(chr, struct.unpack(f"<{length}H", raw)))
    return text


def _characters(heap: Heap, address: int) -> tuple[int, int]:
    """(address of the first character, bytes of each)."""
    layout = heap.layout
    # the word before it is the hash, which is filled in later and would look like a change
    state = int.from_bytes(heap.memory.read(address + layout.str_state, 4), "little") >> layout.str_kind_shift
    width, compact, ascii_only = state & 7, state >> 3 & 1, state >> 4 & 1
    if width not in _CHARACTER_BYTES:  # 0: a wchar_t string of the old C interface, up to 3.11
        raise Nonsense(address, "string")
    if not compact:  # an instance of a subclass of str
        return heap.memory.word(address + layout.str_compact_size), width
    return address + (layout.str_ascii_size if ascii_only else layout.str_compact_size), width


def read_bytes(heap: Heap, address: int, kind: str = "bytes", limit: int = 1 << 16) -> bytes:
    """At most `limit` bytes of a bytes or bytearray."""
    size = min(heap.size(address), limit)
    start = address + heap.layout.bytes_data
    if kind == "bytearray" and size:
        start = heap.memory.word(address + at.BYTEARRAY_START)
    return heap.memory.read(start, size)
