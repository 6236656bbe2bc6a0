"""An object graph as plain JSON.

None, bool, int, finite float and str are themselves; list and tuple are arrays; a dict whose keys are all strings is an object. What is
of another type, or was cut, is an object with "$type":
    {"$type": "set", "items": […]}                          {"$type": "bytes", "length": 3, "data": "a\\x00b"}
    {"$type": "dict", "entries": {…}, "named": {…}, "items": [[key, value], …]}     keys that are strings, bytes, anything else
    {"$type": "dict", "length": 9, "environ": {…}}          an environment or a copy of one, of strings or bytes
    {"$type": "m.Color", "name": "RED", "value": 1}         {"$type": "list", "length": 5000, "items": [the first]}
    {"$type": "m.Job", "$at": "0x7f…", "attributes": {…}}   {"$type": "collections.deque", "length": 2, "maxlen": null, "items": […]}
    {"$type": "queue.Queue", "$at": "0x7f…", "depth": 2, "attributes": {"maxsize": 8, "queue": …, …}}
Strings keep their names as keys, so that redaction by name works on them. "$cut" says why something is missing: "depth", "cycle",
"objects" (too many in all), "bound" (bytes or time), "unreadable" (gone, or garbage).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from collectors._cpython import _containers, _dicts, _instances, _scalars
from collectors._cpython import _layouts as at
from collectors._cpython._errors import OutOfBounds, Unreadable
from collectors._cpython._heap import Heap, Type
from collectors._cpython._records import Bounds
from collectors._cpython._shapes import describe, is_environment

DEPTH_LIMIT = 64
"""However deep was asked for: our own stack has its bound too."""
_PLAIN_INT_BITS = 1024
"""A larger integer goes as hexadecimal text: JSON writers refuse to print thousands of digits."""
_LEAVES = frozenset({"NoneType", "bool", "int", "float", "str", "bytes", "bytearray", "type", "function", "module"})


class Snapshotter:
    """Decodes one graph within bounds. `cut` says whether anything was left out."""

    def __init__(self, heap: Heap, bounds: Bounds) -> None:
        self.cut = False
        self.heap = heap
        self.bounds = bounds
        self._depth = min(bounds.depth, DEPTH_LIMIT)
        self._objects = 0
        self._open: list[int] = []
        """Addresses from the top down to where we are."""
        self._readers: dict[str, Callable[[int, Type], Any]] = {
            "NoneType": lambda address, kind: None,
            "bool": lambda address, kind: bool(_scalars.read_int(heap, address)),
            "int": self._int,
            "float": self._float,
            "str": self._str,
            "bytes": self._bytes,
            "bytearray": self._bytes,
            "list": self._list,
            "tuple": self._list,
            "dict": self._dict,
            "collections.OrderedDict": self._dict,
            "set": self._set,
            "frozenset": self._set,
            "collections.deque": self._deque,
        }

    def read(self, address: int) -> Any:
        """The value at `address`. Raises Unreadable or OutOfBounds only for the object itself, never for what it holds."""
        self._open.append(address)
        try:
            kind = self.heap.type_of(address)
            reader = self._readers.get(kind.kind)
            if reader is None or _instances.is_enum(self.heap, kind):
                return describe(self, address, kind)
            return reader(address, kind)
        finally:
            self._open.pop()

    def child(self, address: int) -> Any:
        """A value that another one holds: never raises for what is wrong with it, but says so in its place."""
        self._objects += 1
        if self._objects > self.bounds.objects:
            return self._left_out("objects")
        if address in self._open:
            return self._left_out("cycle", address)
        try:
            kind = self.heap.type_of(address)
            if len(self._open) > self._depth and kind.kind not in _LEAVES:
                return {"$type": _instances.type_name(self.heap, kind), **self._left_out("depth", address)}
            return self.read(address)
        except OutOfBounds:
            return self._left_out("bound")
        except Unreadable:
            return self._left_out("unreadable")

    def children(self, addresses: Iterable[int]) -> list[Any]:
        """At most `bounds.items` of them; what fails on the way (a container that shrinks under us) ends the list."""
        return [self.child(address) for address in self.few(addresses)]

    def few(self, found: Iterable[Any]) -> Iterator[Any]:
        """At most `bounds.items` of what an address iterator yields, ending where it can read no further."""
        iterator = islice(found, self.bounds.items)
        while True:
            try:
                yield next(iterator)
            except StopIteration:
                return
            except (Unreadable, OutOfBounds):
                self.cut = True
                return

    def attributes(self, address: int) -> dict[str, Any]:
        """The attributes of an object, as values."""
        found = _instances.attributes(self.heap, address, self.bounds.items + 1)
        if len(found) > self.bounds.items:
            self.cut = True
        return {name: self.child(value) for name, value in islice(found.items(), self.bounds.items)}

    def tagged(self, address: int, kind: Type, **fields: Any) -> dict[str, Any]:
        """An object with its type; of a class written in Python also with the attributes that it may have besides."""
        name = _instances.type_name(self.heap, kind)
        own = self.attributes(address) if kind.flags & at.HEAP_TYPE and "." not in kind.written else {}
        return {"$type": name, **fields, **({"attributes": own} if own else {})}

    def _left_out(self, why: str, address: int = 0) -> dict[str, Any]:
        self.cut = True
        return {"$cut": why, **({"$at": hex(address)} if address else {})}

    def _int(self, address: int, kind: Type) -> Any:
        value = _scalars.read_int(self.heap, address)
        if value.bit_length() > _PLAIN_INT_BITS:
            digits = hex(value)
            self.cut = self.cut or len(digits) > self.bounds.text
            return self.tagged(address, kind, bits=value.bit_length(), hex=digits[: self.bounds.text])
        return value if kind.written == "int" else self.tagged(address, kind, value=value)

    def _float(self, address: int, kind: Type) -> Any:
        value = _scalars.read_float(self.heap, address)
        if kind.written == "float" and math.isfinite(value):
            return value
        return self.tagged(address, kind, value=value if math.isfinite(value) else str(value))  # JSON has no NaN

    def _str(self, address: int, kind: Type) -> Any:
        length = _scalars.str_length(self.heap, address)
        text = _scalars.read_str(self.heap, address, self.bounds.text)
        if length > len(text):
            self.cut = True
            return self.tagged(address, kind, length=length, head=text)
        return text if kind.written == "str" else self.tagged(address, kind, head=text)

    def _bytes(self, address: int, kind: Type) -> Any:
        length = self.heap.size(address)
        data = bytes(_scalars.read_bytes(self.heap, address, kind.kind, self.bounds.text))
        self.cut = self.cut or length > len(data)
        return self.tagged(address, kind, length=length, data=repr(data)[2:-1])

    def _list(self, address: int, kind: Type) -> Any:
        length = self.heap.size(address)
        items = self.children(_containers.sequence(self.heap, address, kind.kind))
        if kind.written in ("list", "tuple") and len(items) == length:
            return items
        self.cut = self.cut or len(items) < length
        names = _fields(self.heap, kind) if kind.kind == "tuple" and kind.written != "tuple" else []
        if names and len(names) == len(items):  # a named tuple
            return self.tagged(address, kind, entries=dict(zip(names, items, strict=True)))
        return self.tagged(address, kind, length=length, items=items)

    def _dict(self, address: int, kind: Type) -> Any:
        header = _dicts.read_header(self.heap, address)
        ordered = kind.kind == "collections.OrderedDict"
        found = _containers.ordered_pairs(self.heap, address) if ordered else _dicts.pairs(self.heap, address)
        entries: dict[str, Any] = {}
        named: dict[str, Any] = {}
        others: list[list[Any]] = []
        for key, value in self.few(found):
            name, read = self.child(key), self.child(value)
            if isinstance(name, str) and name not in entries:
                entries[name] = read
            elif (text := _text_of(name)) is not None and text not in named:
                named[text] = read
            else:
                others.append([name, read])
        whole = len(entries) + len(named) + len(others) == header.used
        self.cut = self.cut or not whole
        if is_environment(self.heap, address):
            # under this name the redaction lets values pass by allow-list only
            environ = {name: plain for name, value in (entries | named).items() if (plain := _text_of(value)) is not None}
            entries, named = ({name: value for name, value in one.items() if name not in environ} for one in (entries, named))
            return self.tagged(address, kind, length=header.used, environ=environ, **_held(entries=entries, named=named, items=others))
        if kind.written == "dict" and whole and not others and not named and not any(name.startswith("$") for name in entries):
            return entries
        parts = _held(entries=entries, named=named, items=others)
        return self.tagged(address, kind, length=header.used, **parts)

    def _set(self, address: int, kind: Type) -> Any:
        length = self.heap.memory.signed(address + at.SET_USED)
        items = self.children(_containers.set_members(self.heap, address))
        self.cut = self.cut or len(items) < length
        return self.tagged(address, kind, length=length, items=items)

    def _deque(self, address: int, kind: Type) -> Any:
        length = self.heap.size(address)
        items = self.children(_containers.deque_items(self.heap, address))
        self.cut = self.cut or len(items) < length
        return self.tagged(address, kind, length=length, maxlen=_containers.deque_maxlen(self.heap, address), items=items)


def _text_of(value: Any) -> str | None:
    """The text of str and bytes and of their subclasses; None of anything else."""
    text = value.get("data", value.get("head")) if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _held(**parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}


def _fields(heap: Heap, kind: Type) -> list[str]:
    """The field names of a class made by namedtuple, else []."""
    try:
        fields = _instances.class_attribute(heap, kind, "_fields")
        if fields is None or heap.type_of(fields).kind != "tuple":
            return []
        return [_scalars.read_str(heap, name, 256) for name in islice(_containers.sequence(heap, fields, "tuple"), 256)]
    except Unreadable:
        return []
