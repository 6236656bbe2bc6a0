"""Memory of the host and what fills /dev/shm, of the node and of every container that a target lives in.

One fileset `memory/host.json`. Beside real files it holds pseudo-files: the path of a directory holds its listing, and
"statvfs:PATH" holds the size of the file system there. Times in listings are UTC.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
from collections.abc import Callable

from collectors._contract import Emitter, FileSet, Request, resolve_in_root

FILES = (
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/pressure/memory",
    "/proc/swaps",
    "/proc/sys/vm/overcommit_memory",
    "/proc/buddyinfo",
)
LISTED = 500
"""Entries of a listing, largest first; the header counts all of them."""


def collect(request: Request, emit: Emitter) -> None:
    with emit.attempt("host memory") as attempt:
        found = FileSet(request.sysroot)
        for path in FILES:
            found.read(path)
        seen: set[tuple[int, int]] = set()
        add_shm(found, "/dev/shm", seen)
        add_statvfs(found, "/")
        for target in request.targets:
            # a container has a /dev/shm of its own, usually of 64 MB, and that is the one that runs full
            add_shm(found, f"/proc/{target.pid}/root/dev/shm", seen)
        real = [path for path in found.files if path.startswith("/")]
        attempt.end(*(found.outcome() if real else ("ABSENT", "no /proc/meminfo and no /dev/shm here", "")))
        if real:
            attempt.evidence.append(emit.evidence("memory/host.json", "fileset", found.json(), source="/proc", at_ns=found.at_ns))


def add(found: FileSet, key: str, make: Callable[[], str]) -> None:
    """Put the text that `make` returns into the set as a pseudo-file, or its error."""
    try:
        found.files[key] = make()
    except OSError as error:
        found.errors[key] = errno.errorcode.get(error.errno or 0, "EIO")


def add_shm(found: FileSet, path: str, seen: set[tuple[int, int]]) -> None:
    """List one /dev/shm unless it is one that was listed already (same mount seen through another process)."""
    try:
        where = resolve_in_root(found.sysroot, path)
        here = os.stat(where)
    except OSError as error:
        found.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
        return
    if (here.st_dev, here.st_ino) not in seen:
        seen.add((here.st_dev, here.st_ino))
        add(found, path, lambda: listing(where))
        add_statvfs(found, path)


def add_statvfs(found: FileSet, path: str) -> None:
    if not found.sysroot:  # a recorded tree lies on a disk of another machine
        add(found, f"statvfs:{path}", lambda: file_system(path))


def listing(path: str) -> str:
    """A header `# entries=N size_bytes=N allocated_bytes=N`, then `mode uid gid size allocated mtime name` a line, sizes in bytes."""
    entries: list[tuple[int, str]] = []
    total = allocated = count = 0
    with os.scandir(path) as found:
        for entry in found:
            try:
                s = entry.stat(follow_symlinks=False)
            except OSError:  # deleted since
                continue
            count, total, allocated = count + 1, total + s.st_size, allocated + s.st_blocks * 512
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(s.st_mtime))
            name = repr(entry.name)[1:-1]  # hostile text: no line break of its own, no escape sequence, no stray byte
            line = f"{stat.filemode(s.st_mode)} {s.st_uid} {s.st_gid} {s.st_size} {s.st_blocks * 512} {when} {name}"
            entries.append((s.st_size, line))
    shown = heapq.nlargest(LISTED, entries)
    head = f"# entries={count} size_bytes={total} allocated_bytes={allocated} shown={len(shown)}"
    return "\n".join([head, *(line for _, line in shown)]) + "\n"


def file_system(path: str) -> str:
    """`blocks=N bavail=N bfree=N frsize=N files=N ffree=N`: sizes are blocks × frsize bytes."""
    fs = os.statvfs(path)
    return f"blocks={fs.f_blocks} bavail={fs.f_bavail} bfree={fs.f_bfree} frsize={fs.f_frsize} files={fs.f_files} ffree={fs.f_ffree}\n"
