"""The frames of a thread as its own memory shows them: what code they run, on whose globals, and which `with` blocks they are in.

Whoever enters `with X:` keeps the bound method `X.__exit__` on the value stack of its frame until it leaves the block. It was taken from
the very object that was entered, whatever the name X means by now: that method, in a slot that is still in use, is the proof of entry.
Which slots are in use is not stored while a frame runs. 3.10 keeps a stack of its open blocks; from 3.11 on the exception table of the
code says how many slots an exception at this instruction would leave: these hold the managers of all blocks that the frame is in.

Offsets: printed by C programs against the headers of 3.10.13, 3.11.7, 3.12.1 and 3.13.0 (pycore_frame.h, frameobject.h, code.h).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from collectors._cpython import _containers, _scalars, _shapes
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, Unreadable, Unsupported
from collectors._cpython._heap import Heap

STATES_MAX = 8192
FRAMES_MAX = 2000
"""Of one thread, innermost first."""
STACK_MAX = 4096
"""Slots of one frame: a plausible number of variables, or of values."""
WORDS_MAX, WORD_CHARS = 4000, 64
"""Names or constants of one code object, and the length of one."""
_BUILTIN_NAME = 16
"""Of a builtin method: m_ml, whose first word is the name; m_self follows it."""
_OWNED_BY_C = 3
"""FRAME_OWNED_BY_CSTACK, from 3.12 on: a frame between two runs of the interpreter, which runs nothing itself."""


class _At(NamedTuple):
    """Offsets that nothing publishes. The defaults are those of 3.13."""

    globals: int = 24
    function: int = 16
    owner: int = 70
    """0: no such field, or none that matters."""
    variables: int = 72
    """Of a code object: co_nlocalsplus, behind which in a frame the value stack begins; in 3.10 co_nlocals."""
    names: int = 32
    constants: int = 24
    exceptions: int = 40
    filename: int = 112
    name: int = 120


_AT = {
    (3, 10): _At(globals=48, function=0, owner=0, variables=28, names=64, constants=56, exceptions=0, filename=104, name=112),
    (3, 11): _At(globals=8, function=0, owner=0, variables=76),
    (3, 12): _At(),
    (3, 13): _At(),
}
_BACK_310, _STACK_310, _OPEN_310, _BLOCKS_310, _VARIABLES_310 = 24, 64, 104, 112, 352
"""Of a frame object: f_back, f_valuestack, f_iblock, f_blockstack, f_localsplus."""
_BLOCK_BYTES_310, _BLOCKS_MAX_310, _CELLVARS_310 = 12, 20, 88


class Entry(NamedTuple):
    """A `with` block that a frame is in."""

    manager: int
    """The object that was entered."""
    method: int
    """Its bound `__exit__`: made at this entry and kept until the end of the block."""


class Running(NamedTuple):
    """A frame that has begun and not ended."""

    address: int
    code: int
    globals: int
    """Address of its dict of global variables."""
    entered: tuple[Entry, ...]
    """Outermost first."""


class Frames:
    """Frames of one process in one look: what code objects say is remembered."""

    def __init__(self, heap: Heap, runtime: int) -> None:
        """Raises Unsupported for a version whose frames are not known."""
        self.heap, self.memory, self.layout = heap, heap.memory, heap.layout
        if self.layout.version not in _AT:
            raise Unsupported("CPython {}.{}: its frames are not known".format(*self.layout.version))
        self.at = _AT[self.layout.version]
        self._runtime = runtime
        self._tables: dict[int, tuple[int, tuple[tuple[int, int, int], ...]]] = {}
        self._names: dict[int, tuple[str, str]] = {}
        self._words: dict[int, frozenset[str]] = {}

    def states(self) -> dict[int, int]:
        """Thread ident -> address of its state, of every thread that Python knows."""
        state = self.memory.word(self._runtime + self.layout.interpreters_head)
        found: dict[int, int] = {}
        thread = self.memory.word(state + self.layout.threads_head)
        while thread and len(found) < STATES_MAX:
            ident = self.memory.word(thread + self.layout.thread_ident)
            if ident in found:  # a list that changed under us
                raise Nonsense(thread, "list of threads")
            found[ident] = thread
            thread = self.memory.word(thread + self.layout.thread_next)
        return found

    def of(self, state: int) -> list[Running]:
        """The frames of a thread, innermost first. Of one that runs, they may be of two moments."""
        found: list[Running] = []
        frame = self.memory.word(state + self.layout.thread_frame)
        if frame and self.layout.version in ((3, 11), (3, 12)):
            frame = self.memory.word(frame + self.layout.cframe_frame)
        size = _VARIABLES_310 if self.layout.version < (3, 11) else self.layout.frame_variables
        while frame and len(found) < FRAMES_MAX:
            raw = self.memory.read(frame, size)
            if not self.at.owner or raw[self.at.owner] != _OWNED_BY_C:
                code = _word(raw, self.layout.frame_code)
                kept = self._kept_310(raw) if self.layout.version < (3, 11) else self._kept(frame, raw, code)
                found.append(Running(frame, code, _word(raw, self.at.globals), tuple(self._entered(kept))))
            frame = _word(raw, self.layout.frame_previous)
        return found

    def names_of(self, code: int) -> tuple[str, str]:
        """(name without the class, file) of a code object."""
        if code not in self._names:
            name, file = self.memory.word(code + self.at.name), self.memory.word(code + self.at.filename)
            self._names[code] = _scalars.read_str(self.heap, name, 512), _scalars.read_str(self.heap, file, 4096)
        return self._names[code]

    def words_of(self, code: int) -> frozenset[str]:
        """Every global, attribute and short text that a code object itself mentions. Raises Nonsense where there are too many."""
        if code not in self._words:
            found = set()
            for held in (self.memory.word(code + self.at.names), self.memory.word(code + self.at.constants)):
                if self.heap.size(held) > WORDS_MAX:
                    raise Nonsense(code, "code object of a sensible size")
                for word in _containers.sequence(self.heap, held, "tuple"):
                    if self.heap.type_of(word).kind == "str" and _scalars.str_length(self.heap, word) < WORD_CHARS:
                        found.add(_scalars.read_str(self.heap, word))
            self._words[code] = frozenset(found)
        return self._words[code]

    def shared_by(self, frame: Running) -> dict[str, int]:
        """Variables that a frame shares with functions around it (in 3.10 also inside it): name to the object that is bound now."""
        if self.layout.version >= (3, 11):
            function = self.memory.word(frame.address + self.at.function)
            return _shapes.closure(self.heap, function) if self.heap.type_of(function).kind == "function" else {}
        names: list[int] = []
        for offset in (_CELLVARS_310, self.layout.code_names):
            names += _containers.sequence(self.heap, self.memory.word(frame.code + offset), "tuple")
        first = frame.address + _VARIABLES_310 + 8 * self._count(frame.code)
        cells = self.memory.words(first, len(names))
        bound = {_scalars.read_str(self.heap, name): self._content(cell) for name, cell in zip(names, cells, strict=True) if cell}
        return {name: value for name, value in bound.items() if value}

    def values_of(self, frame: Running) -> list[int]:
        """What its variables hold, cells looked into."""
        first = frame.address + (_VARIABLES_310 if self.layout.version < (3, 11) else self.layout.frame_variables)
        held = self.memory.words(first, self._count(frame.code))
        return [value for address in held if address and (value := self._content(address))]

    def method_of(self, address: int) -> tuple[str, int] | None:
        """(name, object that it is bound to) of a bound method; None for anything else."""
        try:
            kind = self.heap.type_of(address)
            if kind.written == "builtin_function_or_method":
                described, owner = self.memory.words(address + _BUILTIN_NAME, 2)
                return self.memory.c_string(self.memory.word(described), 64).decode("ascii", "replace"), owner
            if kind.kind == "method":
                function, owner = self.memory.words(address + at.METHOD_FUNCTION, 2)
                return _shapes.function_name(self.heap, function).rpartition(".")[2], owner
        except Unreadable:
            pass
        return None

    def _content(self, address: int) -> int:
        try:
            return _shapes.content(self.heap, address)
        except Unreadable:
            return 0

    def _count(self, code: int) -> int:
        count = int.from_bytes(self.memory.read(code + self.at.variables, 4), "little")
        if count > STACK_MAX:
            raise Nonsense(code, "code object")
        return count

    def _entered(self, kept: Iterable[int]) -> Iterator[Entry]:
        for slot in kept:
            method = self.method_of(slot) if slot else None
            if method and method[0] == "__exit__" and method[1]:
                yield Entry(method[1], slot)

    def _kept_310(self, raw: bytes) -> Iterator[int]:
        """What lies on the value stack right below the levels of the open blocks."""
        count, stack = min(int.from_bytes(raw[_OPEN_310 : _OPEN_310 + 4], "little"), _BLOCKS_MAX_310), _word(raw, _STACK_310)
        ends = (_BLOCKS_310 + _BLOCK_BYTES_310 * (number + 1) for number in range(count))
        levels = {int.from_bytes(raw[end - 4 : end], "little") for end in ends}
        for level in sorted(levels):
            if 0 < level <= STACK_MAX:
                yield self.memory.word(stack + 8 * (level - 1))

    def _kept(self, frame: int, header: bytes, code: int) -> tuple[int, ...]:
        """What an exception at the present instruction would leave on the value stack."""
        if code not in self._tables:
            raw = _scalars.read_bytes(self.heap, self.memory.word(code + self.at.exceptions), limit=1 << 20)
            self._tables[code] = self._count(code), tuple(handlers(raw))
        variables, table = self._tables[code]
        offset = (_word(header, self.layout.frame_instr) - code - self.layout.code_start) // 2
        depth = next((depth for start, end, depth in table if start <= offset < end), 0)
        return () if not depth else self.memory.words(frame + self.layout.frame_variables + 8 * variables, min(depth, STACK_MAX))


def _word(raw: bytes, offset: int) -> int:
    return int.from_bytes(raw[offset : offset + 8], "little")


def handlers(table: bytes) -> Iterator[tuple[int, int, int]]:
    """(first instruction, the one after the last, depth of the stack that its handler begins with) of each range of an exception table.

    Numbers of six bits a byte, the highest first; Objects/exception_handling_notes.txt.
    """
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    for start, size, _, depth in zip(*[iter(numbers)] * 4, strict=False):
        yield start, start + size, depth >> 1
