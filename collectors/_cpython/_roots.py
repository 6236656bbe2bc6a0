"""Objects that the frames of a process hold: where expressions begin.

py-spy (non-blocking: nothing is paused) says which addresses stand in which local variable. Only those are kept: what it writes of the
values is dropped here and never leaves the process that called it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from collectors import _pyspy
from collectors._cpython import _instances
from collectors._cpython._errors import Denied, Gone, NoRoots, Unreadable
from collectors._cpython._process import Process
from collectors._cpython._records import Root
from collectors._cpython._threads import ids_on_this_node, thread_ids
from collectors._pyspy import Verdict
from collectors._spawn import Pool

TIMEOUT_S = 5.0
OUTPUT_LIMIT_BYTES = 32 << 20
ROOTS_LIMIT = 20_000
TRIES = 3
AGAIN = ("UNSUPPORTED", "FAILED")
"""What another try may cure."""
WORDS: Verdict = ("UNSUPPORTED", "py-spy printed something else than stacks", "")


def roots(process: Process, py_spy: str, timeout_s: float = TIMEOUT_S) -> list[Root]:
    """Every local variable of every Python frame, innermost frame first. Raises NoRoots, Denied, Gone.

    A frame may go on while it is read: a root whose memory holds no object any more is left out, and one that is stale shows in
    what is read from it. Constants that many frames share (None, True, small numbers) are roots like any other.
    """
    found = dump(py_spy, process.pid, timeout_s) if py_spy else _pyspy.NOT_FOUND
    if isinstance(found, list):
        return parse_dump(process, found)
    outcome, reason, cure = found
    raise {"DENIED": Denied, "ABSENT": Gone}.get(outcome, NoRoots)(reason, cure)


def parse_dump(process: Process, threads: Any) -> list[Root]:
    """The roots in a `py-spy dump --json --locals`, decoded. Values that have no address are skipped."""
    process.heap.forget()
    out: list[Root] = []
    by_ident, by_inner = thread_ids(process), ids_on_this_node(process)
    for thread in threads if isinstance(threads, list) else ():
        ident = int(thread.get("thread_id") or 0)
        tid = by_inner.get(thread.get("os_thread_id"), by_ident.get(ident))  # py-spy does not know it up to 3.10
        for depth, frame in enumerate(thread.get("frames") or ()):
            for local in frame.get("locals") or ():
                address = local.get("addr")
                if not isinstance(address, int) or len(out) >= ROOTS_LIMIT:
                    continue
                try:
                    kind = _instances.type_name(process.heap, process.heap.type_of(address))
                except Unreadable:
                    continue
                out.append(
                    Root(
                        name=str(local.get("name", "")),
                        type=kind,
                        address=address,
                        thread_ident=ident,
                        thread_name=str(thread.get("thread_name") or ""),
                        frame=str(frame.get("name", "")),
                        line=int(frame.get("line") or 0),
                        file=str(frame.get("filename", "")),
                        os_thread_id=tid,
                        depth=depth,
                    )
                )
    return out


def dump(program: str, pid: int, timeout_s: float) -> list[Any] | Verdict:
    """What `py-spy dump --json --locals` prints, or why there is nothing. It holds reprs of locals: only addresses may be used.

    Without a pause it may meet a frame that is just being made: that is cured by another try.
    """
    until = time.monotonic() + timeout_s
    found: list[Any] | Verdict = _pyspy.NOT_FOUND
    for _ in range(TRIES):
        found = _run(program, pid, until - time.monotonic(), timeout_s)
        if isinstance(found, list) or found[0] not in AGAIN or time.monotonic() > until:
            break
    return found


def _run(program: str, pid: int, left_s: float, timeout_s: float) -> list[Any] | Verdict:
    pool = Pool()
    try:
        command = [program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)]
        child = pool.start(command, max(0.0, left_s), OUTPUT_LIMIT_BYTES)
        pool.wait()
    except OSError:
        return _pyspy.NOT_FOUND
    finally:
        pool.close()
    if child.ending in ("timeout", "abandoned"):
        return "TIMEOUT", f"py-spy gave no answer within {timeout_s:g} s", "try again; a busy machine makes it slow"
    if child.ending == "flooded":
        return "PARTIAL", f"more than {OUTPUT_LIMIT_BYTES} bytes of stacks", ""
    if child.rc != 0:
        return _pyspy.classify(child.stderr.decode("utf-8", "replace"))
    try:
        found = json.loads(child.stdout)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else WORDS
