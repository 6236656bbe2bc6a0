"""What was opened: a source and its items, whatever they came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import BinaryIO

from forensics.bundle.manifest import Manifest
from forensics.model import Attempt, Evidence

READ_LIMIT_BYTES = 256 * 1024 * 1024
"""Default bound of Item.read."""
CUT_AT_CAPTURE = "was cut at capture"
"""End of the sentences about evidence that a bound cut before it ever reached the bundle: a loss, but no fault of the bundle."""


class Item:
    """One file of a source. `size` is that of the stored content; of a compressed bare file, the compressed size."""

    def __init__(self, name: str, size: int, mtime_ns: int, evidence: Evidence | None, opener: Callable[[], BinaryIO]) -> None:
        self.name = name
        self.size = size
        self.mtime_ns = mtime_ns
        self.evidence = evidence
        self._opener = opener

    def open(self) -> BinaryIO:
        """The content from its beginning; every call is independent. Raises OSError when a file has vanished meanwhile."""
        return self._opener()

    def read(self, limit: int = READ_LIMIT_BYTES) -> bytes:
        """At most `limit` bytes of the content."""
        with self.open() as file:
            return file.read(limit)

    def __repr__(self) -> str:
        return f"Item({self.name!r}, {self.size})"


class Source:
    """Something that was opened. Close it (or leave its `with` block) only when no item of it is being read any more."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.bundle = False
        """Whether this is a bundle at all, sealed or not."""
        self.sealed = False
        """Whether it is one, whole, with its manifest and its checksums (which `verify` compares)."""
        self.manifest: Manifest | None = None
        """Of a bundle that was never sealed: what was known at the start and what its journal says."""
        self.attempts: tuple[Attempt, ...] = ()
        self.losses: list[str] = []
        """What was lost, cut, denied or refused: sentences for people, free of control characters. May grow while items are read."""
        self.evidence: dict[str, Evidence] = {}
        """Every piece of evidence that the bundle speaks of, by its path, also those that are not there."""
        self.members: list[Item] = []
        self.own: dict[str, Item] = {}
        """Records of the bundle itself: manifest, checksums, attempts, journal."""
        self.fds: list[int] = []

    def items(self) -> Iterator[Item]:
        """Every readable piece of evidence, in stored order; records of the bundle itself are not among them."""
        yield from self.members

    def record(self, name: str, limit: int = READ_LIMIT_BYTES) -> bytes | None:
        """The content of one of the bundle's own records, or None."""
        item = self.own.get(name)
        try:
            return item.read(limit) if item else None
        except OSError:
            return None

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
