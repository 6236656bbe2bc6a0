"""A value that an operator names, "Class.attribute" or "CONSTANT", in every object of that class that the program's frames lead to.

Frames are read in memory, so no other program is needed and nothing is paused. What frames hold is looked into a few steps deep: a
condition that a queue keeps for itself stands in no variable of its own.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from collectors._cpython import BadExpression, NotFound, OutOfBounds, PeekError, Process, Unreadable, parse
from collectors._cpython import _instances as instances
from collectors._cpython._expression import Parsed
from collectors._values import BOUNDS, harmless

SEARCH_S = 0.4
"""For the objects of one process."""
DEPTH_MAX = 3
OBJECTS_MAX = 20_000
READINGS_MAX = 16
"""Different values of one constant."""
_INTO = frozenset({"list", "tuple", "dict", "collections.deque"})
_ITEMS_MAX = 64
Json = dict[str, Any]


def read_constants(process: Process, wanted: list[tuple[str, str, Any]]) -> list[Json]:
    """For each (module or "", "Class.attribute" | "CONSTANT" | "module.CONSTANT", what it should equal) what is there now:

    {"object", "status", "readings": [{"value", "type", "equal", "count", "place"}], "searched", "error"}, equal values counted together;
    status: read | not-imported (nor is it anywhere) | not-there | not-searched (to the end, and not found). searched: in objects that
    were looked for, of which there may be more.
    """
    parsed: list[tuple[str, str, Any, Parsed | None]] = []
    for module, text, equals in wanted:
        try:
            parsed.append((module, text, equals, parse(text)))
        except BadExpression as error:
            parsed.append((module, str(error), equals, None))
    names = {one.name for _, _, _, one in parsed if one is not None and one.steps and not one.length}
    held, cut = find_objects(process, names) if names else ({}, "")
    modules = process.modules([m for m, _, _, _ in parsed if m])
    out = []
    for module, text, equals, one in parsed:
        found: Json = {"object": text, "status": "not-there", "readings": [], "searched": False, "error": ""}
        if one is None or one.length or any(kind != "attribute" for kind, _ in one.steps):
            found |= {"error": "name a constant as Class.attribute, module.CONSTANT or CONSTANT"}
            out.append(found)
            continue
        steps = [str(name) for _, name in one.steps]
        starts = [(address, steps, place) for address, place in held.get(one.name, {}).items()]
        found["searched"] = bool(starts)
        for address, left, place in starts:
            _read(process, address, left, place, equals, found)
        for address, left, place in () if starts else _by_name(process, module, modules, [one.name, *steps]):
            if not found["readings"]:
                _read(process, address, left, place, equals, found)
        if found["readings"]:
            found["status"] = "read"
        elif module and module not in modules:
            found["status"] = "not-imported"
        elif cut and one.name in names:
            found |= {"status": "not-searched", "error": cut}
        elif not found["searched"] and steps:
            found["error"] = f"no frame leads to a {one.name}"
        else:
            found["error"] = found["error"] or "no such name"
        out.append(found)
    return out


def _by_name(process: Process, module: str, modules: dict[str, int], names: list[str]) -> Iterator[tuple[int, list[str], str]]:
    """(object, names left to follow from it, where): in the module that the patch names, else the name begins with one."""
    if module in modules:
        yield modules[module], names, module
    dotted = [".".join(names[:n]) for n in range(1, len(names))]
    found = process.modules(dotted) if dotted else {}
    yield from ((found[name], names[name.count(".") + 1 :], name) for name in reversed(dotted) if name in found)


def _read(process: Process, address: int, names: list[str], place: str, equals: Any, found: Json) -> None:
    """Follow `names` from an object and add what stands there to the readings."""
    try:
        for name in names:
            address = process.get(address, name)
        snapshot, torn = process.consistently(lambda: process.decode(address, BOUNDS))
    except (NotFound, Unreadable, OutOfBounds) as error:
        found["error"] = str(error)
        return
    if torn:
        found["error"] = "it changed while it was read"
        return
    if isinstance(snapshot.value, dict) and snapshot.type in ("property", "getset_descriptor", "member_descriptor"):
        found["error"] = f"a {snapshot.type}: it is computed when it is asked for"
        return
    value, equal = harmless(snapshot.value), same(snapshot.value, equals)
    for reading in found["readings"]:
        if (reading["value"], reading["type"], reading["equal"]) == (value, snapshot.type, equal):
            reading["count"] += 1
            return
    if len(found["readings"]) < READINGS_MAX:
        found["readings"].append({"value": value, "type": snapshot.type, "equal": equal, "count": 1, "place": place})


def same(value: Any, wanted: Any) -> bool | None:
    """Whether a value is the wanted one: numbers as numbers, a float within 1e-9 of itself. None where nothing is wanted."""
    if wanted is None:
        return None
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, (int, float)) and isinstance(wanted, (int, float)):
        return value == wanted or math.isclose(value, wanted, rel_tol=1e-9, abs_tol=0.0)
    return type(value) is type(wanted) and bool(value == wanted)


def find_objects(process: Process, names: set[str]) -> tuple[dict[str, dict[int, str]], str]:
    """(class name -> {address: where it is held}, why the search ended early) of objects of these classes, or classes derived from them."""
    until = time.monotonic() + SEARCH_S
    found: dict[str, dict[int, str]] = {name: {} for name in names}
    seen: set[int] = set()
    kinds: Counter[int] = Counter()
    try:
        level = list(_variables(process))
    except PeekError as error:
        return found, str(error)
    for depth in range(DEPTH_MAX + 1):
        further: list[tuple[int, str]] = []
        for address, place in level:
            if address in seen:
                continue
            if len(seen) >= OBJECTS_MAX or time.monotonic() > until:
                return found, f"not found within {SEARCH_S:g} s of looking"
            seen.add(address)
            try:
                kind = process.heap.type_of(address)
                bases = {base.rpartition(".")[2] for base in instances.base_names(process.heap, kind)}
                for name in names & bases:
                    found[name][address] = place
                kinds[kind.address] += 1
                if depth < DEPTH_MAX and kinds[kind.address] <= 4 * _ITEMS_MAX:
                    further += _held_by(process, address, kind.kind, place)
            except (Unreadable, OutOfBounds, NotFound):
                continue
        level = further
    return found, ""


def _variables(process: Process) -> Iterator[tuple[int, str]]:
    frames = process.frames()
    for state in frames.states().values():
        try:
            for frame in frames.of(state):
                name = frames.names_of(frame.code)[0]
                yield from ((address, f"a variable of {name}") for address in frames.values_of(frame))
        except Unreadable:  # the thread went on
            continue


def _held_by(process: Process, address: int, kind: str, place: str) -> Iterator[tuple[int, str]]:
    if kind == "object":
        owner = process.type_name(address).rpartition(".")[2]
        yield from ((value, f"{owner}.{name}") for name, value in process.attributes(address).items())
    elif kind == "dict":
        yield from ((value, place) for _, value in process.pairs(address, _ITEMS_MAX))
    elif kind in _INTO:
        yield from ((value, place) for value in process.items(address, _ITEMS_MAX))
