"""Queues and locks: depths, holders, and that a blocked thread's futex address lies where the lock says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collectors._cpython import Nonsense

from .conftest import Child

THREADS = """
import threading, queue, asyncio
lock, rlock, free = threading.Lock(), threading.RLock(), threading.Lock()
condition, event = threading.Condition(), threading.Event()
def hold(): lock.acquire(); rlock.acquire(); rlock.acquire()
hold()
tids = {}
def start(name, what):
    def run():
        tids[name] = threading.get_native_id()
        what()
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
def in_condition():
    with condition: condition.wait()
"""


def futex_of(child: Child, tid: int) -> int:
    """The address at which a thread is blocked in futex(), once it is."""
    deadline = time.monotonic() + 30
    while True:
        words = Path(f"/proc/{child.pid}/task/{tid}/syscall").read_text().split()
        if words[0] == "202":  # x86-64
            return int(words[1], 16)
        assert time.monotonic() < deadline, words
        time.sleep(0.002)


def tid_of(child: Child, name: str) -> int:
    """The thread's own id, once it has run that far."""
    deadline = time.monotonic() + 30
    while (tid := child.process.value(child.make(f"tids.get({name!r})"))) is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return int(tid)


x86_64 = pytest.mark.skipif(not Path("/proc/self/syscall").exists() or __import__("platform").machine() != "x86_64", reason="x86-64 only")


def test_locks_say_whether_they_are_held_and_by_whom(child: Child) -> None:
    child.make(THREADS)
    lock, rlock, free = (child.process.lock(child.make(name)) for name in ("lock", "rlock", "free"))
    ident = child.process.value(child.make("threading.get_ident()"))
    assert (lock.kind, lock.locked, lock.owner_ident) == ("Lock", True, None)
    assert (free.kind, free.locked) == ("Lock", False)
    assert (rlock.kind, rlock.locked, rlock.owner_ident, rlock.depth) == ("RLock", True, ident, 2)
    child.make("rlock.release(); rlock.release()")
    rlock = child.process.lock(child.make("rlock"))
    assert (rlock.locked, rlock.owner_ident, rlock.depth) == (False, None, 0)
    child.make("slow = threading._RLock(); slow.acquire()")
    slow = child.process.lock(child.make("slow"))
    assert (slow.kind, slow.locked, slow.owner_ident, slow.depth) == ("RLock", True, ident, 1)
    with pytest.raises(Nonsense):
        child.process.lock(child.make("[]"))


@x86_64
@pytest.mark.parametrize("name", ["lock", "rlock"])
def test_a_thread_that_waits_for_a_lock_sits_at_its_word(child: Child, name: str) -> None:
    child.make(THREADS)
    child.make(f"start('waiter', {name}.acquire)")
    address = futex_of(child, tid_of(child, "waiter"))
    state = child.process.lock(child.make(name))
    assert state.word_range and state.word_range[0] <= address < state.word_range[1]
    other = child.process.lock(child.make("free")).word_range
    assert other and not other[0] <= address < other[1]


@x86_64
@pytest.mark.parametrize(("name", "wait"), [("condition", "in_condition"), ("event", "event.wait")])
def test_who_waits_in_a_condition_or_for_an_event(child: Child, name: str, wait: str) -> None:
    child.make(THREADS)
    assert child.process.lock(child.make(name)).waiting == ()
    child.make(f"start('waiter', {wait})")
    address = futex_of(child, tid_of(child, "waiter"))
    state = child.process.lock(child.make(name))
    assert state.kind == name.capitalize()
    assert len(state.waiting) == 1 and state.waiting[0][0] <= address < state.waiting[0][1]
    assert state.locked is (name == "event"), "a condition lets go of its lock while it waits; an event that is not set holds up"


@x86_64
def test_threads_are_alive_until_they_end(child: Child) -> None:
    child.make(THREADS)
    child.make("gate = threading.Lock(); gate.acquire()")
    child.make("worker = start('worker', gate.acquire)")
    tid_of(child, "worker")
    state = child.process.lock(child.make("worker"))
    assert (state.kind, state.locked) == ("Thread", True)
    assert state.owner_ident == child.process.value(child.make("worker.ident"))
    assert child.read("worker")["attributes"]["_name"] == "worker"
    if child.version < (3, 13):
        child.make("start('joiner', worker.join)")
        address = futex_of(child, tid_of(child, "joiner"))
        assert state.word_range and state.word_range[0] <= address < state.word_range[1]
    child.make("gate.release(); worker.join()")
    assert child.process.lock(child.make("worker")).locked is False
    assert child.process.lock(child.make("threading.Thread()")).locked is False
    assert child.process.lock(child.make("threading.main_thread()")).locked is True


QUEUES = [
    ("queue.Queue(5)", "put", 5),
    ("queue.LifoQueue(5)", "put", 5),
    ("queue.PriorityQueue()", "put", 0),
    ("queue.SimpleQueue()", "put", None),
    ("asyncio.Queue(7)", "put_nowait", 7),
    ("asyncio.PriorityQueue(7)", "put_nowait", 7),
]


@pytest.mark.parametrize(("source", "put", "maxsize"), QUEUES)
def test_the_depth_of_every_kind_of_queue(child: Child, source: str, put: str, maxsize: int | None) -> None:
    child.make(THREADS)
    child.make(f"q = {source}")
    address = child.make("q")
    assert child.process.length(address) == 0
    child.make(f"for i in range(4): q.{put}(i)")
    assert child.process.length(address) == 4
    child.make("q.get_nowait()")
    assert child.process.length(address) == 3
    assert len([child.process.value(item) for item in child.process.items(address)]) == 3
    value = child.read("q")
    assert value["depth"] == 3
    if maxsize is not None:
        assert maxsize in (value["attributes"].get("maxsize"), value["attributes"].get("_maxsize"))


def test_a_simple_queue_that_has_turned_round(child: Child) -> None:
    child.make(THREADS)
    child.make("sq = queue.SimpleQueue()")
    child.make("for i in range(100):\n    sq.put(i)\n    if i % 3: sq.get()")
    assert child.read("sq")["items"] == child.read("[sq.get() for _ in range(sq.qsize())]")


def test_the_depth_of_a_queue_whose_mutex_is_held(child: Child) -> None:
    """qsize() would wait for it."""
    child.make(THREADS)
    child.make("q = queue.Queue(2); q.put(1); q.put(2); q.mutex.acquire()")
    assert child.process.length(child.make("q")) == 2
    assert child.process.lock(child.process.get(child.make("q"), "mutex")).locked is True
    child.make("q.mutex.release()")


def test_a_blocked_put_is_seen_in_the_queue(child: Child) -> None:
    child.make(THREADS)
    child.make("q = queue.Queue(1); q.put(1); start('putter', lambda: q.put(2))")
    tid_of(child, "putter")
    not_full = child.process.get(child.make("q"), "not_full")
    deadline = time.monotonic() + 30
    while not child.process.lock(not_full).waiting:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert child.process.length(child.make("q")) == 1
