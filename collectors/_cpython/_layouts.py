"""Where the fields of CPython's objects lie: one table of what all versions share, and what each moves.

Every number of 3.10 to 3.13 was printed by a C program compiled against the headers of that version (3.10.13, 3.11.7, 3.12.1, 3.13.0)
or, for structs that live in .c files (locks, deque, simple queue), read with ctypes in a running one. 64-bit, little-endian, with a GIL.
From 3.13 on the interpreter publishes most of them itself (`_Py_DebugOffsets`, Include/internal/pycore_debug_offsets.h); those win over
the table. What only the table knows of 3.14 comes from its sources and is not verified on a running one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from collectors._cpython._errors import Unsupported

OLDEST, NEWEST = (3, 10), (3, 14)
VERIFIED = ((3, 10), (3, 11), (3, 12), (3, 13))

# the same in every version that we read
OB_SIZE = 16
TP_BASICSIZE, TP_ITEMSIZE, TP_MEMBERS, TP_DICT, TP_DICTOFFSET, TP_MRO = 32, 40, 240, 264, 288, 344
DICT_USED = 16
SET_USED, SET_MASK, SET_TABLE, SET_ENTRY = 24, 32, 40, 16
BYTEARRAY_START = 40
FUNCTION_GLOBALS, FUNCTION_QUALNAME, FUNCTION_CODE, FUNCTION_CLOSURE, FUNCTION_MODULE = 16, 40, 48, 72, 104
METHOD_FUNCTION, METHOD_SELF = 16, 24
EXCEPTION_ARGS = 24
MEMBER_TYPE, MEMBER_OFFSET, MEMBER_SIZE = 8, 16, 40
MODULE_DICT = 16
CELL_CONTENT = 16
DEQUE_LEFT_BLOCK, DEQUE_LEFT_INDEX, DEQUE_MAXLEN, DEQUE_BLOCK_ITEMS = 24, 40, 64, 64
"""A block is: link to the left one, 64 items, link to the right one."""
ODICT_FIRST, ODICT_NODE_NEXT = 48, 16
"""collections.OrderedDict keeps its own order in a list of nodes (key, hash, next, previous)."""

# bits of tp_flags
INLINE_VALUES, MANAGED_DICT, HEAP_TYPE = 1 << 2, 1 << 4, 1 << 9
SUBCLASS_BITS = {24: "int", 25: "list", 26: "tuple", 27: "bytes", 28: "str", 29: "dict", 30: "exception", 31: "type"}


class Layout(NamedTuple):
    """Offsets in bytes. The defaults are those of 3.13; `_replace` makes another version."""

    version: tuple[int, int] = (3, 13)
    ob_type: int = 8
    tp_name: int = 24
    tp_flags: int = 168
    ht_qualname: int = 872
    ht_cached_keys: int = 880
    code_names: int = 96
    """co_localsplusnames, which ends in the free variables; in 3.10 co_freevars, which holds nothing else."""
    list_items: int = 24
    tuple_items: int = 24
    bytes_data: int = 32
    float_value: int = 16
    int_tag: int = 16
    """ob_size (sign and count of digits) up to 3.11; from 3.12 the word whose low bits are the sign."""
    int_digits: int = 24
    int_tagged: bool = True
    str_length: int = 16
    str_state: int = 32
    str_kind_shift: int = 2
    """Of the three bits of `kind` in the state word; compact and ascii follow them."""
    str_ascii_size: int = 40
    """sizeof(PyASCIIObject): where the characters of compact ASCII begin."""
    str_compact_size: int = 56
    """sizeof(PyCompactUnicodeObject): where those of other compact strings begin, and where the pointer of one that is not compact lies."""
    dict_keys: int = 32
    dict_values: int = 40
    keys_kind: bool = True
    """3.11 on: log2 of sizes and a kind byte. 3.10: plain dk_size, a lookup function, entries of 24 bytes always."""
    values_items: int = 8
    """Where the pointers of a values array begin."""
    managed: str = "inline"
    """Where the attributes of a plain instance lie: "offset" (3.10), "pointer" (3.11), "tagged" (3.12), "inline" (3.13 on)."""
    locks: str = "semaphore"
    """"semaphore" up to 3.13: a pointer to a POSIX semaphore; "mutex" from 3.14: one byte in the object, waiters parked elsewhere."""
    simple_queue: str = "ring"
    """"list" up to 3.12, "ring" from 3.13."""
    interpreters_head: int = 632
    interp_modules: int = 7656
    threads_head: int = 7344
    """Of an interpreter's state; the three after it of a thread's."""
    thread_next: int = 8
    thread_ident: int = 152
    thread_frame: int = 72
    """The innermost frame; in 3.11 and 3.12 a _PyCFrame that points to it."""
    cframe_frame: int = 0
    frame_code: int = 0
    """Of a frame of the interpreter (3.10: of a frame object), as the ones that follow."""
    frame_previous: int = 8
    frame_instr: int = 56
    frame_variables: int = 72
    code_start: int = 200
    """Where the instructions of a code object begin."""


_V313 = Layout()
_V312 = _V313._replace(
    version=(3, 12),
    values_items=0,
    managed="tagged",
    simple_queue="list",
    interpreters_head=40,
    interp_modules=944,
    threads_head=72,
    thread_ident=136,
    thread_frame=56,
    code_start=192,
)
_V311 = _V312._replace(
    version=(3, 11),
    ht_qualname=864,
    ht_cached_keys=872,
    int_tagged=False,
    str_ascii_size=48,
    str_compact_size=72,
    managed="pointer",
    interp_modules=888,
    threads_head=16,
    thread_ident=152,
    cframe_frame=8,
    frame_code=32,
    frame_previous=48,
    code_start=184,
)
_V310 = _V311._replace(
    version=(3, 10),
    code_names=80,
    keys_kind=False,
    managed="offset",
    interpreters_head=32,
    interp_modules=856,
    threads_head=8,
    thread_ident=176,
    thread_frame=24,
    frame_previous=24,
)
_V314 = _V313._replace(version=(3, 14), str_kind_shift=16, locks="mutex")  # `interned` takes 16 bits; PyMutex

_TABLE = {layout.version: layout for layout in (_V310, _V311, _V312, _V313, _V314)}


def variants(layout: Layout) -> Iterator[Layout]:
    """The layout, then what else a build of that version may have: which it is, only its memory can tell."""
    yield layout
    if layout.version == (3, 14):  # where `interned` of a string still has two bits, as up to 3.13
        yield layout._replace(str_kind_shift=_V313.str_kind_shift)


COOKIE = b"xdebugpy"
PUBLISHED_BYTES = 1024
"""More than the struct of any version."""
_OBJECTS_313 = (
    *("pyobject.size", "ob_type", "type.size", "tp_name", "tp_repr", "tp_flags"),
    *("tuple.size", "tuple_items", "tuple.ob_size", "list.size", "list_items", "list.ob_size"),
)
_SETS_314 = ("set.size", "set.used", "set.table", "set.mask")
_OBJECTS_END = (
    *("dict.size", "dict_keys", "dict_values", "float.size", "float_value", "int.size", "int_tag", "int_digits"),
    *("bytes.size", "bytes.ob_size", "bytes_data", "str.size", "str_state", "str_length", "str_ascii_size"),
)
_PUBLISHED = {
    # words before the first of pyobject: interpreter, thread, frame and code grew in 3.14
    (3, 13): (3 + 3 + 13 + 9 + 6 + 10, _OBJECTS_313 + _OBJECTS_END),
    (3, 14): (3 + 3 + 16 + 9 + 8 + 11, _OBJECTS_313 + _SETS_314 + _OBJECTS_END),
}
_INTERPRETERS_HEAD_WORD = 5
_MODULES_WORD = {(3, 13): 11, (3, 14): 12}
_FRAMES_313 = {
    "threads_head": 9,
    "thread_next": 21,
    "thread_frame": 23,
    "thread_ident": 24,
    "frame_previous": 29,
    "frame_code": 30,
    "frame_instr": 31,
    "frame_variables": 32,
    "code_start": 43,
}
"""Words of what 3.13 publishes of threads and frames."""


def published(raw: bytes) -> tuple[tuple[int, int], bool, bytes] | None:
    """(version, free-threaded, raw) of a `_Py_DebugOffsets`, or None when `raw` does not begin with one."""
    if raw[:8] != COOKIE or len(raw) < 24:
        return None
    version, free_threaded = struct.unpack_from("<QQ", raw, 8)
    return ((version >> 24) & 0xFF, (version >> 16) & 0xFF), bool(free_threaded), raw


def layout_for(version: tuple[int, int], raw_offsets: bytes = b"") -> Layout:
    """The layout of a version, with what it publishes itself put over the table. Raises Unsupported, naming the version."""
    layout = _TABLE.get(version)
    if layout is None:
        raise Unsupported(f"CPython {version[0]}.{version[1]} is not one whose objects can be read here (3.10 to 3.14)")
    if version < (3, 13):
        return layout
    start, names = _PUBLISHED[version]
    if len(raw_offsets) < 8 * (start + len(names)):
        raise Unsupported(f"CPython {version[0]}.{version[1]} that does not publish its offsets")
    words = struct.unpack_from(f"<{len(raw_offsets) // 8}Q", raw_offsets)
    found = {name: words[start + i] for i, name in enumerate(names)}
    found["interpreters_head"], found["interp_modules"] = words[_INTERPRETERS_HEAD_WORD], words[_MODULES_WORD[version]]
    if version == (3, 13):
        found |= {name: words[word] for name, word in _FRAMES_313.items()}
    # an offset that the struct of this build does not hold would read as some size or as zero: objects are small, ob_type comes second
    small = (found[name] for name in names if not name.endswith(".size") and name not in ("tp_name", "tp_repr", "tp_flags"))
    if found["pyobject.size"] != 16 or found["ob_type"] != 8 or any(value > 64 for value in small):
        raise Unsupported(f"CPython {version[0]}.{version[1]} whose published offsets are not in the order that we know")
    return layout._replace(**{name: value for name, value in found.items() if name in Layout._fields})
