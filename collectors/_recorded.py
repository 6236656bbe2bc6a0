"""Installed files against the record of their own package: RECORD of *.dist-info (PEP 376, 427), a hash and a size for each file.

Within bounds of bytes and seconds, likely places first: what is newer than the record, then Python sources, then the rest as far as asked.
What was not read is counted as not read, never as unchanged.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from collectors._contract import os_error_outcome, resolve_in_root

BLOCK_BYTES = 1 << 20
SMALL_BYTES = 1 << 20
LISTED = 200
"""Files that are listed of each kind; all are counted."""
WALKED = 200_000
"""Entries of folders that are looked at for files that no record names."""
ALGORITHMS = ("sha256", "sha384", "sha512")
"""What a record may use (PEP 427: sha256 or better)."""
LATER_NS = 1_000_000_000


class Row(NamedTuple):
    path: str
    algorithm: str
    digest: str
    size: int | None


class Budget:
    """What may be read, and until when, over all distributions together. Files that several environments share are hashed once."""

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self.left = max_bytes
        self.until = time.monotonic() + seconds
        self.cut = ""
        self.digests: dict[tuple[int, int, int, int, str], str] = {}

    def spent(self) -> bool:
        if not self.cut and time.monotonic() > self.until:
            self.cut = "no time left"
        return bool(self.cut)

    def digest(self, path: str, s: os.stat_result, algorithm: str) -> str | None:
        """Hash of a regular file as a record writes it; None when the budget does not reach. Raises OSError."""
        key = (s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size, algorithm)
        if key in self.digests:
            return self.digests[key]
        if self.spent():
            return None
        if s.st_size > self.left:
            self.cut = "no bytes left"
            return None
        hasher = hashlib.new(algorithm)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while block := os.read(fd, BLOCK_BYTES):
                hasher.update(block)
                self.left -= len(block)
                if self.spent():
                    return None
        finally:
            os.close(fd)
        self.digests[key] = base64.urlsafe_b64encode(hasher.digest()).rstrip(b"=").decode()
        return self.digests[key]


def rows(record: bytes) -> list[Row]:
    """The files of a record, without bytecode, the package's own metadata, and what lies outside of the folder (scripts)."""
    found = []
    for fields in csv.reader(io.StringIO(record.decode("utf-8", "surrogateescape"), newline="")):
        path = fields[0] if fields else ""
        if path.endswith(".pyc") or path.startswith(("/", "..")) or not path or path.partition("/")[0].endswith((".dist-info", ".data")):
            continue
        algorithm, _, digest = fields[1].partition("=") if len(fields) > 1 else ("", "", "")
        size = int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None
        found.append(Row(path, algorithm, digest.rstrip("="), size))
    return found


class Check:
    """One distribution: `look` at all its files, `work` through what is to be hashed, then `result`."""

    def __init__(self, root: str, folder: str, record: bytes, record_ns: int) -> None:
        self.root, self.folder, self.record_ns = root, folder, record_ns
        self.rows = rows(record)
        self.named = [row for row in self.rows if row.algorithm in ALGORITHMS]
        self.hashed = self.sources_hashed = self.differing = 0
        self.unread = 0
        """Files that were to be hashed and were not."""
        self.found: dict[str, list[dict[str, Any]]] = {"modified": [], "missing": [], "added": []}
        self.walked, self.denied = True, ""
        self._folders: dict[str, str] = {}
        self.todo: list[tuple[int, int, Row, str, os.stat_result]] = []

    def look(self, own: bool, everything: bool) -> None:
        """Compare existence and size of every file, and set apart what is to be hashed.

        Always what is newer than the record, and Python sources; of the engine's `own` package small files of any kind as well (tables,
        kernels); libraries and the tens of thousands of headers and test programs of torch only where `everything` is asked for.
        """
        for row in self.named:
            try:
                where = self._place(row.path)
                s = os.stat(where)
            except (FileNotFoundError, NotADirectoryError):
                self._note("missing", row.path)
                self._count(row)
                continue
            except OSError as error:
                self.denied = self.denied or os_error_outcome(error)[1]
                continue
            if row.size is not None and s.st_size != row.size:
                self._note("modified", row.path, s)
                self._count(row)
                continue
            newer = s.st_mtime_ns > self.record_ns + LATER_NS
            source, library = row.path.endswith(".py"), ".so" in row.path.rpartition("/")[2]
            small = own and not library and s.st_size <= SMALL_BYTES
            if stat.S_ISREG(s.st_mode) and (newer or source or small or everything):
                self.todo.append((0 if newer else 1 if source else 3 if library else 2, s.st_size, row, where, s))
        self.todo.sort(key=lambda item: item[:2])

    def work(self, level: int, budget: Budget) -> None:
        """Hash the files of one level of urgency."""
        for urgency, _, row, where, s in self.todo:
            if urgency == level:
                try:
                    digest = budget.digest(where, s, row.algorithm)
                except OSError as error:
                    self.denied = self.denied or os_error_outcome(error)[1]
                    continue
                if digest is None:
                    self.unread += 1
                    continue
                self._count(row)
                if digest != row.digest:
                    self._note("modified", row.path, s)

    def seek_added(self, budget: Budget, elsewhere: Callable[[], set[str]]) -> None:
        """Python files inside its packages that no record of the folder names: `elsewhere` gives what the other records name."""
        own = {row.path for row in self.rows}
        tops = {path.partition("/")[0] for path in own if path.endswith("/__init__.py")}
        strangers = [(path, s) for top in sorted(tops) for path, s in self._sources(top, budget) if path not in own]
        others = elsewhere() if strangers else set()
        for path, s in strangers:
            if path not in others:
                self._note("added", path, s)

    def _sources(self, top: str, budget: Budget) -> Iterator[tuple[str, os.stat_result]]:
        base, seen = self._place(top), 0
        for folder, inner, files in os.walk(base, onerror=self._unread):
            inner[:] = [name for name in inner if name != "__pycache__"]
            seen += len(files) + 1
            if seen > WALKED or time.monotonic() > budget.until:
                self.walked = False
                return
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        yield os.path.join(top, os.path.relpath(path, base)), os.lstat(path)
                    except OSError as error:
                        self._unread(error)

    def _unread(self, error: OSError) -> None:
        self.walked, self.denied = False, self.denied or os_error_outcome(error)[1]

    def _place(self, path: str) -> str:
        """Where a file of the folder lies for us, links of its folders and its own resolved inside the process's root."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = resolve_in_root(self.root, f"{self.folder}/{folder}")
        where = f"{self._folders[folder]}/{name}"
        return resolve_in_root(self.root, f"{self.folder}/{path}") if self.root and os.path.islink(where) else where

    def _count(self, row: Row) -> None:
        self.hashed += 1
        self.sources_hashed += row.path.endswith(".py")

    def _note(self, what: str, path: str, s: os.stat_result | None = None) -> None:
        self.differing += 1
        if len(self.found[what]) < LISTED:
            times = {"mtime_ns": s.st_mtime_ns, "ctime_ns": s.st_ctime_ns, "size": s.st_size} if s else {}
            self.found[what].append({"path": path, **times})

    def result(self, budget: Budget) -> dict[str, Any]:
        sources = sum(row.path.endswith(".py") for row in self.named)
        cut = self.denied or (budget.cut if self.unread else "") or ("" if self.walked else "no time left to look for added files")
        counts = {"named": len(self.named), "hashed": self.hashed, "sources": sources, "sources_hashed": self.sources_hashed}
        return {**counts, **self.found, "differing": self.differing, "walked": self.walked, "cut": cut}
