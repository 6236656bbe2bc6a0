"""Values that an engine declares to be worth reading: counts, flags, names; what a user wrote stays where it is."""

from __future__ import annotations

import re
import time
from typing import Any

from collectors._cpython import BadExpression, Bounds, Found, NotFound, OutOfBounds, Process, Root, Unreadable, evaluate
from collectors._cpython._roots import parse_dump
from collectors._moment import Moment

BOUNDS = Bounds(depth=1, items=4, objects=8, text=100, nbytes=1 << 20, seconds=0.5)
"""Of one declared value: it is one number or flag, and whatever else it turns out to be is not shown."""
FAR_S = 1e9
"""A deadline of `sys.maxsize` is none."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z_.]{0,79}|-?\d{1,12}(\.\d{1,9})?")
"""A text that may leave: the name of a class or a state, a number as the environment holds it. No id, no word of a user."""
_FIRST = re.compile(r"\s*(?:len\s*\(\s*)?(\w+)")


def declared(live: object, role: str, engine: str) -> list[dict[str, Any]]:
    """The declarations of a request that are for a process of this role and engine."""
    entries = [one for one in live if isinstance(one, dict)] if isinstance(live, (list, tuple)) else []
    return [one for one in entries if one.get("role") in (None, role) and one.get("engine") in (None, engine)]


class Roots:
    """What the frames of one dump hold."""

    def __init__(self, process: Process, raw: list[Any]) -> None:
        self._process, self._held = process, parse_dump(process, raw)
        self._classes: dict[int, frozenset[str]] = {}

    def named(self, name: str) -> list[Root]:
        """Objects of a class (or a base) of that name, or in a local variable of that name: few of many."""
        return [root for root in self._held if root.name == name or name in self._of(root.address)]

    def _of(self, address: int) -> frozenset[str]:
        if address not in self._classes:
            try:
                names = self._process.base_names(address)
            except Unreadable:  # the frame went on meanwhile
                names = ()
            self._classes[address] = frozenset(name.rpartition(".")[2] for name in names)
        return self._classes[address]


def read_values(moment: Moment, live: list[dict[str, Any]], until: float, found: list[dict[str, Any]]) -> None:
    """Append to `found` what `live` declares. Several expressions of one name are those of versions: the first that is there counts.

    Raises OutOfBounds past `until` (by time.monotonic()); what was found by then is in `found`.
    """
    if not live:
        return
    roots = Roots(moment.process, moment.raw)
    told: set[str] = set()
    for one in live:
        name, expr = str(one.get("name", "")), str(one.get("expr", ""))
        first = _FIRST.match(expr)
        if name in told or not first:
            continue
        if time.monotonic() > until:
            raise OutOfBounds("the bound of time was reached")
        try:
            held = roots.named(first[1])
            got = _passing(moment, expr, first[1], held) if one.get("passing") else evaluate(moment.process, expr, held, BOUNDS)
        except (NotFound, BadExpression, Unreadable):
            continue
        told.add(name)
        value = harmless(got.value)
        if one.get("clock") and isinstance(value, (int, float)):
            seconds = time.monotonic() - value if one["clock"] == "age" else value - time.monotonic()
            value = round(seconds, 3) if abs(seconds) < FAR_S else None
        found.append({"name": name, "expr": expr, "type": got.type, "value": value, "torn": got.torn})


def _passing(moment: Moment, expr: str, name: str, held: list[Root]) -> Found:
    """A value that lives no longer than a wait: when a thread goes on, its memory soon holds another object of the same kind.

    True for a thread that slept all along, or when what is read before and after a second dump is the same. Raises NotFound else.
    """
    holders = {root.thread_ident for root in held}
    threads = [thread for thread in moment.threads if thread.ident in holders]
    if not threads:
        raise NotFound(f"no frame holds a {name}")
    got = evaluate(moment.process, expr, held, BOUNDS)
    if all(moment.slept(thread) for thread in threads):
        return got
    again = evaluate(moment.process, expr, Roots(moment.process, moment.second[0]).named(name), BOUNDS)
    if (got.address, got.value) != (again.address, again.value):
        raise NotFound(f"{expr}: it changed meanwhile")
    return again


def harmless(value: object) -> Any:
    """A number, a flag or a name; of anything else only that it is there."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict) and isinstance(environ := value.get("environ"), dict):  # one of os.environ comes with its name
        value = next(iter(environ.values()), None)
    return value if isinstance(value, str) and _NAME.fullmatch(value) else "…"
