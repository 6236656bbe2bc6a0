"""What a thread waits for other than a lock: an event, a condition, a future, another thread's end, an item of a queue.

Each of these waits is a lock underneath (a fresh one, that the wait itself made): told here, so that no lock wait is claimed.
"""

from __future__ import annotations

from typing import Any

from collectors._locks import Locks, is_condition_wait
from collectors._threads import Frame, Thread

_PLUMBING = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/multiprocessing/queues.py")
_OUTERMOST = ("run", "_bootstrap_inner", "_bootstrap")
"""Of threading.py, and no wait: where a thread begins."""
_FLAGS = {"threading.Event": "_flag", "concurrent.futures._base.Future": "_state"}
_JOINS = ("join", "_wait_for_tstate_lock")


def caller(thread: Thread) -> tuple[int, Frame | None]:
    """The innermost frame of the program itself, with its depth."""
    inner = ((depth, f) for depth, f in enumerate(thread.frames) if not f.file.endswith(_PLUMBING) or f.function in _OUTERMOST)
    return next(inner, (len(thread.frames), None))


def place_of(locks: Locks, thread: Thread, address: int) -> str:
    """How the program calls the object that it waits for: the X of X.wait(…), where that is this very object; else its type."""
    depth, frame = caller(thread)
    names = locks.names
    kind = (names.bases(address) or ("object",))[0].rpartition(".")[2]
    if frame is None:
        return kind
    position = names.position(frame)
    methods = [thread.frames[depth - 1].function] if depth else ["get", "put", "wait", "join", "acquire"]
    expressions = position.calls(*methods) if position else []
    expressions += position.entering() if position else []
    for expr in expressions:
        if position and address in names.all(expr, frame, position):
            return names.spelled(expr, frame)
    return f"{kind} ({frame.where})"


def wait_of(locks: Locks, thread: Thread, tids: dict[int, int]) -> dict[str, Any] | None:
    """What a thread in a futex waits for; None where it is no such wait. `tids`: native thread id in the process to ours."""
    futex = locks.futexes.get(thread.tid)
    if futex is None or not thread.frames:
        return None
    frame = thread.frames[0]
    if frame.file.endswith("/threading.py") and frame.function in _JOINS:
        return _join(locks, thread, tids)
    if not is_condition_wait(frame) or not locks.waited_at(frame.locals["waiter"], futex):
        return None
    names = locks.names
    owner = next((f.locals["self"] for f in reversed(thread.frames[: caller(thread)[0]]) if "self" in f.locals), None)
    if owner is None:
        return None
    bases = names.bases(owner)
    flag = next((names.plain(owner, _FLAGS[base]) for base in bases if base in _FLAGS), None)
    found = {"tid": thread.tid, "address": owner, "kind": (bases or ("",))[0], "place": place_of(locks, thread, owner)}
    return {**found, "flag": flag} if flag is not None else found


def _join(locks: Locks, thread: Thread, tids: dict[int, int]) -> dict[str, Any] | None:
    owner = next((f.locals["self"] for f in thread.frames if f.function == "join" and "self" in f.locals), None)
    if owner is None or "threading.Thread" not in locks.names.bases(owner):
        return None
    native = locks.names.plain(owner, "_native_id")
    target = tids.get(native) if isinstance(native, int) else None
    return {"tid": thread.tid, "address": owner, "kind": "join", "place": place_of(locks, thread, owner), "target": target}
