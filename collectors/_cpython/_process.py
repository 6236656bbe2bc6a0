"""One process whose objects are read: the face of this package."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, TypeVar

from collectors._cpython import _containers, _dicts, _instances, _interpreter, _scalars, _sync
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, NotFound, OutOfBounds, Unreadable, Unsupported
from collectors._cpython._frames import Frames
from collectors._cpython._heap import Heap, Type
from collectors._cpython._memory import Memory
from collectors._cpython._records import DEFAULT_BOUNDS, Bounds, LockState, Snapshot
from collectors._cpython._shapes import closure, content, function_globals
from collectors._cpython._snapshot import Snapshotter

T = TypeVar("T")

CALL_BYTES, CALL_SECONDS = 64 << 20, 2.0
"""Bounds of one call that has none of its own."""
TRIES = 3
"""How often something that changes while it is read is read anew."""
_DATA_DESCRIPTORS = frozenset({"property", "getset_descriptor", "member_descriptor"})
"""Told by name: from 3.12 on the namespace of a built-in type lies elsewhere."""
_MODULES_LIMIT = 50_000
_STATE_WORDS = 1024
"""Of an interpreter's state that are searched for its modules where they are not at the known place."""


def attach(pid: int, sysroot: str = "") -> Process:
    """Open a process for reading; nothing happens to it. Raises Denied, Gone, NotPython, Unsupported.

    Every layout is checked against the process itself: `sys.hexversion`, read in its memory, must be the version that was found.
    """
    memory = Memory(pid, sysroot)
    try:
        found = _interpreter.find(memory, sysroot)
        *others, last = (Process(memory, found._replace(layout=layout), sysroot) for layout in at.variants(found.layout))
        for process in others:
            try:
                process.check()
                return process
            except Unsupported:
                continue
        last.check()
    except BaseException:
        memory.close()
        raise
    return last


class Process:
    """Addresses in, addresses or plain values out. Every method raises Unreadable (gone, torn or garbage), Gone or OutOfBounds.

    Types are remembered from one call to the next; `snapshot`, `evaluate` and `roots` begin anew.
    """

    def __init__(self, memory: Memory, interpreter: _interpreter.Interpreter, sysroot: str = "") -> None:
        self.memory = memory
        self.heap = Heap(memory, interpreter.layout)
        self.interpreter = interpreter
        self.sysroot = sysroot

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.memory.pid

    @property
    def version(self) -> tuple[int, int]:
        return self.interpreter.version

    @property
    def verified(self) -> bool:
        """Whether the layouts of this version were checked on a running one when this was written."""
        return self.version in at.VERIFIED

    def close(self) -> None:
        self.memory.close()

    def check(self) -> None:
        """Raise Unsupported unless the layout fits the process."""
        major, minor = self.version
        try:
            hexversion = _scalars.read_int(self.heap, self.get(self.modules(("sys",)).get("sys", 0), "hexversion"))
        except (Unreadable, NotFound) as error:
            raise Unsupported(
                f"CPython {major}.{minor}: its modules are not where they belong ({error})",
                "a process that is just starting or ending has none yet or no more: try again; otherwise this build is unknown to us",
            ) from error
        if hexversion >> 16 != major << 8 | minor:
            raise Unsupported(f"{self.interpreter.path} looks like CPython {major}.{minor} and says that it is {hexversion:#x}")

    def type_name(self, address: int) -> str:
        """Module-qualified name of an object's type: "queue.Queue"; of built-in ones bare: "dict"."""
        return _instances.type_name(self.heap, self.heap.type_of(address))

    def base_names(self, address: int) -> tuple[str, ...]:
        """Module-qualified names of the type and its bases, nearest first."""
        return _instances.base_names(self.heap, self.heap.type_of(address))

    def attributes(self, address: int) -> dict[str, int]:
        """Addresses of the attributes of an instance, slots included; of a module its globals, of a class its own namespace."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            return _instances.attributes(self.heap, address)

    def get(self, address: int, name: str) -> int:
        """Address of an attribute: of the object itself, else of its classes, as stored there. Raises NotFound.

        Of a class its own and inherited names; of a module its globals. A property is returned as a property, never called, also
        where the object itself holds something under that name: Python asks the property then, and what it would say is unknown.
        """
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            kind = self.heap.type_of(address)
            found = _instances.own_attribute(self.heap, address, name)
            if found is not None and kind.kind not in ("type", "module"):
                first = self._data_descriptor(kind, name)
                found = (_instances.slot(self.heap, address, name) or first) if first else found
            if found is None and kind.kind == "type":
                found = _instances.class_attribute(self.heap, self.heap.type_at(address), name)
            found = found or _instances.class_attribute(self.heap, kind, name)
        if found is None:
            raise NotFound(f"{self.type_name(address)} at {address:#x} has no attribute {name!r}")
        return found

    def _data_descriptor(self, kind: Type, name: str) -> int | None:
        """What of the class comes before the object's own dict: a property, a slot, anything with __set__ or __delete__."""
        with self.memory.unrecorded():
            found = _instances.class_attribute(self.heap, kind, name)
            if found is None:
                return None
            of = self.heap.type_of(found)
            setters = (_instances.class_attribute(self.heap, of, setter) for setter in ("__set__", "__delete__"))
            return found if of.written in _DATA_DESCRIPTORS or any(setters) else None

    def value(self, address: int, bounds: Bounds = DEFAULT_BOUNDS) -> Any:
        """The value as plain JSON (see `_snapshot` for its shape). `snapshot` also says whether it changed meanwhile."""
        return self.snapshot(address, bounds).value

    def snapshot(self, address: int, bounds: Bounds = DEFAULT_BOUNDS) -> Snapshot:
        """The value as plain JSON; read anew, up to three times, when it changed under the first read."""
        self.heap.forget()
        with self.memory.limited(bounds.nbytes, bounds.seconds):
            snapshot, torn = self.consistently(lambda: self.decode(address, bounds))
        return snapshot._replace(torn=torn)

    def decode(self, address: int, bounds: Bounds) -> Snapshot:
        """One read, without a look back whether it was torn."""
        name = self.type_name(address)
        of = Snapshotter(self.heap, bounds)
        return Snapshot(of.read(address), name, False, of.cut)

    def consistently(self, read: Callable[[], T]) -> tuple[T, bool]:
        """(what `read` returned, torn): done anew while the memory that it read differs afterwards, at most three times."""
        torn: list[T] = []
        for tries_left in range(TRIES - 1, -1, -1):
            with self.memory.recorded():
                try:
                    result = read()
                except OutOfBounds:
                    if not torn:
                        raise
                    break
                except (Unreadable, NotFound):
                    if not self.memory.changed() or not (tries_left or torn):
                        raise
                    continue
                if not self.memory.changed():
                    return result, False
                torn = [result]
        return torn[0], True

    def length(self, address: int) -> int:
        """len() of a container or queue, from its header alone; nothing is called and no lock is taken. Raises NotFound without one."""
        kind = self.heap.type_of(address).kind
        if kind in ("list", "tuple", "bytes", "bytearray", "collections.deque"):
            return self.heap.size(address)
        if kind in ("dict", "collections.OrderedDict"):
            return _dicts.read_header(self.heap, address).used
        if kind in ("set", "frozenset"):
            return self.memory.signed(address + at.SET_USED)
        if kind == "str":
            return _scalars.str_length(self.heap, address)
        depth = _sync.queue_depth(self.heap, address)
        if depth is None:
            raise NotFound(f"{self.type_name(address)} has no length of its own", "read the container that it holds: len(X.attribute)")
        return depth

    def items(self, address: int, limit: int = 1000) -> list[int]:
        """Addresses of the elements of a list, tuple, set, deque or queue, or of the keys of a dict; at most `limit`."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            kind = self.heap.type_of(address).kind
            if kind in ("list", "tuple"):
                return list(islice(_containers.sequence(self.heap, address, kind), limit))
            if kind in ("set", "frozenset"):
                return list(islice(_containers.set_members(self.heap, address), limit))
            if kind == "collections.deque":
                return list(islice(_containers.deque_items(self.heap, address), limit))
            if kind == "_queue.SimpleQueue":
                return list(islice(_containers.simple_queue(self.heap, address)[1], limit))
            if kind in ("dict", "collections.OrderedDict"):
                return [key for key, _ in self.pairs(address, limit)]
            holder = _sync.queue_items(self.heap, address)
            if holder is None:
                raise NotFound(f"{self.type_name(address)} holds no elements")
            return self.items(holder, limit)

    def pairs(self, address: int, limit: int = 1000) -> list[tuple[int, int]]:
        """Addresses of (key, value) of a dict, in its order; at most `limit`."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            kind = self.heap.type_of(address).kind
            if kind == "collections.OrderedDict":
                return list(islice(_containers.ordered_pairs(self.heap, address), limit))
            if kind != "dict":
                raise Nonsense(address, "dict")
            return list(islice(_dicts.pairs(self.heap, address), limit))

    def lock(self, address: int) -> LockState:
        """A Lock, RLock, Condition, Event or Thread. Raises Nonsense for any other object."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            return _sync.read_lock(self.heap, address)

    def frames(self) -> Frames:
        """Its threads' frames, read anew. Raises Unsupported for a version whose frames are not known."""
        return Frames(self.heap, self.interpreter.runtime)

    def globals_in(self, namespace: int, names: Collection[str]) -> dict[str, int]:
        """Of these names those that a dict of global variables holds, to their objects."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            return _dicts.find_strs(self.heap, _dicts.pairs(self.heap, namespace), names)

    def globals_of(self, function: int) -> int:
        """Address of the globals dict of a function or bound method. Raises Nonsense for anything else."""
        return function_globals(self.heap, function)

    def closure_of(self, function: int) -> dict[str, int]:
        """Free variables of a function or bound method to their objects. Raises Nonsense for anything else."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            return closure(self.heap, function)

    def content_of(self, address: int) -> int:
        """The object behind a variable: what a cell holds (0: nothing yet), every other object itself."""
        return content(self.heap, address)

    def modules(self, names: Collection[str] = ()) -> dict[str, int]:
        """sys.modules: name -> module object, found from the interpreter's own state, so without any frame; of `names` only those."""
        with self.memory.limited(CALL_BYTES, CALL_SECONDS):
            found = _dicts.pairs(self.heap, self._modules_dict())
            return _dicts.find_strs(self.heap, found, names) if names else _dicts.named(self.heap, found, _MODULES_LIMIT)

    def _modules_dict(self) -> int:
        state = self.memory.word(self.interpreter.runtime + self.heap.layout.interpreters_head)
        expected = self.memory.word(state + self.heap.layout.interp_modules)
        if self._holds_modules(expected):
            return expected
        # a private struct: another build may have moved it, and what it holds tells it apart from every other dict
        for word in self.memory.words(state, _STATE_WORDS):
            if self._holds_modules(word):
                return word
        raise Nonsense(state, "sys.modules")

    def _holds_modules(self, address: int) -> bool:
        try:
            if self.heap.type_of(address).kind != "dict":
                return False
            found = _dicts.find_strs(self.heap, _dicts.pairs(self.heap, address), ("sys", "builtins"))
            return len(found) == 2 and all(self.heap.type_of(module).kind == "module" for module in found.values())
        except Unreadable:
            return False
