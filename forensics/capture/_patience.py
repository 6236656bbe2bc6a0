"""Calls into the kernel that may never return, made from threads that can be left behind.

Reading the command line of a process whose memory map is locked (a page fault that waits for a dead file server, say)
blocks for as long as the lock is held: `ps` is known to hang on it. A stat of a log on that server does the same.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LATER_PATIENCE = 0.3
"""Part of the patience that is left for each further item once one has hung: eight ranks that hang, hang together."""


class _Reader(Generic[K, V]):
    """A thread that works through items until it is told to stop (or hangs; it is a daemon, and dies with us)."""

    def __init__(self, items: list[K], work: Callable[[K], V]) -> None:
        self.answers: queue.SimpleQueue[tuple[K, V | None, BaseException | None]] = queue.SimpleQueue()
        self.left_behind = False
        self._items, self._work = items, work
        threading.Thread(target=self._run, name="proc-reader", daemon=True).start()

    def _run(self) -> None:
        for item in self._items:
            if self.left_behind:
                return
            try:
                self.answers.put((item, self._work(item), None))
            except BaseException as error:  # handed to the caller, who decides
                self.answers.put((item, None, error))


def each(items: Iterable[K], work: Callable[[K], V], patience_s: float) -> tuple[dict[K, V], list[K]]:
    """Call `work` on every item in turn; returns (results, items that gave no answer within `patience_s`).

    An item for which `work` raises OSError is left out. A thread that hangs is left behind and another goes on after the
    item that caught it; what it still answers before the end counts (on a starved host it was slow and not stuck).
    """
    todo = list(items)
    results: dict[K, V] = {}
    stuck: list[K] = []
    late: list[_Reader[K, V]] = []

    def keep(item: K, value: V | None, error: BaseException | None) -> None:
        if error is None:
            results[item] = value  # type: ignore[assignment]  # no error: it is what work returned
        elif not isinstance(error, OSError):
            raise error

    while todo:
        reader = _Reader(list(todo), work)
        while todo:
            try:
                answer = reader.answers.get(timeout=patience_s if not stuck else patience_s * LATER_PATIENCE)
            except queue.Empty:
                stuck.append(todo.pop(0))
                reader.left_behind = True
                late.append(reader)
                break
            todo.pop(0)
            keep(*answer)
    for reader in late:
        while not reader.answers.empty():
            answer = reader.answers.get()
            if answer[0] in stuck:
                stuck.remove(answer[0])
                keep(*answer)
    return results, stuck
