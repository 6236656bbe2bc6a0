"""Attributes of instances, classes and modules, and the names of types."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from collectors._cpython import _dicts
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, Unreadable
from collectors._cpython._heap import Heap, Type
from collectors._cpython._scalars import read_str

ATTRIBUTES_LIMIT = 4096
_SLOTS_LIMIT = 1024
_OBJECT_MEMBERS = (6, 16)
"""T_OBJECT and T_OBJECT_EX of structmember.h: a slot that holds an object."""


def type_name(heap: Heap, kind: Type) -> str:
    """Module-qualified name of a type: "queue.Queue", "collections.deque"; built-in ones bare: "dict"."""
    known = heap.names.get(kind.address)
    if known is None:
        with heap.memory.unrecorded():
            known = heap.names[kind.address] = _qualified(heap, kind)
    return known


def _qualified(heap: Heap, kind: Type) -> str:
    if not kind.flags & at.HEAP_TYPE or "." in kind.written:
        return kind.written
    try:
        name = read_str(heap, heap.memory.word(kind.address + heap.layout.ht_qualname), 512)
        module = _dicts.find_str(heap, _dicts.pairs(heap, kind.namespace), "__module__")
        prefix = read_str(heap, module, 512) if module and heap.type_of(module).kind == "str" else ""
    except Unreadable:
        return kind.written
    return name if prefix in ("", "builtins") else f"{prefix}.{name}"


def base_names(heap: Heap, kind: Type) -> tuple[str, ...]:
    """Names of a type and its bases, nearest first."""
    return tuple(type_name(heap, heap.type_at(base)) for base in kind.mro or (kind.address,))


def is_enum(heap: Heap, kind: Type) -> bool:
    """Whether instances are members of an enum.Enum."""
    return type_name(heap, heap.type_at(kind.metatype)) in ("enum.EnumType", "enum.EnumMeta")  # renamed in 3.11


def attributes(heap: Heap, address: int, limit: int = ATTRIBUTES_LIMIT) -> dict[str, int]:
    """Addresses by name: of an instance what its dict and slots hold, of a module its globals, of a class its own namespace."""
    kind = heap.type_of(address)
    out: dict[str, int] = {}
    for name, slot in _slots(heap, kind):
        value = heap.memory.word(address + slot)
        if value:
            out.setdefault(name, value)
    for found in _spaces(heap, address, kind):
        out.update(_dicts.named(heap, found, limit - len(out)))
    return out


def own_attribute(heap: Heap, address: int, name: str) -> int | None:
    """One attribute of `attributes`, without reading the others."""
    kind = heap.type_of(address)
    for found in _spaces(heap, address, kind):
        value = _dicts.find_str(heap, found, name)
        if value:
            return value
    return slot(heap, address, name)


def slot(heap: Heap, address: int, name: str) -> int | None:
    """What a slot of an object holds; None where no slot has that name, or it is empty."""
    for slot_name, offset in _slots(heap, heap.type_of(address)):
        if slot_name == name:
            return heap.memory.word(address + offset) or None
    return None


def class_attribute(heap: Heap, kind: Type, name: str) -> int | None:
    """What the first class of the mro that has `name` holds under it: as stored, no descriptor is called."""
    for base in kind.mro or (kind.address,):
        namespace = heap.type_at(base).namespace
        value = _dicts.find_str(heap, _dicts.pairs(heap, namespace), name) if namespace else None
        if value:
            return value
    return None


def _spaces(heap: Heap, address: int, kind: Type) -> Iterator[Iterator[tuple[int, int]]]:
    """The (key, value) pairs of each namespace of an object itself."""
    if kind.kind == "module":
        namespace = heap.memory.word(address + at.MODULE_DICT)
    elif kind.kind == "type":
        namespace = heap.type_at(address).namespace
    else:
        where, values = _attribute_store(heap, address, kind)
        if values:
            yield _dicts.entries(heap, heap.memory.word(kind.address + heap.layout.ht_cached_keys), values)
            return
        namespace = where
    if namespace:
        yield _dicts.pairs(heap, namespace)


def _attribute_store(heap: Heap, address: int, kind: Type) -> tuple[int, int]:
    """(address of the instance's dict or 0, address of its values or 0). At most one is set."""
    memory, how = heap.memory, heap.layout.managed
    if not kind.flags & at.MANAGED_DICT or how == "offset":
        return (memory.word(address + offset) if (offset := _dict_offset(heap, address, kind)) else 0), 0
    if how == "pointer":  # 3.11: two words before the object, of which one is set
        values, instance_dict = memory.words(address - 32, 2)
        return (0, values) if values else (instance_dict, 0)
    word = memory.word(address - 24)
    if how == "tagged":  # 3.12: one word for both; a set low bit means values, one byte further
        return (0, word + 1) if word & 1 else (word, 0)
    if word or not kind.flags & at.INLINE_VALUES:
        return word, 0
    start = address + kind.basicsize  # 3.13: inside the object, behind its own fields
    _, _, _, valid = memory.read(start, 4)
    return 0, start + heap.layout.values_items if valid else 0


def _dict_offset(heap: Heap, address: int, kind: Type) -> int:
    """Where the pointer to the instance's dict lies; 0 when instances have none."""
    offset = kind.dictoffset
    if offset >= 0:
        return offset
    # counted from the end of an object of variable size (PyObject_GetDictPtr)
    if kind.kind == "int" and heap.layout.int_tagged:
        count = heap.memory.word(address + heap.layout.int_tag) >> 3
    else:
        count = abs(heap.memory.signed(address + at.OB_SIZE)) if kind.itemsize else 0
    size = kind.basicsize + count * kind.itemsize
    offset += (size + 7) // 8 * 8
    if not 16 <= offset < 1 << 40:
        raise Nonsense(address, "object of a sensible size")
    return offset


def _slots(heap: Heap, kind: Type) -> Iterator[tuple[str, int]]:
    """(name, offset) of every slot that holds an object, nearest class first."""
    for base in kind.mro or (kind.address,):
        member = heap.type_at(base).members
        for _ in range(_SLOTS_LIMIT if member else 0):
            name, kind_word, offset = struct.unpack("<QQq", heap.memory.read(member, 24))
            if not name:
                break
            if kind_word & 0xFFFFFFFF in _OBJECT_MEMBERS and 16 <= offset < kind.basicsize:
                yield heap.memory.c_string(name).decode("utf-8", "replace"), offset
            member += at.MEMBER_SIZE
