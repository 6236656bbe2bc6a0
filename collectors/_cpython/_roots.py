"""Objects that the frames of a process hold: where expressions begin.

py-spy (non-blocking: nothing is paused) says which addresses stand in which local variable. Only those are kept: what it writes of the
values is dropped here and never leaves the process that called it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

from collectors._cpython import _instances
from collectors._cpython._errors import Denied, Gone, NoRoots, Unreadable
from collectors._cpython._process import Process
from collectors._cpython._records import Root
from collectors._cpython._threads import ids_on_this_node, thread_ids
from collectors._pyspy import NOT_FOUND, classify

TIMEOUT_S = 5.0
OUTPUT_LIMIT_BYTES = 64 << 20
ROOTS_LIMIT = 20_000
TRIES = 3


def roots(process: Process, py_spy: str, timeout_s: float = TIMEOUT_S) -> list[Root]:
    """Every local variable of every Python frame, innermost frame first. Raises NoRoots, Denied, Gone.

    A frame may go on while it is read: a root whose memory holds no object any more is left out, and one that is stale shows in
    what is read from it. Constants that many frames share (None, True, small numbers) are roots like any other.
    """
    return parse_dump(process, _dump(process, py_spy, timeout_s))


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


def _dump(process: Process, py_spy: str, timeout_s: float) -> Any:
    """What py-spy wrote. Without a pause it may meet a frame that is just being made: that is cured by another try."""
    if not py_spy:
        raise NoRoots(NOT_FOUND[1], NOT_FOUND[2])
    until = time.monotonic() + timeout_s
    for last in (*(False,) * (TRIES - 1), True):
        code, stdout, stderr = _run(
            [py_spy, "dump", "--pid", str(process.pid), "--json", "--locals", "--nonblocking"], until - time.monotonic(), timeout_s
        )
        if not code:
            break
        outcome, reason, cure = classify(stderr.decode("utf-8", "replace"))
        if last or outcome in ("DENIED", "ABSENT"):
            raise {"DENIED": Denied, "ABSENT": Gone}.get(outcome, NoRoots)(reason, cure)
    try:
        return json.loads(stdout[:OUTPUT_LIMIT_BYTES])
    except (ValueError, RecursionError) as error:
        raise NoRoots(f"py-spy wrote no JSON: {error}") from error


def _run(command: list[str], left_s: float, timeout_s: float) -> tuple[int, bytes, bytes]:
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise NoRoots(f"{command[0]}: {error.strerror}", NOT_FOUND[2]) from error
    with child:
        try:
            stdout, stderr = child.communicate(timeout=max(0.0, left_s))
        except subprocess.TimeoutExpired:
            raise NoRoots(f"py-spy said nothing within {timeout_s:g} s", "try again; a busy machine makes it slow") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        return child.returncode, stdout, stderr
