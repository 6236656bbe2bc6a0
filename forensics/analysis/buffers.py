"""The content of one file of evidence as something that parsers can slice and search, whatever its size and wherever it lies."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from forensics.bundle._spool import spooled

MEMORY_BYTES = 48 * 1024 * 1024
"""A larger file is not held in memory."""
WINDOW_BYTES = 1024 * 1024


class FileBuffer:
    """A file read where it lies. Unlike a map it survives that somebody truncates the file meanwhile: what is gone reads as empty."""

    def __init__(self, fd: int) -> None:
        """Takes `fd` over."""
        self._fd = fd
        self._size = os.fstat(fd).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, step = part.indices(self._size)
        data = os.pread(self._fd, max(0, stop - start), start)
        while len(data) < stop - start and (more := os.pread(self._fd, stop - start - len(data), start + len(data))):
            data += more  # a single call reads 2 GiB at most
        return data if step == 1 else data[::step]

    def __bytes__(self) -> bytes:
        return self[:]

    def find(self, what: bytes, start: int = 0, stop: int | None = None) -> int:
        start, stop, _ = slice(start, stop).indices(self._size)
        while start < stop:
            data = self[start : min(stop, start + WINDOW_BYTES + len(what) - 1)]
            if not data:
                return -1
            if (at := data.find(what)) >= 0:
                return start + at
            start += WINDOW_BYTES
        return -1

    def rfind(self, what: bytes, start: int = 0, stop: int | None = None) -> int:
        start, stop, _ = slice(start, stop).indices(self._size)
        window = 4096  # mostly the beginning of a line is looked for
        while start < stop:
            begin = max(start, stop - window)
            if (at := self[begin:stop].rfind(what)) >= 0:
                return begin + at
            if begin == start:
                return -1
            stop = begin + len(what) - 1
            window = WINDOW_BYTES
        return -1

    def __del__(self) -> None:
        os.close(self._fd)


Buffer = bytes | mmap.mmap | FileBuffer


def buffer_of(handle: BinaryIO, notes: list[str], name: str) -> Buffer:
    """All that `handle` yields from its beginning. What does not fit anywhere is said in `notes`."""
    try:
        fd = handle.fileno()
    except (OSError, AttributeError):  # unpacked on the way
        fd = -1
    if fd >= 0 and os.fstat(fd).st_size > MEMORY_BYTES:
        return FileBuffer(os.dup(fd))
    head = handle.read(MEMORY_BYTES + 1)
    return head if len(head) <= MEMORY_BYTES else spool(itertools.chain((head,), rest_of(handle)), notes, name)


def rest_of(handle: BinaryIO) -> Iterator[bytes]:
    """What is left of a handle, in pieces."""
    while data := handle.read(WINDOW_BYTES):
        yield data


def spool(pieces: Iterable[bytes], notes: list[str], name: str) -> Buffer:
    """Keep pieces in an unlinked temporary file, bounded by the space that is free for those."""
    fd, lost = spooled(pieces)
    if lost:
        notes.append(f"{name}: {lost}")
    return FileBuffer(fd)
