"""Objects and their types: what stands in the header of everything."""

from __future__ import annotations

import struct
from typing import NamedTuple

from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense
from collectors._cpython._layouts import Layout
from collectors._cpython._memory import Memory

_MRO_LIMIT = 256
_TYPE_BYTES = 352
"""Up to and with tp_mro."""
_SIZE_LIMIT = 1 << 24
"""Of an instance. The largest known ones are a few hundred bytes."""
_OWN_LAYOUT = frozenset(
    {
        *("bool", "NoneType", "float", "set", "frozenset", "bytearray", "module", "function", "method", "cell"),
        *("collections.deque", "collections.OrderedDict", "_queue.SimpleQueue"),
        *("_thread.lock", "_thread.RLock", "_thread._ThreadHandle"),
    }
)
"""Types written in C that we know how to read, besides those that tp_flags marks."""


class Type(NamedTuple):
    """What a type object says about its instances."""

    address: int
    written: str
    """tp_name: "collections.deque" of a type written in C, the bare class name of one written in Python."""
    kind: str
    """Which C layout the instances have: "dict", "int", "_thread.lock" …, "object" for every other."""
    flags: int
    basicsize: int
    itemsize: int
    dictoffset: int
    namespace: int
    """Address of the class's own dict; 0 for built-in types from 3.12 on, which keep it elsewhere."""
    members: int
    """Address of the array that describes its slots."""
    mro: tuple[int, ...]
    """Addresses of the type and its bases, nearest first."""
    metatype: int


class Heap:
    """Memory with a layout. Remembers the types that it has met until it is told to forget them."""

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self.memory = memory
        self.layout = layout
        self.names: dict[int, str] = {}
        """Qualified names of types by address, see `_names`."""
        self._types: dict[int, Type] = {}
        self._metatypes: set[int] = set()
        self._reading: set[int] = set()

    def forget(self) -> None:
        """Read every type anew: a class may have gone and another one have come to lie where it was."""
        self._types.clear()
        self._metatypes.clear()
        self.names.clear()

    def type_of(self, address: int) -> Type:
        """The type of the object at `address`. Raises Nonsense when there is no object."""
        if address % 8:
            raise Nonsense(address, "object")
        return self.type_at(self.memory.word(address + self.layout.ob_type))

    def type_at(self, address: int) -> Type:
        """The type object at `address`."""
        known = self._types.get(address)
        if known is None:
            if address % 8 or address in self._reading:  # a real type is no base of its own base
                raise Nonsense(address, "type")
            self._reading.add(address)
            try:
                # what changes in a type (flags, version, caches) says nothing about the objects
                with self.memory.unrecorded():
                    known = self._types[address] = self._read_type(address)
            finally:
                self._reading.discard(address)
        return known

    def size(self, address: int) -> int:
        """ob_size of a variable-sized object. Raises Nonsense when negative."""
        size = self.memory.signed(address + at.OB_SIZE)
        if size < 0:
            raise Nonsense(address, "object of a sensible size")
        return size

    def _read_type(self, address: int) -> Type:
        raw = self.memory.read(address, _TYPE_BYTES)

        def word(offset: int) -> int:
            return int(struct.unpack_from("<Q", raw, offset)[0])

        basicsize, itemsize = word(at.TP_BASICSIZE), word(at.TP_ITEMSIZE)
        if not 16 <= basicsize < _SIZE_LIMIT or itemsize >= _SIZE_LIMIT or not self._is_metatype(word(self.layout.ob_type)):
            raise Nonsense(address, "type")
        written = self.memory.c_string(word(self.layout.tp_name)).decode("utf-8", "replace").removeprefix("builtins.")
        flags = word(self.layout.tp_flags)
        (dictoffset,) = struct.unpack_from("<q", raw, at.TP_DICTOFFSET)
        mro = self._read_mro(word(at.TP_MRO))
        kind = self._kind(written, flags, mro[1:])
        namespace, members, metatype = word(at.TP_DICT), word(at.TP_MEMBERS), word(self.layout.ob_type)
        return Type(address, written, kind, flags, basicsize, itemsize, dictoffset, namespace, members, mro, metatype)

    def _kind(self, written: str, flags: int, bases: tuple[int, ...]) -> str:
        # a class written in Python has no dot here, and only a built-in one has neither dot nor the heap flag
        if written in _OWN_LAYOUT and ("." in written or not flags & at.HEAP_TYPE):
            return written
        kind = next((name for bit, name in at.SUBCLASS_BITS.items() if flags >> bit & 1), "object")
        if kind in ("object", "dict"):  # OrderedDict is a dict with more
            return next((base for base in (self.type_at(base).kind for base in bases) if base in _OWN_LAYOUT), kind)
        return kind

    def _read_mro(self, address: int) -> tuple[int, ...]:
        if not address:  # a type that is being built
            return ()
        count = self.size(address)
        if count > _MRO_LIMIT:
            raise Nonsense(address, "tuple of bases")
        return self.memory.words(address + self.layout.tuple_items, count)

    def _is_metatype(self, address: int) -> bool:
        if address not in self._metatypes:
            if address % 8 or not self.memory.word(address + self.layout.tp_flags) >> 31 & 1:
                return False
            self._metatypes.add(address)
        return True
