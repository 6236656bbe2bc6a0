"""One file of evidence on its way to the disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import msgspec

from forensics.model import Evidence

if TYPE_CHECKING:
    from forensics.bundle.redact import Redacting


class Ledger(Protocol):
    """What a stream needs of the bundle that it belongs to."""

    redactor: Redacting

    def spend(self, wanted: int) -> int: ...
    def finish(self, record: Evidence, counts: Mapping[str, int]) -> None: ...
    def trouble(self, error: OSError, path: str) -> None: ...
    def budget_spent(self, path: str) -> None: ...


class EvidenceStream:
    """One file of evidence being written. Nothing here raises for a full disk: the record says `truncated` instead."""

    def __init__(self, writer: Ledger, record: Evidence, fd: int | None) -> None:
        self._writer = writer
        self._record = record
        self._fd = fd
        self._cut = fd is None
        self._size = 0
        self._hash = hashlib.sha256()
        self._redaction = writer.redactor.stream(record.kind, record.path)
        self._done = False
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """The path in the bundle."""
        return self._record.path

    def write(self, data: bytes) -> None:
        """Redact and append. After a failed write or beyond the bundle's bound the rest is dropped and recorded."""
        with self._lock:
            if not self._cut and not self._done:
                self._put(self._redaction.feed(data))

    def close(self, *, truncated: bool = False) -> Evidence:
        """End the file and return its record; a second call returns the same record."""
        with self._lock:
            if not self._done:
                self._done = True
                self._end(truncated)
            return self._record

    def _end(self, truncated: bool) -> None:
        if not self._cut:
            self._put(self._redaction.finish())
        counts = self._redaction.counts
        self._record = msgspec.structs.replace(
            self._record,
            size_bytes=self._size,
            sha256=self._hash.hexdigest() if self._fd is not None else "",
            truncated=truncated or self._cut or self._redaction.truncated,
            redactions=sum(counts.values()),
        )
        if self._fd is not None:
            close_all((self._fd,))
        self._writer.finish(self._record, counts)

    def _put(self, data: bytes) -> None:
        granted = self._writer.spend(len(data))
        view = memoryview(data)[:granted]
        try:
            while view and self._fd is not None:
                written = os.write(self._fd, view)
                self._hash.update(view[:written])  # only what is really on disk: the sum of a cut file must hold too
                self._size += written
                view = view[written:]
        except OSError as error:
            self._cut = True
            self._writer.trouble(error, self._record.path)
        if granted < len(data):
            self._cut = True
            self._writer.budget_spent(self._record.path)

    def __enter__(self) -> EvidenceStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close(truncated=kind is not None)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):  # some filesystems report a full disk only here; the data is lost or not either way
            os.close(fd)
