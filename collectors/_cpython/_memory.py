"""Bounded reads of another process's memory through /proc/PID/mem: no stop, no signal, no attach.

The kernel checks the right to trace (PTRACE_MODE_ATTACH) once, when the file is opened, and the descriptor stays bound to the address
space it was opened on: when the process ends or executes another program, reads return nothing and never another program's memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections.abc import Iterator

from collectors._cpython._errors import Denied, Gone, OutOfBounds, Unreadable

LOWEST_ADDRESS = 0x1000
HIGHEST_ADDRESS = 1 << 56
"""User space of x86-64 with five-level page tables; above it a pointer is nonsense."""
READ_LIMIT_BYTES = 16 << 20
"""Of one read, so that a garbage length cannot ask for the memory of the machine."""
FOREVER = float("inf")

_WORD = struct.Struct("<Q")
_SIGNED = struct.Struct("<q")


class Memory:
    """Memory of one process. All numbers little-endian; every method raises Unreadable, Gone or OutOfBounds."""

    def __init__(self, pid: int, sysroot: str = "") -> None:
        self.pid = pid
        self.bytes_read = 0
        self.reads = 0
        self._bytes_left = FOREVER
        self._until = FOREVER
        self._record: list[tuple[int, bytes]] | None = None
        path = f"{sysroot}/proc/{pid}/mem"
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise Denied(f"not permitted to read the memory of process {pid}") from error
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
                raise Gone(f"no process {pid}: it is gone, or the pid is of another namespace") from error
            raise Denied(f"{path}: {error.strerror}") from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def limited(self, nbytes: float, seconds: float) -> Iterator[None]:
        """Bound what is read inside; a bound around this one stays in force."""
        bytes_left, until, began = self._bytes_left, self._until, self.bytes_read
        self._bytes_left = min(bytes_left, nbytes)
        self._until = min(until, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._bytes_left, self._until = bytes_left - (self.bytes_read - began), until

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes at `address`."""
        if not LOWEST_ADDRESS <= address < HIGHEST_ADDRESS or not 0 <= size <= READ_LIMIT_BYTES:
            raise Unreadable(address, size)
        self._spend(size)
        data = self._pread(address, size)
        if self._record is not None:
            self._record.append((address, data))
        return data

    def word(self, address: int) -> int:
        """The unsigned 64-bit word at `address`: a pointer, or a size."""
        value: int = _WORD.unpack(self.read(address, 8))[0]
        return value

    def signed(self, address: int) -> int:
        value: int = _SIGNED.unpack(self.read(address, 8))[0]
        return value

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def c_string(self, address: int, limit: int = 256) -> bytes:
        """A zero-terminated string of at most `limit` bytes; longer ones are cut."""
        out = b""
        while len(out) < limit:
            # never across a page: the next one need not exist
            piece = self.read(address + len(out), min(limit - len(out), 64, 4096 - (address + len(out)) % 4096))
            text, zero, _ = piece.partition(b"\0")
            out += text
            if zero:
                break
        return out

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Remember every read inside, for `changed`."""
        self._record = []
        try:
            yield
        finally:
            self._record = None

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """For what changes without meaning anything: flags and caches inside type objects."""
        record, self._record = self._record, None
        try:
            yield
        finally:
            self._record = record

    def changed(self) -> bool:
        """Inside `recorded`: whether anything that was read so far reads differently now.

        When nothing does, everything that was read stood so at one same moment (that between the last first read and the first
        second one), unless it changed and changed back.
        """
        try:
            return any(self._pread(address, len(data)) != data for address, data in self._record or ())
        except Unreadable:
            return True

    def _spend(self, size: int) -> None:
        self.reads += 1
        self.bytes_read += size
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise OutOfBounds("the bound of bytes was reached")
        if time.monotonic() > self._until:
            raise OutOfBounds("the bound of time was reached")

    def _pread(self, address: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, address)
        except OSError as error:
            if error.errno == errno.ESRCH:
                raise Gone(f"process {self.pid} ended while it was read") from error
            raise Unreadable(address, size) from error
        if len(data) < size:
            # end of file at any address: the address space has no user any more (proc(5), mem_rw in fs/proc/base.c)
            if not data and size:
                raise Gone(f"process {self.pid} ended while it was read")
            raise Unreadable(address + len(data), size - len(data))
        return data
