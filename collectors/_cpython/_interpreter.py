"""Which CPython a process runs and where its state lies, told without executing anything: from its mappings, files and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from collectors._contract import read_bounded, resolve_in_root
from collectors._cpython._elf import Elf, NotElf
from collectors._cpython._errors import Denied, Gone, NotPython, Unreadable, Unsupported
from collectors._cpython._layouts import PUBLISHED_BYTES, Layout, layout_for, published
from collectors._cpython._memory import Memory

_MAPS_LIMIT_BYTES = 16 << 20
"""A process with CUDA and thousands of mapped segments has a few MiB."""
_LIBRARY = re.compile(r"libpython(\d)\.(\d+)([a-z]*)(?:-[\w.]+)?\.so")
_PROGRAM = re.compile(r"python(\d)\.(\d+)([a-z]*)$")


class Mapped(NamedTuple):
    """A file whose first page is mapped into the process."""

    path: str
    start: int
    range: str
    """As /proc/PID/map_files names it."""


class Interpreter(NamedTuple):
    """A CPython found in a process."""

    version: tuple[int, int]
    runtime: int
    """Address of `_PyRuntime` in the process."""
    layout: Layout
    path: str
    """The program or library that holds it, as the process sees it."""


def find(memory: Memory, sysroot: str = "") -> Interpreter:
    """The interpreter of a process. Raises NotPython, Unsupported, Denied, Gone."""
    proc = f"{sysroot}/proc/{memory.pid}"
    try:
        maps, _ = read_bounded(f"{proc}/maps", _MAPS_LIMIT_BYTES)
        program = os.readlink(f"{proc}/exe").removesuffix(" (deleted)")
    except PermissionError as error:
        raise Denied(f"not permitted to read the mappings of process {memory.pid}") from error
    except OSError as error:
        raise Gone(f"process {memory.pid} is gone, or runs no program of its own") from error
    # the library first: where there is one, the program is a launcher of a few KiB
    files = sorted(_candidates(maps.decode("utf-8", "surrogateescape"), program), key=lambda file: not _LIBRARY.search(file.path))
    for file in files:
        fd = _open(proc, file, program)
        if fd is None:
            continue
        try:
            found = _examine(memory, Elf(fd), file)
        except (NotElf, Unreadable):
            continue
        finally:
            os.close(fd)
        if found:
            return found
    if any(_LIBRARY.search(file.path) or _PROGRAM.search(file.path) for file in files):
        raise Unsupported(f"{files[0].path}: no runtime state of CPython found in it")
    raise NotPython(f"process {memory.pid} ({program}) runs no CPython")


def _candidates(maps: str, program: str) -> Iterator[Mapped]:
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or int(fields[2], 16):
            continue
        path = fields[5].removesuffix(" (deleted)")
        if path == program or _LIBRARY.search(path):
            yield Mapped(path, int(fields[0].partition("-")[0], 16), fields[0])


def _open(proc: str, file: Mapped, program: str) -> int | None:
    """Open what is mapped: the very inode where the kernel lets us, else the file of that name in the process's own root."""
    try:
        inside = resolve_in_root(f"{proc}/root", file.path)
    except OSError:
        inside = ""
    own = [f"{proc}/exe"] if file.path == program else []
    for path in (*own, f"{proc}/map_files/{file.range}", inside):
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # map_files wants more rights than the rest; an upgraded library is gone from its path
            continue
    return None


def _examine(memory: Memory, elf: Elf, file: Mapped) -> Interpreter | None:
    bias = file.start - elf.first_address
    section = elf.section(".PyRuntime")
    address = section[0] if section else elf.symbol("_PyRuntime")
    if address is None:
        return None
    runtime = bias + address
    offsets = published(memory.read(runtime, PUBLISHED_BYTES)) if section is None or section[1] >= PUBLISHED_BYTES else None
    if offsets:
        version, free_threaded, raw = offsets
        _refuse_free_threaded(version, free_threaded, file.path)
        return Interpreter(version, runtime, layout_for(version, raw), file.path)
    named = _LIBRARY.search(file.path) or _PROGRAM.search(os.path.basename(file.path))
    symbol = elf.symbol("Py_Version")  # 3.11 on
    if symbol is not None:
        hexversion = memory.word(bias + symbol)
        version = ((hexversion >> 24) & 0xFF, (hexversion >> 16) & 0xFF)
    elif named:
        version = (int(named[1]), int(named[2]))
    else:
        raise Unsupported(f"{file.path}: a CPython that does not say its version (older than 3.11)")
    _refuse_free_threaded(version, bool(named and "t" in named[3]), file.path)
    return Interpreter(version, runtime, layout_for(version), file.path)


def _refuse_free_threaded(version: tuple[int, int], free_threaded: bool, path: str) -> None:
    if free_threaded:
        raise Unsupported(f"free-threaded CPython {version[0]}.{version[1]} ({path}): its objects are laid out otherwise")
