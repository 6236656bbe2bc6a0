"""What an expression of a running function means at this moment: the object that it names, found in memory, never evaluated there."""

from __future__ import annotations

import ast
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence

from collectors._cpython import Gone, OutOfBounds, PeekError, Process
from collectors._sources import Refused, Sources
from collectors._threads import Frame, Thread
from collectors._withblocks import Position

MODULE_PARTS = 12
"""Longest dotted module name that a file name is tried for."""


class Names:
    """Resolves names of one process as its frames would."""

    def __init__(self, process: Process, sources: Sources, started_ns: int, until: float, threads: Sequence[Thread] = ()) -> None:
        """`threads`: those whose frames are asked about; who called an inner function tells what it shares with the outer one."""
        self.process = process
        self.until = until
        """By time.monotonic(): past it every look raises OutOfBounds."""
        self.notes: dict[str, str] = {}
        """File to the reason why its source says nothing here."""
        self._sources, self._started_ns = sources, started_ns
        self._modules: dict[str, int] | None = None
        self._of_file: dict[str, list[int]] = {}
        self._positions: dict[tuple[str, str, int], Position | None] = {}
        self._caller = {id(inner): outer for thread in threads for inner, outer in itertools.pairwise(thread.frames)}
        self._free: dict[int, dict[str, int]] = {}

    def position(self, frame: Frame) -> Position | None:
        """Where a frame stands in its source, None (with a note) where its source may not be what runs."""
        key = frame.file, frame.name, frame.line
        if key not in self._positions:
            self._positions[key] = found = self._position(frame)
            if found is None and frame.file not in self.notes and "<" not in (frame.function[:1], frame.file[:1]):
                self.notes[frame.file] = f"line {frame.line} is not in {frame.function}: not the source that runs"
        return self._positions[key]

    def _position(self, frame: Frame) -> Position | None:
        if frame.file.startswith("<"):  # no file: exec, a frozen module
            return None
        try:
            return self._sources.position(self.process.pid, frame.file, self._started_ns, frame.name, frame.line)
        except Refused as why:
            self.notes[frame.file] = str(why)
        except OSError as error:
            self.notes[frame.file] = error.strerror or str(error)
        return None

    def all(self, expr: ast.expr, frame: Frame, position: Position) -> list[int]:
        """Every object that `expr` may mean in a frame; more than one where two modules were made from one file."""
        if isinstance(expr, ast.Name):
            if (found := self.local(frame, expr.id)) is not None:
                return [found]
            # a local that the reader does not show (unbound) is no module variable
            modules = self.modules_of(frame.file) if position.is_global(expr.id) else []
            return self._each(modules, expr.id)
        if isinstance(expr, ast.Attribute):
            return self._each(self.all(expr.value, frame, position), position.private(expr.attr))
        return []

    def local(self, frame: Frame, name: str) -> int | None:
        """A variable of a frame, also one that it shares with an inner or an outer function; None where it is not known."""
        try:
            if name in frame.locals:
                return self.process.content_of(frame.locals[name]) or None
            if id(frame) not in self._free:
                self._free[id(frame)] = self._free_variables(frame)
            return self._free[id(frame)].get(name)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return None

    def _free_variables(self, frame: Frame) -> dict[str, int]:
        """Variables that inner and outer functions share: kept by the function object, which its caller or its maker holds."""
        found: dict[str, int] = {}
        for function, name in self._functions(frame.locals.values()):
            if f".{frame.name}.<locals>." in name:  # made here; Python 3.10 keeps what it shares nowhere else in sight
                found |= self.process.closure_of(function)
        if caller := self._caller.get(id(frame)):
            held = list(caller.locals.values())
            if caller.function == "run" and "self" in caller.locals:  # threading.Thread
                held += [target] if (target := self.get(caller.locals["self"], "_target")) is not None else []
            found |= next((self.process.closure_of(at) for at, name in self._functions(held) if name.endswith(f".{frame.name}")), {})
        return found

    def _functions(self, addresses: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Those that are functions, with their qualified names."""
        for address in addresses:
            try:
                function = self.process.content_of(address)
                # asked for its type first: a value may be large
                if function and self.process.type_name(function) == "function":
                    yield function, str(self.process.value(function)["name"])
            except (Gone, OutOfBounds):
                raise
            except PeekError:
                continue

    def one(self, expr: ast.expr, frame: Frame, position: Position) -> int | None:
        """The object that `expr` means, None where that cannot be told for certain."""
        found = set(self.all(expr, frame, position))
        return found.pop() if len(found) == 1 else None

    def _each(self, holders: Iterable[int], name: str) -> list[int]:
        return [found for holder in holders if (found := self.get(holder, name)) is not None]

    def get(self, address: int, name: str) -> int | None:
        """An attribute, None where there is none or it cannot be read."""
        if time.monotonic() > self.until:
            raise OutOfBounds("the bound of time was reached")
        try:
            return self.process.get(address, name)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return None

    def modules_of(self, file: str) -> list[int]:
        """Modules made from a source file (a script may be `__main__` and a module as well)."""
        if file not in self._of_file:
            if self._modules is None:
                self._modules = self.process.modules()
            parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
            names = [".".join(parts[-n:]) for n in range(1, min(len(parts), MODULE_PARTS))]
            found = [self._modules[name] for name in ("__main__", "__mp_main__", *names) if name in self._modules]
            self._of_file[file] = [m for m in dict.fromkeys(found) if self.plain(m, "__file__") == file]
        return self._of_file[file]

    def plain(self, address: int, name: str) -> object:
        """The value of a simple attribute (None, bool, number, string), None where there is none."""
        found = self.get(address, name)
        try:
            value = None if found is None else self.process.value(found)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return None
        return value if isinstance(value, (bool, int, float, str)) else None

    def bases(self, address: int) -> tuple[str, ...]:
        """Names of an object's type and its bases, () where there is no object."""
        try:
            return self.process.base_names(address)
        except (Gone, OutOfBounds):
            raise
        except PeekError:
            return ()

    def spelled(self, expr: ast.expr, frame: Frame) -> str:
        """How the program calls it, with `self` replaced by its class: "Pool._lock (pool.py:52)"."""
        text = ast.unparse(expr)
        owner = self.local(frame, "self")
        if owner is not None and text.startswith("self.") and (bases := self.bases(owner)):
            text = bases[0].rpartition(".")[2] + text[len("self") :]
        return f"{text[:120]} ({frame.where})"
