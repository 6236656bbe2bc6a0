"""Open a single file as a file object, unpacked and bounded when rotation has compressed it."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

from forensics.bundle._gzip import RATIO_FREE_BYTES, RATIO_LIMIT, GzipStream, PlainStream
from forensics.bundle._names import printable

ITEM_LIMIT_BYTES = 16 * 1024 * 1024 * 1024
XZ_MEMORY_BYTES = 128 * 1024 * 1024
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
ZSTD_WINDOW_BYTES = 128 * 1024 * 1024
_ZSTD_IN = 4096
"""So little that what a hostile file makes of it fits in the memory: a block of 128 KiB takes four bytes."""
_IN = 64 * 1024


def opens_with(head: bytes) -> str | None:
    """The compression that the first bytes of a file announce, or None."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def inflating(fd: int, kind: str | None, losses: list[str], name: str, *, own: bool = False) -> BinaryIO:
    """The content of the file behind `fd`, with a position of its own. What ends it early (a bound, damage) goes to `losses`.

    With `own`, `fd` is closed with the file object.
    """
    return io.BufferedReader(_Inflating(fd, kind, losses, printable(name), own), 128 * 1024)


class _Inflating(io.RawIOBase):
    def __init__(self, fd: int, kind: str | None, losses: list[str], name: str, own: bool) -> None:
        self._fd, self._losses, self._name, self._own = fd, losses, name, own
        self._source: Any = PlainStream(fd) if kind is None else GzipStream(fd) if kind == "gzip" else _BlockStream(fd, kind)
        self._limit = ITEM_LIMIT_BYTES if kind else os.fstat(fd).st_size
        self._packed = kind is not None
        self._made = 0

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Of a file that is not packed: whoever reads it by position needs no copy."""
        if self._packed:
            raise OSError("a packed file has no place of its own")
        return self._fd

    def readinto(self, buffer: Any) -> int:
        if self._made >= self._limit:
            if self._packed:
                self._lost(f"only the first {ITEM_LIMIT_BYTES >> 20} MiB were unpacked")
            return 0
        data = self._source.read(min(len(buffer), self._limit - self._made))
        buffer[: len(data)] = data
        self._made += len(data)
        if not data and self._source.problem:
            why = {
                "cut": "the file is cut",
                "damaged": "the file is damaged",
                "bomb": "it unpacks to far more than it should (a bomb)",
                "unknown": "nothing here reads its packing; cure: unpack it",
            }
            self._lost(f"unpacked up to byte {self._made}, then {why[self._source.problem]}")
        return len(data)

    def _lost(self, what: str) -> None:
        sentence = f"{self._name}: {what}"
        if sentence not in self._losses:
            self._losses.append(sentence)

    def close(self) -> None:
        if not self.closed and self._own:
            os.close(self._fd)
        super().close()


class _BlockStream:
    """xz, bzip2 and zstd, forward only."""

    def __init__(self, fd: int, kind: str) -> None:
        self._fd = fd
        self._make: Callable[[], Any] = {"xz": _xz, "bzip2": bz2.BZ2Decompressor, "zstd": _zstd}[kind]
        self._state: Any = self._make()
        self._at = 0
        self._made = 0
        self._pending = b""
        self.problem = ""

    def read(self, size: int) -> bytes:
        while not self.problem:
            if self._state.eof:  # several streams in one file are allowed; padding behind the last is not another
                self._pending = self._state.unused_data or os.pread(self._fd, _IN, self._at)
                if not self._pending.strip(b"\0"):
                    return b""
                if not self._state.unused_data:
                    self._at += len(self._pending)
                self._state = self._make()
            if self._state.needs_input and not self._pending:
                self._pending = os.pread(self._fd, _IN, self._at)
                self._at += len(self._pending)
                if not self._pending:
                    self.problem = "cut"
                    break
            try:
                out: bytes = self._state.decompress(self._pending, size)
            except (lzma.LZMAError, OSError, EOFError, zlib.error, MemoryError):
                self.problem = "damaged"
                break
            except ImportError:
                self.problem = "unknown"
                break
            self._pending = b""
            self._made += len(out)
            if self._made > RATIO_FREE_BYTES and self._made > RATIO_LIMIT * self._at:
                self.problem = "bomb"
            if out:
                return out
        return b""


def _xz() -> Any:
    return lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)


def _zstd() -> Any:
    return _Zstd()


class _Zstd:
    """zstd with the interface of the standard library's decompressors: by its own module from 3.14, else by `zstandard`."""

    def __init__(self) -> None:
        self._state: Any = None
        self._queue = b""
        self._out = b""
        self.eof = False
        self.unused_data = b""

    @property
    def needs_input(self) -> bool:
        return not self._queue and not self._out

    def decompress(self, data: bytes, size: int) -> bytes:
        """At most `size` bytes. Raises EOFError for damage and ImportError where nothing here reads zstd."""
        if self._state is None:
            self._state, self._errors = _zstd_library()
        self._queue += data
        while not self._out and self._queue and not self._state.eof:
            part, self._queue = self._queue[:_ZSTD_IN], self._queue[_ZSTD_IN:]
            try:
                self._out = self._state.decompress(part)
            except self._errors as error:
                raise EOFError(str(error)) from error
        out, self._out = self._out[:size], self._out[size:]
        if self._state.eof and not self._out:
            self.eof = True
            self.unused_data = self._state.unused_data + self._queue
            self._queue = b""
        return out


def _zstd_library() -> tuple[Any, type[Exception]]:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor(), zstd.ZstdError
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj(), zstandard.ZstdError
