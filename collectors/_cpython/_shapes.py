"""How objects that are no plain data look in a snapshot: instances, enum members, queues, locks, code, exceptions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from collectors._cpython import _containers, _dicts, _instances, _scalars, _sync
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, Unreadable
from collectors._cpython._heap import Heap, Type
from collectors._cpython._records import LockState

if TYPE_CHECKING:
    from collectors._cpython._snapshot import Snapshotter

_VARIABLES_MAX = 10_000
"""Of an environment; the kernel takes some MiB of them."""
_USUAL_VARIABLES = ("PATH", "HOME", "PWD")


def describe(of: Snapshotter, address: int, kind: Type) -> dict[str, Any]:
    """An object as {"$type", …}. Its own attributes only: nothing is called, no property is computed."""
    heap = of.heap
    if _instances.is_enum(heap, kind):
        return _enum(of, address, kind)
    name = _instances.type_name(heap, kind)
    if kind.kind == "module":
        return {"$type": name, "name": _text(heap, _dicts.find_str(heap, _dicts.pairs(heap, _globals(heap, address, kind)), "__name__"))}
    if kind.kind == "type":
        return {"$type": name, "name": _instances.type_name(heap, heap.type_at(address))}
    if kind.kind == "function":
        return {"$type": name, "name": function_name(heap, address)}
    if kind.kind == "method":
        function, owner = heap.memory.words(address + at.METHOD_FUNCTION, 2)
        return {"$type": name, "name": function_name(heap, function), "self": of.child(owner)}
    if kind.kind == "cell":
        content = heap.memory.word(address + at.CELL_CONTENT)
        return {"$type": name, "content": of.child(content) if content else None}
    if kind.kind == "_queue.SimpleQueue":
        depth, items = _containers.simple_queue(heap, address)
        held = of.children(items)
        of.cut = of.cut or len(held) < depth
        return {"$type": name, "$at": hex(address), "depth": depth, "items": held}
    return _instance(of, address, kind, name)


def _instance(of: Snapshotter, address: int, kind: Type, name: str) -> dict[str, Any]:
    heap = of.heap
    out: dict[str, Any] = {"$type": name, "$at": hex(address)}
    if kind.kind == "exception":
        arguments = heap.memory.word(address + at.EXCEPTION_ARGS)
        out["args"] = of.child(arguments) if arguments else []
    depth = _sync.queue_depth(heap, address)
    if depth is not None:
        out["depth"] = depth
    try:
        lock = _sync.read_lock(heap, address)
    except Unreadable:  # nearly everything is no lock
        pass
    else:
        out.update(_lock_facts(lock))
    own = of.attributes(address)
    if name == "os._Environ":
        return {**out, "environ": (own.get("_data") or {}).get("environ", {})}
    return {**out, "attributes": own} if own else out


def is_environment(heap: Heap, address: int) -> bool:
    """Whether a dict is an environment or a copy of one: bytes to bytes, or text to text with PATH and HOME or PWD in it.

    Of bytes its first entry tells: there is hardly another use of such a dict, and what is taken for one loses nothing but values.
    """
    if heap.type_of(address).kind not in ("dict", "collections.OrderedDict"):
        return False
    if not 0 < _dicts.read_header(heap, address).used <= _VARIABLES_MAX:
        return False
    for key, value in islice(_dicts.pairs(heap, address), 1):
        kind = heap.type_of(key).kind
        if kind != "str":
            return kind == heap.type_of(value).kind == "bytes"
    found = _dicts.find_strs(heap, _dicts.pairs(heap, address), _USUAL_VARIABLES)
    usual = {name for name, value in found.items() if heap.type_of(value).kind == "str"}
    return "PATH" in usual and len(usual) > 1


def _lock_facts(lock: LockState) -> dict[str, Any]:
    if lock.kind == "Thread":
        facts: dict[str, Any] = {"alive": lock.locked, "ident": lock.owner_ident}
    elif lock.kind == "Event":
        facts = {"set": not lock.locked, "waiters": len(lock.waiting)}
    else:
        facts = {"locked": lock.locked, "owner": lock.owner_ident, "depth": lock.depth, "waiters": len(lock.waiting) or None}
    return {key: value for key, value in facts.items() if value is not None}


def _enum(of: Snapshotter, address: int, kind: Type) -> dict[str, Any]:
    name = _instances.own_attribute(of.heap, address, "_name_")
    value = _instances.own_attribute(of.heap, address, "_value_")
    return {
        "$type": _instances.type_name(of.heap, kind),
        "name": of.child(name) if name else None,
        "value": of.child(value) if value else None,
    }


def _globals(heap: Heap, address: int, kind: Type) -> int:
    offset = at.MODULE_DICT if kind.kind == "module" else at.FUNCTION_GLOBALS
    return heap.memory.word(address + offset)


def function_globals(heap: Heap, address: int) -> int:
    """Address of the globals dict of a function or a bound method. Raises Unreadable for anything else."""
    address = _function(heap, address)
    return _globals(heap, address, heap.type_of(address))


def closure(heap: Heap, address: int) -> dict[str, int]:
    """The free variables of a function or a bound method, as they are bound now. Raises Unreadable for anything else."""
    address = _function(heap, address)
    code, cells_at = heap.memory.word(address + at.FUNCTION_CODE), heap.memory.word(address + at.FUNCTION_CLOSURE)
    if not cells_at:
        return {}
    cells = list(_containers.sequence(heap, cells_at, "tuple"))
    names = list(_containers.sequence(heap, heap.memory.word(code + heap.layout.code_names), "tuple"))[-len(cells) :]
    bound = {_text(heap, name): content(heap, cell) for name, cell in zip(names, cells, strict=True)}
    return {name: value for name, value in bound.items() if name and value}


def content(heap: Heap, address: int) -> int:
    """What a cell holds: a variable that an inner function shares. 0 for an empty one; anything else is its own content."""
    return heap.memory.word(address + at.CELL_CONTENT) if heap.type_of(address).kind == "cell" else address


def _function(heap: Heap, address: int) -> int:
    kind = heap.type_of(address)
    if kind.kind == "method":
        address = heap.memory.word(address + at.METHOD_FUNCTION)
        kind = heap.type_of(address)
    if kind.kind != "function":
        raise Nonsense(address, "function written in Python")
    return address


def function_name(heap: Heap, address: int) -> str:
    """ "module.qualname" of a function; "" when it is none."""
    try:
        if heap.type_of(address).kind != "function":
            return ""
        module = heap.memory.word(address + at.FUNCTION_MODULE)
        parts = (_text(heap, module), _text(heap, heap.memory.word(address + at.FUNCTION_QUALNAME)))
    except Unreadable:
        return ""
    return ".".join(part for part in parts if part)


def _text(heap: Heap, address: int | None) -> str:
    return _scalars.read_str(heap, address, 512) if address and heap.type_of(address).kind == "str" else ""
