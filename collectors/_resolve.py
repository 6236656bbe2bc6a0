"""What an expression of a running function means at this moment: the object that it names, found in memory, never evaluated there."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from collectors._cpython import Bounds, Frames, Gone, OutOfBounds, PeekError, Process, Running, Unsupported
from collectors._sources import Refused, Sources
from collectors._threads import FRAMES_MAX, Frame, Thread
from collectors._withblocks import Position

T = TypeVar("T")
MODULE_PARTS = 12
"""Longest dotted module name that a file name is tried for."""
CHAIN_MAX = 20
"""Attributes in a row. Nobody reads a longer name, and it may be longer than an interpreter can write down."""
ASK_BYTES, ASK_S = 4 << 20, 2.0
"""Of one question: an object that costs more is not known, and the rest goes on. 4 MiB are 100,000 names and 0.3 s of a processor;
time alone would take a machine that gives us none for an object that is too large."""
PLAIN = Bounds(depth=1, items=1, objects=2, text=200, nbytes=1 << 16, seconds=ASK_S)


class Names:
    """Resolves names of one process as its frames would."""

    def __init__(self, process: Process, sources: Sources, started_ns: int, until: float, threads: Sequence[Thread] = ()) -> None:
        """`threads`: those whose frames are asked about."""
        self.process = process
        self.until = until
        """By time.monotonic(): past it every look raises OutOfBounds."""
        self.notes: dict[str, str] = {}
        """File to the reason why its source says nothing here."""
        self._sources, self._started_ns = sources, started_ns
        self._modules: dict[str, int] | None = None
        self._of_file: dict[str, list[int]] = {}
        self._positions: dict[tuple[str, str, int], Position | None] = {}
        self._owner = {id(frame): thread for thread in threads for frame in thread.frames}
        self._running: dict[int, dict[int, Running]] = {}
        self._shown: dict[int, Frame] = {}
        self._shared: dict[int, dict[str, int]] = {}
        self._unknown: set[int] = set()
        self.frames: Frames | None = None
        """None for a version whose frames are not known."""
        self._states: dict[int, int] = {}
        try:
            self.frames = process.frames()
            self._states = self.ask(self.frames.states, {})
        except Unsupported as why:
            self.notes["frames"] = str(why)

    def ask(self, question: Callable[[], T], otherwise: T, about: int = 0) -> T:
        """What the process answers; `otherwise` where that cannot be read, or not within what one answer may cost.

        `about`: an object that is not asked about again once it proved too large. Raises OutOfBounds past `until`, and Gone.
        """
        if time.monotonic() > self.until:
            raise OutOfBounds("the bound of time was reached")
        if about in self._unknown:
            return otherwise
        try:
            with self.process.memory.limited(ASK_BYTES, ASK_S):
                return question()
        except Gone:
            raise
        except OutOfBounds:
            self._unknown |= {about} - {0}
        except PeekError:
            pass
        return otherwise

    def frames_of(self, thread: Thread) -> list[Running]:
        """The frames that a thread has now, innermost first; [] where they cannot be read."""
        frames, state = self.frames, self._states.get(thread.ident)
        return self.ask(lambda: frames.of(state), []) if frames and state else []

    def running(self, frame: Frame) -> Running | None:
        """A frame of a dump as memory has it, None for one that is not there any more."""
        thread, frames = self._owner.get(id(frame)), self.frames
        if thread is None or frames is None:
            return None
        if thread.ident not in self._running:
            self._running[thread.ident] = found = {}
            # from the outermost on: the inner ones may be others by now
            for shown, now in zip(reversed(thread.frames), reversed(self.frames_of(thread)[:FRAMES_MAX]), strict=False):
                if self.ask(partial(frames.names_of, now.code), None) != (shown.function, shown.file):
                    break
                found[id(shown)], self._shown[now.address] = now, shown
        return self._running[thread.ident].get(id(frame))

    def shown(self, thread: Thread, now: Running) -> Frame | None:
        """The frame of a dump that a frame in memory is."""
        if thread.frames:
            self.running(thread.frames[0])
        return self._shown.get(now.address)

    def words_of(self, now: Running) -> frozenset[str] | None:
        """The names and short texts in the code of a frame; None where they cannot be read."""
        frames = self.frames
        return self.ask(lambda: frames.words_of(now.code), None) if frames else None

    def values_of(self, now: Running) -> list[int]:
        """What the variables of a frame hold, shared ones included."""
        frames = self.frames
        return self.ask(lambda: [*frames.values_of(now), *frames.shared_by(now).values()], []) if frames else []

    def methods_of(self, now: Running, words: frozenset[str]) -> list[tuple[str, int]]:
        """(name, owner) of the bound methods that its variables and the globals of these names hold."""
        frames = self.frames
        values = [*self.values_of(now), *self._globals_in(now, words).values()]
        found = [self.ask(partial(frames.method_of, value), None) for value in values] if frames else []
        return [one for one in found if one]

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
        """Every object that `expr` may mean in a frame; more than one where it is not known on which module's variables it runs."""
        attributes: list[str] = []
        while isinstance(expr, ast.Attribute):
            attributes.append(position.private(expr.attr))
            expr = expr.value
        if not isinstance(expr, ast.Name) or len(attributes) > CHAIN_MAX:
            return []
        if (found := self.local(frame, expr.id)) is not None:
            objects = [found]
        else:
            # a local that the reader does not show (unbound) is no module variable
            objects = self._globals(frame, expr.id) if position.is_global(expr.id) else []
        for name in reversed(attributes):
            objects = self._each(objects, name)
        return objects

    def local(self, frame: Frame, name: str) -> int | None:
        """A variable of a frame, also one that it shares with an inner or an outer function; None where it is not known."""
        if name in frame.locals:
            return self.ask(lambda: self.process.content_of(frame.locals[name]) or None, None)
        if id(frame) not in self._shared:
            now, frames = self.running(frame), self.frames
            self._shared[id(frame)] = self.ask(lambda: frames.shared_by(now), {}) if now and frames else {}
        return self._shared[id(frame)].get(name)

    def _globals(self, frame: Frame, name: str) -> list[int]:
        now = self.running(frame)
        if now:
            return list(self._globals_in(now, (name,)).values())
        return self._each(self.modules_of(frame.file), name)

    def _globals_in(self, now: Running, names: Collection[str]) -> dict[str, int]:
        nothing: dict[str, int] = {}
        return self.ask(lambda: self.process.globals_in(now.globals, names), nothing, now.globals)

    def one(self, expr: ast.expr, frame: Frame, position: Position) -> int | None:
        """The object that `expr` means, None where that cannot be told for certain."""
        if self.frames and self.running(frame) is None:
            return None
        found = set(self.all(expr, frame, position))
        return found.pop() if len(found) == 1 else None

    def _each(self, holders: Iterable[int], name: str) -> list[int]:
        return [found for holder in holders if (found := self.get(holder, name)) is not None]

    def get(self, address: int, name: str) -> int | None:
        """An attribute, None where there is none or it cannot be read."""
        return self.ask(lambda: self.process.get(address, name), None, address)

    def modules_of(self, file: str) -> list[int]:
        """Modules made from a source file (a script may be `__main__` and a module as well)."""
        if file not in self._of_file:
            if self._modules is None:
                self._modules = self.ask(self.process.modules, dict[str, int]())
            parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
            names = [".".join(parts[-n:]) for n in range(1, min(len(parts), MODULE_PARTS))]
            found = [self._modules[name] for name in ("__main__", "__mp_main__", *names) if name in self._modules]
            self._of_file[file] = [m for m in dict.fromkeys(found) if self.plain(m, "__file__") == file]
        return self._of_file[file]

    def plain(self, address: int, name: str) -> object:
        """The value of a simple attribute (None, bool, number, string), None where there is none."""
        found = self.get(address, name)
        # a value that changes meanwhile is one of two true ones: nothing is gained by reading it twice
        value = None if found is None else self.ask(lambda: self.process.decode(found, PLAIN).value, None, found)
        return value if isinstance(value, (bool, int, float, str)) else None

    def attributes(self, address: int) -> dict[str, int]:
        """The attributes of an object, {} where they cannot be read."""
        return self.ask(lambda: self.process.attributes(address), {}, address)

    def bases(self, address: int) -> tuple[str, ...]:
        """Names of an object's type and its bases, () where there is no object."""
        return self.ask(lambda: self.process.base_names(address), ())

    def spelled(self, expr: ast.expr, frame: Frame) -> str:
        """How the program calls it, with `self` replaced by its class: "Pool._lock (pool.py:52)"."""
        text = ast.unparse(expr)
        owner = self.local(frame, "self")
        if owner is not None and text.startswith("self.") and (bases := self.bases(owner)):
            text = bases[0].rpartition(".")[2] + text[len("self") :]
        return f"{text[:120]} ({frame.where})"
