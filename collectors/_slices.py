"""The slices of a large log that are worth carrying away, each made of whole lines, never overlapping."""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Iterator

BLOCK_BYTES = 1024 * 1024
SEARCH_BYTES = 256 * 1024 * 1024
"""How far back a fatal line is looked for that lies before the tail."""
UNZIP_S = 3.0
FATAL = (
    # what an engine prints once, at its end, each with the words around it that made it unique
    b"EngineCore encountered a fatal error",
    b"EngineCore failed to start",
    b"WorkerProc hit an exception",
    b"WorkerProc failed to start",
    b"died unexpectedly",
    b"RPC call to ",
    b"Watchdog caught",
    b"watchdog timeout (self.watchdog_timeout",
    b"Scheduler hit an exception",
    b"Hang detected after",
    b"Segfault encountered",
    b"Fatal Python error",
)
TRACEBACK = b"Traceback (most recent call last)"
"""Only where none of the others is found: a bad request prints one as well."""

HEAD, WINDOW, TAIL = 1, 2, 3


def slices(fd: int, size: int, head_bytes: int, window_bytes: int, tail_bytes: int, *, search_s: float) -> Iterator[tuple[int, bytes]]:
    """Yield (TAIL, bytes), (HEAD, bytes) and, where the newest fatal line lies between them, (WINDOW, bytes): dearest first.

    A file that fits is yielded whole as HEAD. A file that has no line end where one is needed is cut where the bound falls.
    An unfinished last line is kept: it may be the last words of a process that died while it wrote.
    """
    if size <= head_bytes + tail_bytes:
        yield HEAD, read_at(fd, 0, size)
        return
    # one byte early: when that is a line end, the tail starts with a whole line
    tail = from_line_start(read_at(fd, size - tail_bytes - 1, size))
    yield TAIL, tail
    head = whole_lines(read_at(fd, 0, head_bytes))
    yield HEAD, head
    low, high = len(head), size - len(tail)
    if any(words in tail for words in FATAL):
        return
    found = newest_fatal(fd, low, high, search_s, traceback=TRACEBACK not in tail)
    if found is not None:
        # more before it than after it: what led to it
        start, end = max(low, found - window_bytes * 3 // 4), min(high, found + window_bytes // 4)
        window = read_at(fd, start, end)
        window = from_line_start(window) if start > low else window
        yield WINDOW, whole_lines(window) if end < high else window


def from_line_start(data: bytes) -> bytes:
    """Without the line that `data` begins in the middle of; unchanged when it holds no line end at all."""
    return data[data.find(b"\n") + 1 :]


def read_at(fd: int, start: int, end: int) -> bytes:
    """Bytes from `start` up to `end`, fewer where the file was cut short meanwhile."""
    parts = []
    while start < end and (piece := os.pread(fd, min(end - start, BLOCK_BYTES), start)):
        parts.append(piece)
        start += len(piece)
    return b"".join(parts)


def whole_lines(data: bytes) -> bytes:
    """Without the line that `data` ends in the middle of; unchanged when it holds no line end at all."""
    return data[: data.rfind(b"\n") + 1] or data


def newest_fatal(fd: int, low: int, high: int, search_s: float, *, traceback: bool) -> int | None:
    """Offset of the newest fatal words between `low` and `high`, else (if `traceback`) of the newest traceback, else None."""
    overlap = max(map(len, FATAL))
    stop, deadline, fallback = max(low, high - SEARCH_BYTES), time.monotonic() + search_s, None
    while high > stop and time.monotonic() < deadline:
        start = max(stop, high - BLOCK_BYTES)
        block = read_at(fd, start, high + overlap)
        newest = max(block.rfind(words) for words in FATAL if words in block) if any(words in block for words in FATAL) else -1
        if newest >= 0:
            return start + newest
        if traceback and fallback is None and TRACEBACK in block:
            fallback = start + block.rfind(TRACEBACK)
        high = start
    return fallback


def last_bytes(path: str, limit: int) -> tuple[bytes, bool]:
    """(last `limit` bytes from a line start, something was left out) of a plain or gzipped file. A broken gzip gives what it can."""
    kept, cut, deadline = b"", False, time.monotonic() + UNZIP_S
    size = os.stat(path).st_size
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as f:
        if not path.endswith(".gz"):
            f.seek(max(0, size - limit - 1))
            cut = size > limit
        try:
            while piece := f.read1(BLOCK_BYTES):  # read() would throw away what precedes a break
                kept = (kept + piece)[-limit - 1 :]
                cut = cut or len(kept) > limit
                if time.monotonic() > deadline:  # a bomb, or simply large: what was reached is then not the end
                    cut = True
                    break
        except (EOFError, zlib.error):
            cut = True
    return from_line_start(kept) if cut and len(kept) > limit else kept, cut
