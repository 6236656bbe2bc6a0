"""Which thread of the kernel a thread ident is: locks store the one (pthread_self()), /proc and py-spy count by the other."""

from __future__ import annotations

import os

from collectors._contract import read_bounded
from collectors._cpython import _scalars
from collectors._cpython._errors import NotFound, OutOfBounds, Unreadable
from collectors._cpython._process import Process

THREADS_LIMIT = 4096


def thread_ids(process: Process) -> dict[int, int]:
    """ident -> thread id on this node, of every thread that the `threading` module knows.

    From `threading._active` in the memory of the process. A thread that C code started and that never asked for its own Thread is not
    there.
    """
    here = ids_on_this_node(process)
    out: dict[int, int] = {}
    try:
        threading = process.modules(("threading",)).get("threading")
        if not threading:  # a program without threads never imports it
            return out
        main = process.get(threading, "_main_thread")
        active = process.get(threading, "_active")
        for key, thread in process.pairs(active, THREADS_LIMIT):
            try:
                ident, native = _scalars.read_int(process.heap, key), _scalars.read_int(process.heap, process.get(thread, "_native_id"))
            except (Unreadable, NotFound):  # it is just starting, or has just ended
                continue
            if native in here:
                out[ident] = here[native]
            elif thread == main:  # the main thread of a forked process keeps the number that it had in its parent
                out[ident] = process.pid
    except (Unreadable, NotFound, OutOfBounds):  # it is just being imported, or too large to be one of Python's own
        pass
    return out


def ids_on_this_node(process: Process) -> dict[int, int]:
    """Thread id as the process counts -> as this node does; they differ inside a container (NSpid, innermost last)."""
    folder = f"{process.sysroot}/proc/{process.pid}/task"
    out: dict[int, int] = {}
    try:
        names = os.listdir(folder)[:THREADS_LIMIT]
    except OSError:
        return out
    for name in names:
        try:
            status = read_bounded(f"{folder}/{name}/status")[0]
        except OSError:  # ended meanwhile
            continue
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
        inner = int(numbers[-1]) if numbers else int(name)
        if inner == int(name):  # one namespace for all threads of a process
            return {int(name): int(name) for name in names}
        out[inner] = int(name)
    return out
