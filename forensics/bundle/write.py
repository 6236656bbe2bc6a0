"""Write a bundle as the evidence arrives: redacted on its way to the disk, hashed while written, bounded, never overwriting.

Half a directory can be read, half an archive cannot; so files land one by one, the manifest comes last, and packing is a
step of its own (forensics.bundle.pack). A full disk is a loss that gets recorded, not an error: what was written stays readable.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from forensics.bundle._names import ATTEMPTS, CHECKSUMS, JOURNAL, MANIFEST, OWN_FILES, RESERVE, safe_path, unique_path
from forensics.bundle._stream import EvidenceStream, close_all, write_all
from forensics.bundle.errors import BundleError
from forensics.bundle.manifest import SCHEMA, Manifest
from forensics.model import Attempt, Evidence, Outcome

if TYPE_CHECKING:
    from forensics.bundle.redact import Redacting

MAX_BYTES = 512 * 1024 * 1024
"""Default bound of one bundle's evidence, after redaction and before compression."""
MIN_FREE_BYTES = 2 * 1024 * 1024
"""Below this nothing useful fits, and the node itself is about to fail for lack of space: we do not take the rest."""
RESERVE_BYTES = 512 * 1024
"""Held by a file of zeros and given back when the disk fills up, so that the attempts and the manifest still fit."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BundleWriter:
    """One bundle in the making: `parent/name/`, mode 0700, created by us and by nobody else.

    `redactor` None means the default one: writing secrets down takes a deliberate `NullRedactor`.
    `head` holds manifest fields that are known at the start (node, boot_id, incident, …): they survive a death before `seal`.
    Safe to use from several threads. Raises BundleError only from the constructor.
    """

    def __init__(
        self,
        parent: Path,
        name: str,
        *,
        redactor: Redacting | None = None,
        max_bytes: int = MAX_BYTES,
        head: Mapping[str, Any] | None = None,
    ) -> None:
        from forensics.bundle.redact import Redactor  # heavy: hundreds of patterns are compiled

        self.redactor: Redacting = redactor or Redactor.from_environment(str((head or {}).get("incident", "")))
        self.evidence: list[Evidence] = []
        self.attempts: list[Attempt] = []
        self.losses: list[str] = []
        self.redactions: dict[str, int] = {}
        self.sealed = False
        self.closed = False
        self._frozen = False
        self._lock = threading.RLock()
        self._folders: dict[str, int] = {}
        self._files: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._open: dict[str, EvidenceStream] = {}
        self._head = dict(head or {})
        self._over_budget = False
        self._disk_full = False
        with _explained(parent):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._parent = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._left = self._budget(parent, max_bytes)
                taken = {entry.removesuffix(".tar.gz") for entry in os.listdir(self._parent)}  # noqa: PTH208 (a descriptor, not a path)
                self.name = unique_path(safe_path(name).replace("/", "_"), taken)
                self.path = parent / self.name
                os.mkdir(self.name, 0o700, dir_fd=self._parent)  # EEXIST also for a symlink planted in between
                self._folders[""] = os.open(self.name, _FOLDER, dir_fd=self._parent)
                os.fchmod(self._folders[""], 0o700)
                self._attempts = os.open(ATTEMPTS, _CREATE, 0o600, dir_fd=self._folders[""])
                self._journal = os.open(JOURNAL, _CREATE, 0o600, dir_fd=self._folders[""])
                self._hold_reserve()
            except BaseException:
                os.close(self._parent)
                raise
        if self._head:
            self._note(self._journal, {"manifest": self._fields({})})

    def _budget(self, parent: Path, max_bytes: int) -> int:
        """Bytes of evidence that this bundle may hold: a third of the free space stays for packing and for the node."""
        disk = os.fstatvfs(self._parent)
        free = disk.f_bavail * disk.f_frsize
        if free < MIN_FREE_BYTES:
            raise BundleError(f"only {free >> 10} KiB are free under {parent}", "free some space, or choose another directory with --out")
        return min(max_bytes, (free - MIN_FREE_BYTES // 2) * 2 // 3)

    def _hold_reserve(self) -> None:
        reserve = os.open(RESERVE, _CREATE, 0o600, dir_fd=self._folders[""])
        try:
            os.write(reserve, bytes(RESERVE_BYTES))  # real bytes: a sparse file or an overlay would reserve nothing
        except OSError:
            pass  # a smaller reserve is still one
        finally:
            os.close(reserve)

    def _release_reserve(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(RESERVE, dir_fd=self._folders[""])

    # evidence

    def add(
        self,
        path: str,
        kind: str,
        data: str | bytes,
        *,
        collector: str,
        at_ns: int = 0,
        sample: int = 0,
        pid: int | None = None,
        source: str = "",
        truncated: bool = False,
    ) -> Evidence:
        """Write one whole piece of evidence. The path in the returned record may differ: made safe, made unique."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        with self.stream(path, kind, collector=collector, at_ns=at_ns, sample=sample, pid=pid, source=source) as stream:
            stream.write(raw)
            return stream.close(truncated=truncated)

    def stream(
        self,
        path: str,
        kind: str,
        *,
        collector: str,
        at_ns: int = 0,
        sample: int = 0,
        pid: int | None = None,
        source: str = "",
    ) -> EvidenceStream:
        """Begin a piece of evidence that arrives in chunks. Call `close(truncated=True)` when its child died in the middle."""
        with self._lock:
            final = self._claim(path)
            record = Evidence(
                path=final,
                collector=collector,
                kind=kind,
                size_bytes=0,
                sha256="",
                at_ns=at_ns,
                sample=sample,
                pid=pid,
                source=self.redactor.text(source),
                truncated=True,
            )
            if self._frozen or self.closed:  # a child that outlived its capture: its words come too late
                return EvidenceStream(self, record, None)
            self._renamed[path] = final
            # the record goes to the journal before the first byte: if we die now, a reader still knows what the file is
            self._note(self._journal, record)
            fd: int | None = None
            try:
                fd = self._create(final)
            except OSError as error:
                self.trouble(error, final)
            self._open[final] = EvidenceStream(self, record, fd)
            return self._open[final]

    def _claim(self, path: str) -> str:
        parts = safe_path(self.redactor.text(path)).split("/")
        for depth in range(1, len(parts)):
            while "/".join(parts[:depth]) in self._files:  # "a" is a file already, "a/b" needs a folder
                parts[depth - 1] += "_"
        final = unique_path("/".join(parts), self._files | self._folders.keys() | OWN_FILES)
        self._files.add(final)
        return final

    def _create(self, path: str) -> int:
        head, _, name = path.rpartition("/")
        return os.open(name, _CREATE, 0o600, dir_fd=self._folder(head))

    def _folder(self, path: str) -> int:
        if path not in self._folders:
            head, _, name = path.rpartition("/")
            above = self._folder(head)
            os.mkdir(name, 0o700, dir_fd=above)
            self._folders[path] = os.open(name, _FOLDER, dir_fd=above)
        return self._folders[path]

    def spend(self, wanted: int) -> int:
        with self._lock:
            granted = min(wanted, self._left)
            self._left -= granted
            return granted

    def finish(self, record: Evidence, counts: Mapping[str, int]) -> None:
        with self._lock:
            if self._open.pop(record.path, None) is None:
                return
            self.evidence.append(record)
            for kind, count in counts.items():
                self.redactions[kind] = self.redactions.get(kind, 0) + count
            self._note(self._journal, record)

    def trouble(self, error: OSError, path: str) -> None:
        """A write failed. Recorded as the attempt of a collector called "bundle", so that coverage shows it."""
        full = error.errno in _FULL
        with self._lock:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._release_reserve()
                self._left, self._disk_full = 0, True  # what is left belongs to the records: no more evidence from here on
            reason = f"{errno.errorcode.get(error.errno or 0, 'EIO')} while writing {path}: {error.strerror or error}"
            cure = "free some space on the output disk and capture again" if full else "capture again with --out on a healthy disk"
            self._lost(reason, cure)

    def budget_spent(self, path: str) -> None:
        with self._lock:
            if not self._over_budget:
                self._over_budget = True
                if self._disk_full:
                    self._lost(f"the output disk is full: nothing is written from {path} on", "free some space and capture again")
                else:
                    self._lost(f"the byte bound of the bundle was reached at {path}", "capture with a larger bound")

    def _lost(self, reason: str, cure: str) -> None:
        if reason not in self.losses:
            self.losses.append(reason)
            self.attempt(Attempt(collector="bundle", target=self.name, outcome=Outcome.PARTIAL, reason=reason, cure=cure))

    # records

    def attempt(self, attempt: Attempt) -> Attempt:
        """Append one attempt to attempts.jsonl at once, redacted, its evidence under the names that the files really got."""
        with self._lock:
            clean = msgspec.structs.replace(
                attempt,
                target=self.redactor.text(attempt.target),
                reason=self.redactor.text(attempt.reason),
                cure=self.redactor.text(attempt.cure),
                evidence=tuple(self._renamed.get(name, name) for name in attempt.evidence),
            )
            self.attempts.append(clean)
            self._note(self._attempts, clean)
            return clean

    def _note(self, fd: int, record: object) -> None:
        """Append one JSON line, whole or not at all."""
        if self.closed:
            return
        line = msgspec.json.encode(record) + b"\n"
        for second in (False, True):
            end = 0
            try:
                end = os.lseek(fd, 0, os.SEEK_END)
                write_all(fd, line)
                return
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, end)
                if second and (reason := f"records could not be written: {error.strerror}") not in self.losses:
                    self.losses.append(reason)
                self._release_reserve()

    # the end

    def seal(self, **fields: Any) -> None:
        """Write manifest.json and then manifest-sha256.txt. `fields` are those of Manifest besides the records themselves.

        On a disk that refuses even that, the bundle stays unsealed: `sealed` is False, `losses` says why, nothing is raised.
        """
        while not self._frozen:
            for stream in list(self._open.values()):  # not under our lock: a stream takes its own lock first, then ours
                self.losses.append(f"{stream.path} was still being written when the bundle was sealed")
                stream.close(truncated=True)
            with self._lock:
                self._frozen = not self._open
        with self._lock:
            if self.sealed or self.closed:
                return
            self._release_reserve()
            body = self._fields(fields)
            body |= {"attempts": self.attempts, "evidence": self.evidence, "redactions": self.redactions}
            try:
                manifest = msgspec.json.format(msgspec.json.encode(body), indent=1)
                sums = {record.path: record.sha256 for record in self.evidence if record.sha256}
                sums[ATTEMPTS] = hashlib.sha256(self._read_back(ATTEMPTS)).hexdigest()
                sums[MANIFEST] = hashlib.sha256(manifest).hexdigest()
                lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items()))
                self._write_file(MANIFEST, manifest)
                self._write_file(CHECKSUMS, lines.encode())
            except OSError as error:
                self.trouble(error, MANIFEST)
                return
            self.sealed = True
            with contextlib.suppress(OSError):
                os.unlink(JOURNAL, dir_fd=self._folders[""])

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        unknown = fields.keys() - set(Manifest.__struct_fields__)
        if unknown:
            raise TypeError(f"not a field of the manifest: {', '.join(sorted(unknown))}")
        body = {"schema": SCHEMA, **self._head, **fields}
        for name in ("trigger", "reason"):
            if name in body:
                body[name] = self.redactor.text(str(body[name]))
        if "engines" in body:
            raw, counts = self.redactor.redact(msgspec.json.encode(body["engines"]), "engines", MANIFEST)
            for kind, count in counts.items():
                self.redactions[kind] = self.redactions.get(kind, 0) + count
            body["engines"] = msgspec.Raw(raw)
        return body

    def _write_file(self, name: str, data: bytes) -> None:
        fd = os.open(name, _CREATE, 0o600, dir_fd=self._folders[""])
        try:
            write_all(fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folders[""])
            raise
        finally:
            os.close(fd)

    def _read_back(self, name: str) -> bytes:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folders[""])
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def pack(self, order: Sequence[str] = (), *, keep: bool = False) -> Path:
        """Make `<name>.tar.gz` beside the directory and return its path; the directory goes unless `keep`.

        `order` names collectors, most volatile first: a cut archive loses its tail. Where the archive cannot be written (a full
        disk), the directory stays and its path is returned, with the reason in `losses`.
        """
        from forensics.bundle.pack import pack_directory

        with self._lock:
            try:
                packed = pack_directory(self.path, self._parent, self._folders[""], self._in_order(order))
            except OSError as error:
                self.losses.append(f"not packed: {error.strerror or error}; the directory is complete")
                self.close()
                return self.path
            if not keep:
                self._remove()
            self.close()
            return packed

    def _in_order(self, order: Sequence[str]) -> list[tuple[str, Evidence | None]]:
        """The members of the archive: manifest first, because a cut archive can then name exactly what it lost."""
        rank = {collector: index for index, collector in enumerate(order)}
        # the process table gives every other file its meaning (which pid is which rank), so nothing comes before it
        files = sorted(self.evidence, key=lambda e: (e.kind != "process-table", rank.get(e.collector, len(rank))))
        members: list[tuple[str, Evidence | None]] = [(MANIFEST, None)] if self.sealed else [(JOURNAL, None)]
        members += [(record.path, record) for record in files if record.sha256]
        members.append((ATTEMPTS, None))
        return [*members, (CHECKSUMS, None)] if self.sealed else members

    def _remove(self) -> None:
        """Delete what we wrote, and nothing that somebody else put there meanwhile."""
        for path in (*self._files, *OWN_FILES):
            head, _, name = path.rpartition("/")
            with contextlib.suppress(OSError, KeyError):
                os.unlink(name, dir_fd=self._folders[head])
        for path in sorted(self._folders, key=len, reverse=True):
            with contextlib.suppress(OSError):
                (self.path / path).rmdir()

    def close(self) -> None:
        """Release the descriptors. The bundle stays as it is on disk; further records are dropped."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            close_all((*self._folders.values(), self._parent, self._attempts, self._journal))

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def _explained(parent: Path) -> Iterator[None]:
    """Turn the OSErrors of creating a bundle into one BundleError with its cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            cure = "free some space, or choose another directory with --out"
        else:
            cure = "choose a directory that you may write to with --out"
        raise BundleError(f"cannot create a bundle in {parent}: {error.strerror or error}", cure) from error
