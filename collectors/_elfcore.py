"""What the head of a core file tells without any library: of which program and process it is, and what ended it.

Format: elf(5); notes NT_PRSTATUS and NT_PRPSINFO of linux/elfcore.h, in the layout of 64-bit machines.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

NOTE_BYTES = 64 * 1024
"""The notes of a process with hundreds of threads are larger, but those of the process itself come first."""
ET_CORE, PT_NOTE = 4, 4
NT_PRSTATUS, NT_PRPSINFO = 1, 3
PRPSINFO = struct.Struct("<4B4xQ6i16s80s")
COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"\xfd7zX": "xz", b"\x1f\x8b": "gzip"}


class Core(NamedTuple):
    executable: str
    """The kernel's name of the main thread: 15 characters at most."""
    pid: int
    """0 where it is not told."""
    signal: int
    """0 where nothing killed it: somebody took the picture of a living process."""


def compression(head: bytes) -> str:
    return next((name for magic, name in COMPRESSED.items() if head.startswith(magic)), "")


def identify(read: Callable[[int, int], bytes]) -> Core | None:
    """The core that `read(offset, length)` reads; None when it is no core of a 64-bit little-endian machine. Raises OSError."""
    try:
        kind, offset, size, count = _header(read(0, 64))
        if kind != ET_CORE:
            return None
        name, pid, number = "", 0, 0
        for index in range(min(count, 64)):  # the notes are the first segment
            segment, _, start, _, _, length = struct.unpack("<IIQQQQ", read(offset + index * size, 40))
            if segment != PT_NOTE:
                continue
            for note, content in _notes(read(start, min(length, NOTE_BYTES))):
                if note == NT_PRPSINFO and len(content) >= PRPSINFO.size:
                    fields = PRPSINFO.unpack_from(content)
                    pid, name = fields[7], fields[11].split(b"\0")[0].decode("utf-8", "backslashreplace")
                elif note == NT_PRSTATUS and not number:  # the first is that of the thread that died
                    number = struct.unpack_from("<i", content)[0]
            break
    except (struct.error, ValueError, OverflowError):  # cut, or garbled
        return None
    return Core(name, max(0, pid), max(0, number))


def _header(head: bytes) -> tuple[int, int, int, int]:
    """(type, offset of the program headers, size of one, how many)"""
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    kind = struct.unpack_from("<H", head, 16)[0]
    offset = struct.unpack_from("<Q", head, 32)[0]
    size, count = struct.unpack_from("<HH", head, 54)
    if size < 56:
        raise ValueError("no program headers")
    return kind, offset, size, count


def _notes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(raw):
        name_bytes, content_bytes, kind = struct.unpack_from("<III", raw, at)
        at += 12 + (name_bytes + 3) // 4 * 4
        yield kind, raw[at : at + content_bytes]
        at += (content_bytes + 3) // 4 * 4
