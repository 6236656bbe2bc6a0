"""Open what somebody hands us: a bundle (packed, unpacked, cut, never sealed), a folder of bare logs, one file, stdin.

Everything is hostile until proven otherwise: nothing is unpacked to disk, no name is followed, every size is bounded, and what cannot
be read is not an error but a sentence in `losses`. A folder of bare logs is a bundle without a manifest: its items have no Evidence.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from forensics.bundle._folder import ARCHIVES, Walk, is_bundle
from forensics.bundle._gzip import GzipStream, PlainStream
from forensics.bundle._inflate import inflating, opens_with
from forensics.bundle._meta import describe, say_missing
from forensics.bundle._names import ATTEMPTS, CHECKSUMS, JOURNAL, MANIFEST, OWN_FILES, printable
from forensics.bundle._spool import SPOOL_BYTES, spooled
from forensics.bundle._tar import BLOCK, TarEntry, TarListing, list_tar, looks_like_tar
from forensics.bundle.errors import BundleError
from forensics.bundle.manifest import decode_record
from forensics.bundle.pack import COMMENT_PREFIX
from forensics.bundle.source import Item, Source
from forensics.model import Evidence

STDIN_LIMIT_BYTES = SPOOL_BYTES
BUFFER_BYTES = 128 * 1024
PACKED = (".gz", ".xz", ".bz2", ".zst", ".zstd")
"""Endings of files that are packed one by one."""

__all__ = ["Item", "Source", "open_source", "open_sources"]


def open_source(path: str | Path) -> Source:
    """Open a bundle, a folder, a file or "-" (stdin). Raises BundleError when there is nothing to open at `path`."""
    if str(path) == "-":
        try:
            return _open_spooled(0, "stdin")
        except OSError as error:  # closed, or a directory
            raise _cannot(path, error) from error
    place = Path(path)
    try:
        mode = place.stat().st_mode
        if stat.S_ISDIR(mode):
            return _open_folder(place)
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise BundleError(
                f"{printable(str(path))} is neither a file nor a directory", "name a bundle, a directory of logs or a log file"
            )
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot(path, error) from error
    if stat.S_ISFIFO(mode):  # the shell's <(command)
        try:
            return _open_spooled(fd, place.name)
        finally:
            os.close(fd)
    return _open_file(fd, place.name)


def open_sources(paths: Iterable[str | Path]) -> list[Source]:
    """Open every path; a folder that holds bundles (as a sweep leaves them) yields each of these besides its loose files."""
    found: list[Source] = []
    for path in paths:
        place = Path(path)
        if str(path) == "-" or not place.is_dir() or is_bundle(place):
            found.append(open_source(path))
            continue
        walk = Walk(place)
        found += [open_source(inner) for inner in walk.bundles]
        loose = _open_loose(place, walk)
        if loose.losses or loose.members or not walk.bundles:
            found.append(loose)
    return found


def _cannot(path: str | Path, error: OSError) -> BundleError:
    name = printable(str(path))
    if isinstance(error, FileNotFoundError):
        return BundleError(f"{name} does not exist", "check the path")
    if isinstance(error, PermissionError):
        return BundleError(f"{name} may not be read by this user", "bundles are written with mode 0600: read as the user who captured")
    return BundleError(f"{name} cannot be read: {error.strerror or error}")


# archives and single files


def _open_spooled(fd: int, label: str) -> Source:
    """Keep what cannot be read twice in an unlinked file, bounded."""
    copy, lost = spooled(iter(lambda: os.read(fd, 1024 * 1024), b""), STDIN_LIMIT_BYTES)
    source = _open_file(copy, label)
    if lost:
        source.losses.append(f"{label}: {lost}")
    return source


def _open_file(fd: int, name: str) -> Source:
    label = printable(name)
    for suffix in ARCHIVES:
        label = label.removesuffix(suffix)
    source = Source(label)
    source.fds.append(fd)
    status = os.fstat(fd)
    head = os.pread(fd, BLOCK, 0)
    packed = opens_with(head)
    inside = inflating(fd, packed, [], name).read(BLOCK)
    tar = looks_like_tar(inside) or name.endswith(ARCHIVES)
    if tar and packed in (None, "gzip"):
        stream = GzipStream(fd, looks_like_tar) if packed else PlainStream(fd)
        _fill_from_tar(source, stream, list_tar(stream), status.st_size)
    elif tar and looks_like_tar(inside):
        source.fds.append(_spooled(inflating(fd, packed, source.losses, name), source.losses, name))
        plain = PlainStream(source.fds[-1])
        _fill_from_tar(source, plain, list_tar(plain), status.st_size)
    elif head[:4] == b"PK\x03\x04":
        source.losses.append(f"{source.label}: a zip archive is not read; unpack it and analyse the directory")
    else:
        source.members.append(_bare_item(source, printable(name), status, lambda: os.dup(fd)))
    return source


def _fill_from_tar(source: Source, stream: GzipStream | PlainStream, listing: TarListing, size: int) -> None:
    if listing.cut:
        source.losses.append(
            f"{source.label}: " + ("the archive is cut; what stood behind the cut is lost" if size else "the file is empty")
        )
    source.losses += [f"{source.label}: {loss}" for loss in listing.losses]
    root = _root_of(listing.entries)
    entries = {entry.name.removeprefix(root): entry for entry in listing.entries}
    if not _ours(entries, listing.cut):
        source.members += [_bare_tar_item(source, stream, entry) for entry in listing.entries]
        source.losses += [_partial(entry.name, entry) for entry in listing.entries if not entry.whole]
        return
    own = {path: entry for path, entry in entries.items() if path in OWN_FILES}
    source.own = {path: _tar_item(stream, path, entry, None) for path, entry in own.items() if entry.whole}
    source.losses += [_partial(path, entry) for path, entry in own.items() if not entry.whole]
    describe(source)
    for path, entry in entries.items():
        if path not in OWN_FILES:
            known = source.evidence.get(path) or _from_comment(entry, path)
            evidence, loss = _compare(path, entry, known)
            source.losses += [loss] if loss else []
            source.members.append(_tar_item(stream, path, entry, evidence))
    say_missing(source, entries)
    source.sealed = source.sealed and not listing.cut


def _compare(path: str, entry: TarEntry, evidence: Evidence | None) -> tuple[Evidence | None, str]:
    """The record of an entry as far as it may be believed, and what is wrong with it."""
    if not entry.whole:
        return (msgspec.structs.replace(evidence, truncated=True) if evidence else None), _partial(path, entry)
    if evidence is None:
        return None, f"{path}: not known to the manifest"
    if evidence.size_bytes != entry.size:
        return evidence, f"{path}: has {entry.size} bytes, the manifest says {evidence.size_bytes}"
    if evidence.sha256 != entry.sha256:
        return evidence, f"{path}: the content does not match its checksum: changed after the capture, or damaged"
    return evidence, ""


def _partial(path: str, entry: TarEntry) -> str:
    return f"{path}: only {entry.available} of {entry.size} bytes are there"


def _tar_item(stream: GzipStream | PlainStream, path: str, entry: TarEntry, evidence: Evidence | None) -> Item:
    def open_it() -> BinaryIO:
        return io.BufferedReader(stream.open_at(entry.offset, entry.available), BUFFER_BYTES)

    return Item(path, entry.available, entry.mtime_ns, evidence, open_it)


def _bare_tar_item(source: Source, stream: GzipStream | PlainStream, entry: TarEntry) -> Item:
    """A bare file in an archive; one that is packed itself goes through a temporary file when it is opened."""

    def open_it() -> BinaryIO:
        plain = io.BufferedReader(stream.open_at(entry.offset, entry.available), BUFFER_BYTES)
        kind = opens_with(plain.peek(8)[:8])
        return inflating(_spooled(plain, source.losses, entry.name), kind, source.losses, entry.name, own=True) if kind else plain

    return Item(_unpacked_name(entry.name), entry.available, entry.mtime_ns, None, open_it)


def _spooled(content: BinaryIO, losses: list[str], name: str) -> int:
    fd, lost = spooled(iter(lambda: content.read(BUFFER_BYTES), b""))
    if lost and (sentence := f"{printable(name)}: {lost}") not in losses:
        losses.append(sentence)
    return fd


def _unpacked_name(name: str) -> str:
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name


def _root_of(entries: list[TarEntry]) -> str:
    """The folder inside the archive that is the bundle, with its slash: where the shallowest of our own files lies."""
    own = [entry.name for entry in entries if entry.name.rpartition("/")[2] in OWN_FILES and entry.name.count("/") <= 2]
    if own:
        head, slash, _ = min(own, key=lambda name: name.count("/")).rpartition("/")
        return head + slash
    for entry in entries:  # a cut bundle without its manifest: the records travel with the files
        record = _comment(entry)
        if record and entry.name.endswith("/" + record.path):
            return entry.name.removesuffix(record.path)
    return ""


def _ours(entries: dict[str, TarEntry], cut: bool) -> bool:
    marked = any(entry.comment.startswith(COMMENT_PREFIX) for entry in entries.values())
    return marked or JOURNAL in entries or ATTEMPTS in entries or (MANIFEST in entries and (cut or CHECKSUMS in entries))


def _comment(entry: TarEntry) -> Evidence | None:
    if not entry.comment.startswith(COMMENT_PREFIX):
        return None
    return decode_record(entry.comment[len(COMMENT_PREFIX) :].encode("utf-8", "replace"), Evidence, "the archive", [])


def _from_comment(entry: TarEntry, path: str) -> Evidence | None:
    found = _comment(entry)
    return found if found and found.path == path else None


# folders


def _open_folder(place: Path) -> Source:
    return _open_bundle_folder(place) if is_bundle(place) else _open_loose(place, Walk(place), name_bundles=True)


def _open_loose(place: Path, walk: Walk, *, name_bundles: bool = False) -> Source:
    source = Source(printable(place.resolve().name or str(place)))
    source.losses += walk.losses
    for name, status in walk.files:
        source.members.append(_bare_item(source, printable(name), status, _opener(place / name)))
    if name_bundles:
        source.losses += [f"{printable(inner.name)} is an archive or bundle of its own and was not opened" for inner in walk.bundles]
    return source


def _open_bundle_folder(place: Path) -> Source:
    source = Source(printable(place.resolve().name))
    walk = Walk(place, whole=True)
    source.losses += walk.losses
    items = {name: _folder_item(place, name, status) for name, status in walk.files}
    source.own = {name: item for name, item in items.items() if name in OWN_FILES}
    describe(source)
    for name, item in items.items():
        if name in OWN_FILES:
            continue
        item.evidence = source.evidence.get(name)
        if item.evidence is None:
            source.losses.append(f"{item.name}: not known to the manifest")
        elif item.evidence.sha256 and item.evidence.size_bytes != item.size:
            source.losses.append(f"{item.name}: has {item.size} bytes, the manifest says {item.evidence.size_bytes}")
        source.members.append(item)
    say_missing(source, items)
    return source


def _folder_item(place: Path, name: str, status: os.stat_result) -> Item:
    opener = _opener(place / name)
    return Item(printable(name), status.st_size, status.st_mtime_ns, None, lambda: os.fdopen(opener(), "rb"))


def _opener(path: Path) -> Callable[[], int]:
    def open_it() -> int:
        # O_NONBLOCK and the second look: the file may have become a FIFO or a link since the folder was listed
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{path} is no longer a regular file")
        return fd

    return open_it


def _bare_item(source: Source, name: str, status: os.stat_result, opener: Callable[[], int]) -> Item:
    """A bare file; one that is compressed is opened transparently, under the name that it had before."""

    def open_it() -> BinaryIO:
        fd = opener()
        return inflating(fd, opens_with(os.pread(fd, 8, 0)), source.losses, name, own=True)

    return Item(_unpacked_name(name), status.st_size, status.st_mtime_ns, None, open_it)
