"""Calls into the kernel that may never return, made from threads that can be left behind.

Reading the command line of a process whose memory map is locked (a page fault that waits for a dead file server, say)
blocks for as long as the lock is held: `ps` is known to hang on it. A stat of a log on that server does the same.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def each(items: Iterable[K], work: Callable[[K], V], patience_s: float) -> tuple[dict[K, V], list[K]]:
    """Call `work` on every item in turn; returns (results, items that gave no answer within `patience_s`).

    An item for which `work` raises OSError is left out. A thread that hangs is abandoned (it is a daemon, and dies with us)
    and another goes on behind the item that caught it.
    """
    todo = list(items)
    results: dict[K, V] = {}
    stuck: list[K] = []
    while todo:
        answers: queue.SimpleQueue[tuple[K, V | None, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=_run, args=(list(todo), work, answers), name="proc-reader", daemon=True).start()
        while todo:
            try:
                item, value, error = answers.get(timeout=patience_s)
            except queue.Empty:
                stuck.append(todo.pop(0))
                break
            todo.pop(0)
            if error is not None and not isinstance(error, OSError):
                raise error
            if error is None:
                results[item] = value  # type: ignore[assignment]  # no error: it is what work returned
    return results, stuck


def _run(items: list[K], work: Callable[[K], V], answers: queue.SimpleQueue[tuple[K, V | None, BaseException | None]]) -> None:
    for item in items:
        try:
            answers.put((item, work(item), None))
        except BaseException as error:  # handed to the caller, who decides
            answers.put((item, None, error))
