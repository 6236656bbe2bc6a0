"""One step of an expression: an attribute, an index, a key. What cannot be told without running code is refused and says so."""

from __future__ import annotations

import difflib
from typing import Any

from collectors._cpython import _containers, _dicts, _instances, _scalars, _shapes
from collectors._cpython._errors import NotFound, Unreadable
from collectors._cpython._process import Process

_COMPUTED = frozenset({"property", "functools.cached_property", "getset_descriptor", "member_descriptor", "wrapper_descriptor"})
"""Kinds of class attributes that stand for a computation, not for a value."""
_BOUND = frozenset({"function", "method", "classmethod", "staticmethod", "builtin_function_or_method", "method_descriptor"})
"""These have a __get__ too, and are what one asked for."""
_SUGGESTIONS = 6
_KEYS_SHOWN = 8


def is_named(qualified: str, name: str) -> bool:
    """Whether "mypkg.mod.Class" is meant by "Class" (or by the whole of it)."""
    return qualified == name or qualified.rpartition(".")[2] == name


def bases_of(process: Process, address: int) -> tuple[str, ...]:
    try:
        return process.base_names(address)
    except Unreadable:  # the frame went on meanwhile
        return ()


def attribute(process: Process, address: int, name: str) -> int:
    """Address of an attribute. Raises NotFound, naming what is there instead."""
    try:
        found = process.get(address, name)
    except NotFound as error:
        raise NotFound(str(error), _instead(process, address, name)) from None
    kind = process.type_name(found)
    if process.heap.type_of(address).kind not in ("type", "module") and (kind in _COMPUTED or _computes(process, address, name, found)):
        raise NotFound(
            f"{process.type_name(address)}.{name} is a {kind}: it is computed by code, and nothing is run in the process",
            _instead(process, address, name),
        )
    return found


def _computes(process: Process, address: int, name: str, found: int) -> bool:
    """Whether it is an object of the class with a __get__ written in Python, which Python would ask."""
    heap = process.heap
    kind = heap.type_of(found)
    if kind.kind in _BOUND or _instances.class_attribute(heap, kind, "__get__") is None:
        return False
    return _instances.class_attribute(heap, heap.type_of(address), name) == found


def _instead(process: Process, address: int, name: str) -> str:
    try:
        own = list(process.attributes(address))
    except Unreadable:
        return ""
    if f"_{name}" in own:
        return f"read ._{name}, which it holds itself"
    near = difflib.get_close_matches(name, own, _SUGGESTIONS) or [one for one in own if not one.startswith("__")][:_SUGGESTIONS]
    return "it holds " + ", ".join(near) if near else "it holds no attributes of its own"


def is_environment(process: Process, address: int) -> bool:
    """Whether it is os.environ or holds what one does: its values pass by allow-list only."""
    return "os._Environ" in bases_of(process, address) or _shapes.is_environment(process.heap, address)


def item(process: Process, address: int, wanted: Any) -> int:
    """Address of an element by index, or of a value by key. Raises NotFound."""
    kind = process.heap.type_of(address).kind
    if kind in ("dict", "collections.OrderedDict"):
        return _by_key(process, address, wanted)
    if "os._Environ" in bases_of(process, address) and isinstance(wanted, str):
        return _by_key(process, process.get(address, "_data"), wanted.encode("utf-8", "surrogateescape"))
    if kind not in ("list", "tuple", "collections.deque", "_queue.SimpleQueue"):
        raise NotFound(f"{process.type_name(address)} cannot be indexed here", "read its attributes, or X.queue[0] of a queue")
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise NotFound(f"{process.type_name(address)} is indexed by number, not by {wanted!r}")
    length = process.length(address)
    index = wanted + length if wanted < 0 else wanted
    if not 0 <= index < length:
        raise NotFound(f"no index {wanted}: {process.type_name(address)} has {length} elements")
    if kind in ("list", "tuple"):
        return _containers.element(process.heap, address, kind, index)
    found = process.items(address, index + 1)
    if len(found) <= index:
        raise NotFound(f"no index {wanted}: it has become shorter")
    return found[index]


def _by_key(process: Process, address: int, wanted: Any) -> int:
    heap = process.heap
    if isinstance(wanted, str):
        found = _dicts.find_str(heap, _dicts.pairs(heap, address), wanted)
        if found:
            return found
    keys: list[str] = []
    for count, (key, value) in enumerate(_dicts.pairs(heap, address)):
        if count > _dicts.SCAN_LIMIT:
            break
        try:
            plain, here = _plain(process, key)
        except Unreadable:
            continue
        if plain and type(here) is type(wanted) and here == wanted:
            return value
        if plain and len(keys) < _KEYS_SHOWN and not isinstance(here, bytes):  # bytes: names of the environment
            keys.append(repr(here)[:60])
    shown = f"some of its keys: {', '.join(keys)}" if keys else ""
    raise NotFound(f"no key {wanted!r} among {process.length(address)}", shown)


def _plain(process: Process, address: int) -> tuple[bool, Any]:
    """(whether it is a plain constant, the constant)."""
    heap = process.heap
    kind = heap.type_of(address).kind
    if kind == "str":
        return True, _scalars.read_str(heap, address)
    if kind in ("int", "bool"):
        number = _scalars.read_int(heap, address)
        return True, bool(number) if kind == "bool" else number
    if kind == "bytes":
        return True, _scalars.read_bytes(heap, address)
    if kind == "float":
        return True, _scalars.read_float(heap, address)
    if kind == "NoneType":
        return True, None
    if kind == "tuple" and heap.size(address) <= 16:
        parts = [_plain(process, one) for one in _containers.sequence(heap, address, "tuple")]
        return all(plain for plain, _ in parts), tuple(value for _, value in parts)
    return False, None
