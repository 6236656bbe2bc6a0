"""What can be read only once, or from its beginning only: kept in an unlinked temporary file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable

SPOOL_BYTES = 64 * 1024 * 1024 * 1024
SPOOL_SHARE = 0.5
"""Of the free space for temporary files, so much is used at most."""


def spooled(pieces: Iterable[bytes], limit: int = SPOOL_BYTES) -> tuple[int, str]:
    """(descriptor of an unlinked file that holds the pieces, why it holds only their beginning: "" where it holds all)."""
    with tempfile.TemporaryFile(buffering=0) as file:
        room = min(limit, int(shutil.disk_usage(tempfile.gettempdir()).free * SPOOL_SHARE))
        left, lost = room, ""
        for piece in pieces:
            try:
                _write(file.fileno(), piece[:left])
            except OSError as error:
                lost = f"only its beginning was read: no room for temporary files ({error.strerror})"
                break
            if len(piece) > left:
                lost = f"only the first {room >> 20} MiB were read: more is not kept in temporary files"
                break
            left -= len(piece)
        return os.dup(file.fileno()), lost


def _write(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]
