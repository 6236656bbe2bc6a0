"""Where the kernel holds each thread: the task folders of a fileset, as the stacks collector takes them beside each dump.

Formats: Documentation/filesystems/proc.rst of Linux 6.x; `syscall` and `stack` are in fs/proc/base.c. `syscall` reads "running",
or the number and six arguments in hexadecimal, or -1 where the thread waits outside of any call (a page fault).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from forensics.analysis.parse._names import plain
from forensics.model import EvidenceRef, ThreadWait, TimeRange

_TASK = re.compile(r"^/proc/(\d+)/task/(\d+)/syscall$")
_STACK = re.compile(r"^\[<[0-9a-f]+>\] (\S+?)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: (\[\S+\]))?$", re.M)
_STAT = re.compile(r"^\d+ \((.*)\) (\S)", re.S)
_INNER = re.compile(r"^NSpid:\s.*\s(\d+)\s*$", re.M)

FUTEX = (202, 98)
"""futex(2) on x86-64, and on aarch64 and the other newcomers. The evidence does not name the machine, so both are taken, where
everything else fits too: 98 on x86-64 is getrusage, which never waits, and 202 on aarch64 is accept, whose first argument is no
address."""
_WAITING = frozenset({0, 6, 9, 11, 13})
"""FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2; the other operations do not sleep."""
_LOWEST_ADDRESS = 1 << 16
"""vm.mmap_min_addr: nothing is mapped below."""


def futex(call: list[str], wchan: str) -> int | None:
    """The address of the futex that a thread waits at, by its `syscall` file split into words; None where it waits elsewhere."""
    try:
        number, address, operation = int(call[0]), int(call[1], 16), int(call[2], 16)
    except (ValueError, IndexError):
        return None
    if number not in FUTEX or operation & 0x7F not in _WAITING or address < _LOWEST_ADDRESS:
        return None
    return address if not wchan or "futex" in wchan else None


def thread_waits(
    files: Mapping[str, str], *, node: str, at: TimeRange | None, sample: int, ref: Callable[[str, str], EvidenceRef]
) -> Iterator[ThreadWait]:
    """One ThreadWait for each task folder whose `stat` and `syscall`, or at least `stat` and the inner id, were read."""
    folders = {m[0].rpartition("/")[0]: (int(m[1]), int(m[2])) for path in files if path.endswith("/syscall") and (m := _TASK.match(path))}
    for path in files:
        if path.endswith(("/stack", "/status")) and (m := _TASK.match(path.rpartition("/")[0] + "/syscall")):
            folders.setdefault(path.rpartition("/")[0], (int(m[1]), int(m[2])))
    for folder, (pid, tid) in folders.items():
        stat = _STAT.match(files.get(f"{folder}/stat", ""))
        call = files.get(f"{folder}/syscall", "").split()
        wchan = files.get(f"{folder}/wchan", "").strip()
        wchan = "" if wchan == "0" else wchan
        inner = _INNER.search(files.get(f"{folder}/status", ""))
        number = int(call[0]) if call and re.fullmatch(r"[0-9]{1,6}", call[0]) else None
        address = futex(call, wchan)
        name, state = (plain(stat[1]), stat[2]) if stat else ("", "")
        where = f"futex {address:#x}" if address is not None else f"system call {number}" if number is not None else " ".join(call[:1])
        yield ThreadWait(
            node=node,
            at=at,
            ref=ref(folder, f"{name} {state} wchan={wchan or '-'} {where}"),
            pid=pid,
            tid=tid,
            thread=name,
            state=state,
            wchan=wchan,
            syscall=number,
            futex=address,
            kernel_stack=tuple(" ".join(filter(None, m.groups())) for m in _STACK.finditer(files.get(f"{folder}/stack", ""))),
            inner=int(inner[1]) if inner and len(inner[0].split()) > 2 else None,
            sample=sample,
        )
