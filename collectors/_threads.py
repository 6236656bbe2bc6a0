"""The threads of one Python process: their frames with the addresses of local variables, and where the kernel holds each.

Frames come from `py-spy dump --nonblocking --locals`, which pauses nothing. Such a picture is exact for a thread that slept
through it, and may be of two moments for one that ran: the kernel's count of time on a processor tells which.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from collectors._contract import stat_fields
from collectors._cpython import Process, thread_ids
from collectors._cpython._threads import ids_on_this_node

FRAMES_MAX = 400
"""Of one thread, innermost first: a recursion of thousands holds nothing new."""
_FUTEX = {202, 219} if os.uname().machine == "x86_64" else {98, 128}
"""futex, and restart_syscall: what a wait with a timeout becomes once a tracer has looked at its thread; the arguments stay."""


class Frame(NamedTuple):
    name: str
    file: str
    short_file: str
    line: int
    locals: dict[str, int]
    """Name to address of the object; a cell where an inner function shares the variable. What it took from an outer one is missing."""

    @property
    def where(self) -> str:
        return f"{self.short_file}:{self.line}"

    @property
    def function(self) -> str:
        """Name without the class: all that Python 3.10 knows."""
        return self.name.rpartition(".")[2]


class Thread(NamedTuple):
    tid: int
    """As we see it, also where the process lives in another pid namespace."""
    ident: int
    """As Python counts: the address of its pthread."""
    name: str
    frames: tuple[Frame, ...]
    """Innermost first."""


def threads_of(process: Process, raw: list[Any]) -> list[Thread]:
    """Every Python thread in a dump. Raises ValueError, TypeError, KeyError or AttributeError where it is no dump."""
    here = ids_on_this_node(process)
    threads = [_thread(thread, here) for thread in raw]
    if all(thread.tid for thread in threads):
        return threads
    # up to Python 3.10 py-spy would have to pause to know the kernel's ids
    known = thread_ids(process)
    return [thread if thread.tid else thread._replace(tid=known.get(thread.ident, 0)) for thread in threads]


def _thread(raw: dict[str, Any], here: dict[int, int]) -> Thread:
    frames = tuple(
        Frame(
            str(f["name"]),
            str(f["filename"]),
            str(f.get("short_filename") or os.path.basename(f["filename"])),
            int(f["line"]),
            {str(v["name"]): int(v["addr"]) for v in f.get("locals") or () if v.get("addr")},
        )
        for f in raw["frames"][:FRAMES_MAX]
    )
    tid = int(raw.get("os_thread_id") or 0)
    return Thread(here.get(tid, tid), int(raw.get("thread_id") or 0), str(raw.get("thread_name") or ""), frames)


def tids(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _text(path: str) -> bytes:
    """A small /proc file, b"" when it is gone: by hand, because there are hundreds between us and the picture."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)


def at_futex(pid: int, tid: int) -> int | None:
    """Address of the word at which the kernel holds a thread, None where it does not wait at one (or we may not know)."""
    fields = _text(f"/proc/{pid}/task/{tid}/syscall").split()
    if len(fields) < 2 or not fields[0].isdigit() or int(fields[0]) not in _FUTEX:
        return None
    return int(fields[1], 16)


def blind(pid: int, tid: int) -> str:
    """Why the kernel does not say where a thread waits; "" where it does. Raises FileNotFoundError when the thread is gone."""
    folder = f"/proc/{pid}/task/{tid}"
    try:
        with open(f"{folder}/syscall", "rb") as file:
            return "" if file.read(64) else "it is empty"
    except OSError as error:
        os.stat(folder)
        return error.strerror or str(error)


def runs(pid: int, tid: int) -> bytes:
    """The kernel's account of a thread's time on a processor: equal twice means that it did not run in between. b"" if there is none."""
    return _text(f"/proc/{pid}/task/{tid}/schedstat")


def started_ns(pid: int) -> int:
    """When a process started, by today's clock, to 10 ms. Raises OSError when it is gone."""
    ticks = int(stat_fields(f"/proc/{pid}/stat")[19])
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age_ns
