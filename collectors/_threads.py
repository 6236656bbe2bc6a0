"""The threads of one Python process: their frames with the addresses of local variables, and where the kernel holds each.

Frames come from `py-spy dump --nonblocking --locals`, which pauses nothing. Such a picture is exact for a thread that slept
through it, and may be of two moments for one that ran: the kernel's count of time on a processor tells which.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, NamedTuple

from collectors import _pyspy
from collectors._cpython import PeekError, Process
from collectors._spawn import Pool

OUTPUT_LIMIT_BYTES = 32 * 1024 * 1024
THREADS_MAX = 4096
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
    inner: int = 0
    """As the process itself counts: differs from `tid` in a pid namespace."""

    @property
    def path(self) -> tuple[tuple[str, str, int], ...]:
        return tuple((f.name, f.file, f.line) for f in self.frames)


def dump(program: str, pid: int, timeout_s: float) -> list[Any] | _pyspy.Verdict:
    """What `py-spy dump --json --locals` prints, or why there is nothing. It holds reprs of locals: only addresses may be used."""
    pool = Pool()
    try:
        child = pool.start([program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)], timeout_s, OUTPUT_LIMIT_BYTES)
        pool.wait()
    finally:
        pool.close()
    if child.ending in ("timeout", "abandoned"):
        return "TIMEOUT", f"py-spy gave no answer within {timeout_s:g} s", ""
    if child.ending == "flooded":
        return "PARTIAL", f"more than {OUTPUT_LIMIT_BYTES} bytes of stacks", ""
    if child.rc != 0:
        return _pyspy.classify(child.stderr.decode("utf-8", "replace"))
    try:
        raw = json.loads(child.stdout)
        if isinstance(raw, list):
            return raw
    except (ValueError, RecursionError):
        pass
    return "UNSUPPORTED", "py-spy printed something else than stacks", ""


def threads_of(process: Process, raw: list[Any]) -> list[Thread]:
    """Every Python thread in a dump. Raises ValueError, TypeError, KeyError or AttributeError where it is no dump."""
    inner = _inner_ids(process.pid)
    return _identified(process, [_thread(thread, inner) for thread in raw], inner)


def _thread(raw: dict[str, Any], inner: dict[int, int]) -> Thread:
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
    return Thread(inner.get(tid, tid), int(raw.get("thread_id") or 0), str(raw.get("thread_name") or ""), frames, tid)


def _identified(process: Process, threads: list[Thread], inner: dict[int, int]) -> list[Thread]:
    """The threads with the kernel's ids that py-spy leaves out (Python 3.10, where it would have to pause): from `threading` itself."""
    if all(thread.tid for thread in threads):
        return threads
    native: dict[int, int] = {}
    try:
        for key, value in process.pairs(process.get(process.modules()["threading"], "_active"), THREADS_MAX):
            ident, tid = process.value(key), process.value(process.get(value, "_native_id"))
            if isinstance(ident, int) and isinstance(tid, int):
                native[ident] = tid
    except (PeekError, KeyError):
        pass  # those that were read stand
    ours = set(tids(process.pid))
    found = []
    for thread in threads:
        tid = thread.tid or native.get(thread.ident, 0)
        if not thread.tid and inner.get(tid, tid) not in ours:  # a forked main thread may still carry its parent's
            tid = process.pid if thread.name == "MainThread" else 0
        found.append(thread if thread.tid else thread._replace(tid=inner.get(tid, tid), inner=tid))
    return found


def _inner_ids(pid: int) -> dict[int, int]:
    """Thread ids of another pid namespace to ours; {} where there is no other."""
    found = {}
    for tid in tids(pid):
        inner = re.search(rb"^NSpid:.*\s(\d+)$", _text(f"/proc/{pid}/task/{tid}/status"), re.MULTILINE)
        if inner is None or int(inner[1]) == tid:
            return {}  # one namespace for all threads of a process
        found[int(inner[1])] = tid
    return found


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


def runs(pid: int, tid: int) -> bytes:
    """The kernel's account of a thread's time on a processor: equal twice means that it did not run in between. b"" if there is none."""
    return _text(f"/proc/{pid}/task/{tid}/schedstat")


def started_ns(pid: int) -> int:
    """When a process started, by today's clock, to 10 ms. Raises OSError when it is gone."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        raw = file.read(4096)
    ticks = int(raw[raw.rindex(b")") + 2 :].split()[19])
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age_ns
