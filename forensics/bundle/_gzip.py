"""Read a gzip file of many members forward once, and from any point again later; survive a cut, a damaged spot and a bomb.

Positions are *logical*: bytes of decompressed content as far as it could be read. Checkpoints (a member's start, or a copy of the
decompressor) lead back to a position without starting over, so nothing is unpacked to disk and nothing large is held in memory.
"""

from __future__ import annotations

import bisect
import io
import os
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

TOTAL_LIMIT_BYTES = 4 * 1024**3
"""Decompressed bytes that are read of one archive. A full capture is bounded to an eighth of it."""
RATIO_LIMIT = 300
"""Decompressed to compressed, once more than RATIO_FREE_BYTES came out. Real logs reach 20 to 100, zeros 1000, and at
the level that we pack with even zeros stay below 230: no bundle of ours can look like a bomb."""
RATIO_FREE_BYTES = 256 * 1024**2
MAX_CHECKPOINTS = 50_000
_SPACING = 4 * 1024**2
_COPIES = 48
_IN = 128 * 1024
_FIRST_IN = 2048
"""How much is read of a member at first: what belongs to the next one is read again, and a hostile file has very many."""
_OUT = 512 * 1024
_MAGIC = b"\x1f\x8b\x08"


class Stream(Protocol):
    """Bytes that are read forward. `problem` says why they ended early; after a gap, `resume` goes on behind the damage."""

    offset: int
    problem: str

    def read(self, size: int) -> bytes: ...
    def resume(self) -> bool: ...
    def open_at(self, offset: int, size: int) -> io.RawIOBase: ...


class _Checkpoint(NamedTuple):
    logical: int
    compressed: int
    state: Any
    """A decompressor to copy, or None where a member begins."""


class PlainStream:
    """An uncompressed file with the interface of GzipStream."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.offset = 0
        self.problem = ""

    def read(self, size: int) -> bytes:
        data = os.pread(self.fd, min(size, _OUT), self.offset)
        self.offset += len(data)
        return data

    def resume(self) -> bool:
        return False

    def open_at(self, offset: int, size: int) -> io.RawIOBase:
        other = PlainStream(self.fd)
        other.offset = offset
        return Slice(other, size)


class GzipStream:
    """The decompressed content of the gzip file behind `fd`. `sound(head)` recognises where content may start again after damage."""

    def __init__(self, fd: int, sound: Callable[[bytes], bool] = lambda head: False, origin: GzipStream | None = None) -> None:
        self.fd = fd
        self.offset = 0
        self.problem = ""
        self._sound = sound
        self._size = os.fstat(fd).st_size
        self._at = 0  # where the next compressed bytes come from
        self._member = 0  # where the current member began
        self._state: Any = None
        self._step = _FIRST_IN
        self._ready = b""
        self._taken = 0  # of what is ready
        self._checkpoints: list[_Checkpoint] = origin._checkpoints if origin else [_Checkpoint(0, 0, None)]
        self._recording = origin is None
        self._spacing = _SPACING
        self._made = 0  # logical end of what was decompressed; `offset` is the end of what was handed out

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; b"" at the end, before a gap, and where it was cut: `problem` tells."""
        while self._taken >= len(self._ready) and not self.problem:
            if not self._fill():
                return b""
        data = self._ready[self._taken : self._taken + size]
        self._taken += len(data)
        self.offset += len(data)
        return data

    def _fill(self) -> bool:
        """Decompress some more. False at the end or with a problem."""
        if self._state is None and not self._begin_member():
            return False
        chunk = os.pread(self.fd, self._step, self._at)
        self._step = min(self._step * 2, _IN)
        if not chunk:
            self.problem = "cut"
            return False
        before = self._state.copy()
        try:
            out = self._state.decompress(chunk, _OUT)
        except zlib.error:
            out = _trickle(before, chunk)
            self.problem = "damaged"
            self._state = None
            self._give(out)
            return bool(out)
        rest = self._state.unused_data if self._state.eof else self._state.unconsumed_tail
        self._at += len(chunk) - len(rest)
        self._give(out)
        if self._state.eof:
            self._state = None
        elif self._recording and self._made - self._checkpoints[-1].logical >= self._spacing:
            self._remember(self._state)
        return True

    def _give(self, out: bytes) -> None:
        self._ready, self._taken = out, 0
        self._made += len(out)
        if self._made > TOTAL_LIMIT_BYTES or (self._made > RATIO_FREE_BYTES and self._made > RATIO_LIMIT * max(self._at, 1)):
            self.problem = "bomb"

    def _begin_member(self) -> bool:
        head = os.pread(self.fd, 512, self._at)
        while head and not head.strip(b"\0"):  # padding between members and at the end, as tapes and some tools leave
            self._at += len(head)
            head = os.pread(self.fd, 512, self._at)
        if not head:
            return False
        self._at += len(head) - len(head.lstrip(b"\0"))
        if not head.lstrip(b"\0").startswith(_MAGIC[: len(head.lstrip(b"\0"))]):
            self.problem = "damaged"
            return False
        self._member, self._step = self._at, _FIRST_IN
        self._state = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        if self._recording:
            self._remember(None)
        return True

    def _remember(self, state: Any) -> None:
        points = self._checkpoints
        if state is None and points[-1].logical + 512 > self._made and points[-1].state is None and len(points) > 1:
            points.pop()  # a million empty members must not become a million checkpoints
        if len(points) >= MAX_CHECKPOINTS:
            return
        points.append(_Checkpoint(self._made, self._at, state.copy() if state else None))
        if state is None:
            return
        copies = [index for index, point in enumerate(points) if point.state is not None]
        if len(copies) > _COPIES:
            self._spacing *= 2
            for index in reversed(copies[::2]):
                del points[index]

    def resume(self) -> bool:
        """After damage: go on at the next member whose content is sound. False when there is none."""
        if self.problem != "damaged":
            return False
        at = self._member + 1
        while at < self._size:
            window = os.pread(self.fd, 1024 * 1024, at)
            found = window.find(_MAGIC)
            if found < 0:
                at += max(len(window) - 2, 1)
                continue
            at += found
            try:
                head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(os.pread(self.fd, 65536, at), 512)
            except zlib.error:
                head = b""
            if self._sound(head):
                self._at, self._state, self._ready, self._taken, self.problem = at, None, b"", 0, ""
                return True
            at += 1
        return False

    def open_at(self, offset: int, size: int) -> io.RawIOBase:
        """`size` bytes from the logical position `offset`, readable independently of this stream."""
        other = GzipStream(self.fd, origin=self)
        index = bisect.bisect_right(self._checkpoints, offset, key=lambda point: point.logical) - 1
        point = self._checkpoints[max(index, 0)]
        other._at, other._member, other._made, other.offset = point.compressed, point.compressed, point.logical, point.logical
        other._state = point.state.copy() if point.state else None
        while other.offset < offset and other.read(min(offset - other.offset, _OUT)):
            pass
        return Slice(other, size if other.offset == offset else 0)


def _trickle(state: Any, chunk: bytes) -> bytes:
    """What comes out of `chunk` before the spot that is damaged: zlib itself throws the whole output of a failed call away."""
    out = []
    try:
        for start in range(0, len(chunk), 64):
            out.append(state.decompress(chunk[start : start + 64]))
    except zlib.error:
        pass
    return b"".join(out)


class Slice(io.RawIOBase):
    """At most `size` bytes of a stream as a file object."""

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)
