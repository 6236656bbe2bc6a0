"""Code objects: what a function runs, wherever it came from.

`sha256` tells code apart by what it does: instructions as compiled, constants (nested functions among them), the names of what it uses
and its kinds of arguments. Where it lies (file, line), how its local variables are called, and what the interpreter has made of it since
do not count. It is one of CPython's minor version: another one compiles the same text to other instructions.
"""

from __future__ import annotations

import hashlib
import struct
from types import CodeType
from typing import Any, NamedTuple

from collectors._cpython import _containers, _scalars
from collectors._cpython import _layouts as at
from collectors._cpython._errors import Nonsense, Unsupported
from collectors._cpython._frames import _AT
from collectors._cpython._heap import Heap
from collectors._cpython._opcodes import as_compiled

CODE_BYTES = 1 << 20
OBJECTS_MAX = 20_000
"""Constants and names of one function, nested functions included."""
DEPTH_MAX = 40
TEXT_CHARS = 1 << 16
_COMPLEX_VALUE = 16
_CODE_310 = 48
"""Pointer to the bytes of the instructions, which nothing changes up to 3.10."""
_LINE = {(3, 10): 40, (3, 11): 72, (3, 12): 68, (3, 13): 68}
"""co_firstlineno."""
_COUNTS = {(3, 10): 16, (3, 11): 56, (3, 12): 52, (3, 13): 52}
"""co_argcount, co_posonlyargcount, co_kwonlyargcount."""
_QUALNAME = 128
"""From 3.11 on. All printed by C programs against the headers of 3.10.13, 3.11.7, 3.12.1 and 3.13.0."""


class Body(NamedTuple):
    """What of a code object counts."""

    counts: tuple[int, int, int]
    code: bytes
    exceptions: bytes
    names: tuple[Any, ...]
    constants: tuple[Any, ...]


class Code(NamedTuple):
    name: str
    """Qualified ("Spin.wait") from 3.11 on, bare in 3.10."""
    file: str
    line: int
    """Of its first decorator, else of `def`."""
    sha256: str
    """"" where it cannot be told; `why` says for what reason."""
    why: str


def read_code(heap: Heap, address: int) -> Code:
    """The code object at `address`. Raises Unreadable, and Unsupported for a version whose code objects are not known."""
    version = heap.layout.version
    if version not in _LINE:
        raise Unsupported("CPython {}.{}: its code objects are not known".format(*version))
    if heap.type_of(address).written != "code":
        raise Nonsense(address, "code object")
    place = _AT[version]
    name = _QUALNAME if version >= (3, 11) else place.name
    words = [heap.memory.word(address + offset) for offset in (name, place.filename)]
    text, file = (_scalars.read_str(heap, word, 4096) for word in words)
    line = int.from_bytes(heap.memory.read(address + _LINE[version], 4), "little", signed=True)
    reader = _Bodies(heap)
    try:
        body = reader.body(address, 0)
    except _Hidden as error:
        return Code(text, file, line, "", str(error))
    return Code(text, file, line, digest(body).hex(), "")


class _Hidden(Exception):
    """A part that counts cannot be read as it was compiled."""


class _Bodies:
    def __init__(self, heap: Heap) -> None:
        self.heap, self.version, self.at = heap, heap.layout.version, _AT[heap.layout.version]
        self.left = OBJECTS_MAX

    def body(self, address: int, depth: int) -> Body:
        memory = self.heap.memory
        counts = struct.unpack("<3i", memory.read(address + _COUNTS[self.version], 12))
        exceptions = b""
        if self.version < (3, 11):
            code = self._bytes(memory.word(address + _CODE_310))
        else:
            raw = memory.read(address + self.heap.layout.code_start, 2 * self._size(address, CODE_BYTES // 2))
            compiled = as_compiled(self.version, raw)
            if compiled is None:
                raise _Hidden("a debugger, a profiler or coverage has changed its instructions")
            code, exceptions = compiled, self._bytes(memory.word(address + self.at.exceptions))
        names, constants = (self.value(memory.word(address + offset), depth + 1) for offset in (self.at.names, self.at.constants))
        if not isinstance(names, tuple) or not isinstance(constants, tuple):
            raise Nonsense(address, "code object")
        return Body(counts, code, exceptions, names, constants)

    def _size(self, address: int, limit: int) -> int:
        size = self.heap.size(address)
        if size > limit:
            raise Nonsense(address, "code object of a sensible size")
        return size

    def _bytes(self, address: int) -> bytes:
        if self.heap.type_of(address).kind != "bytes":
            raise Nonsense(address, "code object")
        self._size(address, CODE_BYTES)
        return _scalars.read_bytes(self.heap, address, limit=CODE_BYTES)

    def value(self, address: int, depth: int) -> Any:
        """A constant, as Python itself would hold it; a nested function as its Body."""
        self.left -= 1
        if self.left < 0 or depth > DEPTH_MAX:
            raise Nonsense(address, "code object of a sensible size")
        heap, kind = self.heap, self.heap.type_of(address)
        if kind.written == "code":
            return self.body(address, depth)
        if kind.written == "ellipsis":
            return ...
        if kind.written == "complex":
            return complex(*struct.unpack("<2d", heap.memory.read(address + _COMPLEX_VALUE, 16)))
        if kind.kind == "NoneType":
            return None
        if kind.kind in ("bool", "int"):
            number = _scalars.read_int(heap, address)
            return bool(number) if kind.kind == "bool" else number
        if kind.kind == "float":
            return _scalars.read_float(heap, address)
        if kind.kind == "str":
            if _scalars.str_length(heap, address) > TEXT_CHARS:
                raise _Hidden(f"it holds a text of more than {TEXT_CHARS} characters")
            return _scalars.read_str(heap, address, TEXT_CHARS)
        if kind.kind == "bytes":
            return self._bytes(address)
        if kind.kind == "tuple":
            self._size(address, OBJECTS_MAX)
            return tuple(self.value(one, depth + 1) for one in _containers.sequence(heap, address, "tuple"))
        if kind.kind == "frozenset" and heap.memory.signed(address + at.SET_USED) == 0:
            return frozenset()
        if kind.kind == "frozenset":
            return frozenset(self.value(one, depth + 1) for one in _containers.set_members(heap, address))
        raise Nonsense(address, "constant of a function")


def compiled_body(code: CodeType) -> Body:
    """The same of a code object of our own: compiled here, never run."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    constants = tuple(compiled_body(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return Body(counts, code.co_code, getattr(code, "co_exceptiontable", b""), code.co_names, constants)


def digest(value: Any) -> bytes:
    """SHA-256 over a value and its kind: 1, True and 1.0 are three values, and so are 0.0 and -0.0."""
    if isinstance(value, Body):
        return _hash(b"code", *(digest(part) for part in value))
    if isinstance(value, tuple):
        return _hash(b"tuple", *map(digest, value))
    if isinstance(value, frozenset):
        return _hash(b"frozenset", *sorted(map(digest, value)))
    if isinstance(value, bytes):
        return _hash(b"bytes", value)
    if isinstance(value, str):
        return _hash(b"str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, float):
        return _hash(b"float", struct.pack("<d", value))
    if isinstance(value, complex):
        return _hash(b"complex", struct.pack("<2d", value.real, value.imag))
    if isinstance(value, int) and not isinstance(value, bool):
        return _hash(b"int", hex(value).encode())
    if value is None or value is ... or isinstance(value, bool):
        return _hash(b"constant", str(value).encode())
    raise TypeError(f"a function holds no constant of type {type(value).__name__}")


def _hash(kind: bytes, *parts: bytes) -> bytes:
    out = hashlib.sha256(kind)
    for part in parts:
        out.update(len(part).to_bytes(8, "little") + part)
    return out.digest()
