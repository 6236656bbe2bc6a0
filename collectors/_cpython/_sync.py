"""Locks and what is made of them, as their memory shows them.

A `threading.Lock` stores no owner. A thread that is blocked on one sits in futex() at an address inside the lock's semaphore, so *who
waits* is told by that address, and *who holds* only for re-entrant locks.
"""

from __future__ import annotations

from collectors._cpython import _containers
from collectors._cpython._errors import Nonsense
from collectors._cpython._heap import Heap
from collectors._cpython._instances import base_names, own_attribute
from collectors._cpython._records import LockState
from collectors._cpython._scalars import read_int

SEMAPHORE_BYTES = 32
"""sizeof(sem_t). The futex word is its first four bytes, in glibc and in musl: the value, 0 when the lock is taken."""
_LOCK, _OWNER, _COUNT = 16, 24, 32
_WAITERS_LIMIT = 1024
_HANDLE_STATE = 52
"""Of struct ThreadHandle (3.13, Modules/_threadmodule.c): 1 not started, 2 starting, 3 running, 4 done."""


def read_lock(heap: Heap, address: int) -> LockState:
    """A Lock, RLock, Condition, Event or Thread. Raises Nonsense for any other object."""
    kind = heap.type_of(address)
    if kind.kind == "_thread.lock":
        return _plain(heap, address)
    if kind.kind == "_thread.RLock":
        return _reentrant(heap, address)
    names = base_names(heap, kind)
    if "threading._RLock" in names:
        return _reentrant_in_python(heap, address)
    if "threading.Condition" in names:
        return _condition(heap, address)
    if "threading.Event" in names:
        condition = _condition(heap, _attribute(heap, address, "_cond"))
        return condition._replace(kind="Event", address=address, locked=not _is_true(heap, _attribute(heap, address, "_flag")))
    if "threading.Thread" in names:
        return _thread(heap, address)
    raise Nonsense(address, "lock")


def _plain(heap: Heap, address: int) -> LockState:
    if heap.layout.locks == "mutex":  # 3.14: one byte; whoever waits is parked at an address of its own stack
        return LockState("Lock", address, None, bool(heap.memory.read(address + _LOCK, 1)[0] & 1))
    semaphore, locked = _semaphore(heap, address)
    return LockState("Lock", address, semaphore, locked)


def _reentrant(heap: Heap, address: int) -> LockState:
    owner, count = heap.memory.words(address + _OWNER, 2)
    if heap.layout.locks == "mutex":
        locked = bool(heap.memory.read(address + _LOCK, 1)[0] & 1)
        word, count = None, count + 1 if locked else 0  # `level` counts the re-entries only
    else:
        word, locked = _semaphore(heap, address)
    return LockState("RLock", address, word, locked, owner if count else None, count)


def _semaphore(heap: Heap, address: int) -> tuple[tuple[int, int], bool]:
    start = heap.memory.word(address + _LOCK)
    value = int.from_bytes(heap.memory.read(start, 4), "little")
    if value > 1:
        raise Nonsense(address, "lock")
    return (start, start + SEMAPHORE_BYTES), not value


def _reentrant_in_python(heap: Heap, address: int) -> LockState:
    block = read_lock(heap, _attribute(heap, address, "_block"))
    owner = own_attribute(heap, address, "_owner")
    count = read_int(heap, _attribute(heap, address, "_count"))
    ident = read_int(heap, owner) if count and owner and heap.type_of(owner).kind == "int" else None
    return block._replace(kind="RLock", address=address, owner_ident=ident, depth=count)


def _condition(heap: Heap, address: int) -> LockState:
    inner = read_lock(heap, _attribute(heap, address, "_lock"))
    waiters = _attribute(heap, address, "_waiters")
    ranges = []
    for number, waiter in enumerate(_containers.deque_items(heap, waiters)):
        word = read_lock(heap, waiter).word_range if number < _WAITERS_LIMIT else None
        if word:
            ranges.append(word)
    return inner._replace(kind="Condition", address=address, waiting=tuple(ranges))


def _thread(heap: Heap, address: int) -> LockState:
    """`owner_ident` is the thread's own ident; `word_range` is where join() waits, where that is a lock (up to 3.12)."""
    ident = own_attribute(heap, address, "_ident")
    number = read_int(heap, ident) if ident and heap.type_of(ident).kind == "int" else None
    lock = own_attribute(heap, address, "_tstate_lock")
    word = read_lock(heap, lock).word_range if lock and heap.type_of(lock).kind == "_thread.lock" else None
    return LockState("Thread", address, word, thread_alive(heap, address), number)


def thread_alive(heap: Heap, address: int) -> bool | None:
    """Whether a threading.Thread has begun and not ended; None when this version keeps it where we do not look."""
    started = own_attribute(heap, _attribute(heap, address, "_started"), "_flag")
    if started and not _is_true(heap, started):
        return False
    stopped = own_attribute(heap, address, "_is_stopped")  # up to 3.12
    if stopped and heap.type_of(stopped).kind == "bool":
        return not _is_true(heap, stopped)
    handle = own_attribute(heap, address, "_handle")
    if handle and heap.type_of(handle).kind == "_thread._ThreadHandle" and heap.layout.version == (3, 13):
        return heap.memory.read(heap.memory.word(handle + 16) + _HANDLE_STATE, 1)[0] in (2, 3)
    return None


def queue_depth(heap: Heap, address: int) -> int | None:
    """Number of items in a queue object; None when it is none. Takes no lock, as qsize() would."""
    kind = heap.type_of(address)
    if kind.kind == "_queue.SimpleQueue":
        return _containers.simple_queue(heap, address)[0]
    holder = queue_items(heap, address)
    return None if holder is None else heap.size(holder)


def queue_items(heap: Heap, address: int) -> int | None:
    """The deque or list inside a queue.Queue, an asyncio.Queue or one derived from them."""
    names = base_names(heap, heap.type_of(address))
    attribute = "queue" if "queue.Queue" in names else "_queue" if "asyncio.queues.Queue" in names else ""
    holder = own_attribute(heap, address, attribute) if attribute else None
    return holder if holder and heap.type_of(holder).kind in ("collections.deque", "list") else None


def _attribute(heap: Heap, address: int, name: str) -> int:
    value = own_attribute(heap, address, name)
    if value is None:
        raise Nonsense(address, f"object with {name}")
    return value


def _is_true(heap: Heap, address: int) -> bool:
    return heap.type_of(address).kind == "bool" and bool(read_int(heap, address))
