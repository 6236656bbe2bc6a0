"""Pack a bundle directory: one gzip member a file, so that a cut loses only the tail and a damaged spot only one file.

The whole is an ordinary .tar.gz. Each entry carries its Evidence record as the pax keyword "comment" (the one keyword that
every tar accepts in silence), so that a file keeps its meaning even in an archive whose manifest is gone.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from forensics.bundle._names import unique_path
from forensics.bundle._stream import write_all
from forensics.model import Evidence

COMMENT_PREFIX = "forensics.evidence/1 "
LEVEL = 1
"""Log text shrinks 10 to 20 times at level 1 already, at more than 100 MB/s; level 6 takes three times as long for a fifth less."""
BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1024 * 1024


def pack_directory(path: Path, parent: int, folder: int, members: Sequence[tuple[str, Evidence | None]]) -> Path:
    """Write `<path>.tar.gz` through the directory descriptors `parent` and `folder`; returns its path. Raises OSError.

    The archive appears under its name only when complete; a failed attempt leaves nothing behind.
    """
    partial = f".{path.name}.tar.gz.partial"
    with contextlib.suppress(FileNotFoundError):  # the name contains ours: an earlier failed try of the same bundle
        os.unlink(partial, dir_fd=parent)
    out = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        try:
            for name, record in members:
                for piece in _member(path.name, folder, name, record):
                    write_all(out, piece)
            write_all(out, _gzip(bytes(BLOCK * 2)))
            os.fsync(out)  # the next thing that happens to this node may be a reset
        finally:
            os.close(out)
        final = unique_path(f"{path.name}.tar.gz", os.listdir(parent))
        os.rename(partial, final, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=parent)
        raise
    return path.with_name(final)


def _member(root: str, folder: int, name: str, record: Evidence | None) -> Iterator[bytes]:
    """The compressed gzip member of one file: pax header, header, content, padding."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "rb", buffering=0) as file:
        status = os.fstat(fd)
        info = tarfile.TarInfo(f"{root}/{name}")
        info.size, info.mode, info.mtime = status.st_size, 0o600, int(status.st_mtime)
        if record is not None:
            info.mtime = min(max((record.at_ns or status.st_mtime_ns) // 1_000_000_000, 0), 8**11 - 1)  # what a header holds
            info.pax_headers = {"comment": COMMENT_PREFIX + msgspec.json.encode(record).decode()}
        press = zlib.compressobj(LEVEL, zlib.DEFLATED, wbits=zlib.MAX_WBITS | 16)
        yield press.compress(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        left = info.size
        while left and (piece := file.read(min(left, _CHUNK))):
            left -= len(piece)
            yield press.compress(piece)
        # a file that shrank under us must not shift the rest of the archive
        while left:
            piece = bytes(min(left, _CHUNK))
            left -= len(piece)
            yield press.compress(piece)
        yield press.compress(bytes(-info.size % BLOCK)) + press.flush()


def _gzip(data: bytes) -> bytes:
    press = zlib.compressobj(LEVEL, zlib.DEFLATED, wbits=zlib.MAX_WBITS | 16)
    return press.compress(data) + press.flush()
