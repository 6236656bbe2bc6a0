"""Locks, queues and waits of real processes in states that are known."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, needs_root
from live_programs import VERSIONS, Program, launch

from collectors import _pyspy

Collect = Callable[..., Collected]
Run = Callable[..., Program]
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[Program] = []

    def start(body: str, version: str = "", **modules: str) -> Program:
        program = launch(tmp_path, body, version, **modules)
        started.append(program)
        return program

    yield start
    for program in started:
        program.process.kill()
        program.process.wait()
        for pipe in (program.process.stdin, program.process.stdout):
            if pipe:
                pipe.close()


def look(collect: Collect, program: Program, *, samples: int = 1, outcome: str = "OK", **options: Any) -> dict[str, Any]:
    """What one look (the last of several) at a program found."""
    request = {"targets": [{"pid": program.pid, "role": "worker"}], "samples": samples, "interval_s": 0.01, "options": options}
    found = collect("objects", request)
    assert (found.rc, found.stderr) == (0, "")
    assert [a["outcome"] for a in found.attempts] == [outcome] * samples, found.attempts
    name = f"objects/pid-{program.pid}.{samples}.json"
    return dict(found.json(name)) if name in found.content else {}


DEADLOCK = """
table_lock, buffer_lock = threading.Lock(), threading.Lock()
both = threading.Barrier(2)
def write_back():
    with table_lock:
        both.wait()
        with buffer_lock:  # writer
            pass
def prepare():
    with buffer_lock:
        spawn("writer", write_back)
        both.wait()
        say()
        with table_lock:  # main
            pass
prepare()
"""


@every_version
def test_plain_locks_in_a_circle(collect: Collect, run: Run, version: str) -> None:
    program = run(DEADLOCK, version)
    program.settle("main", "writer")
    found = look(collect, program)
    main, writer = program.tids["main"], program.tids["writer"]
    table, buffer = sorted(found["locks"], key=lambda lock: lock["place"], reverse=True)
    assert table["place"] == f"table_lock (program.py:{program.line('# main')})"
    assert buffer["place"] == f"buffer_lock (program.py:{program.line('# writer')})"
    assert (table["waiters"], table["inside"]) == ([main], [writer])
    assert (buffer["waiters"], buffer["inside"]) == ([writer], [main])
    assert {(lock["kind"], lock["owner"], lock["count"]) for lock in found["locks"]} == {("Lock", None, None)}
    assert found["waits"] == [] and found["queues"] == [] and found["python"] == version


REENTRANT = """
class Table:
    def __init__(self):
        self.__lock = threading.RLock()
        self.other = threading.RLock()
    def forward(self):
        with self.other, self.other:
            spawn("writer", self.back)
            both.wait()
            say()
            self.take()
    def take(self):
        with self.__lock:  # main
            pass
    def back(self):
        with self.__lock:
            both.wait()
            self.other.acquire()  # writer
both = threading.Barrier(2)
Table().forward()
"""


@every_version
def test_reentrant_locks_in_a_circle_name_their_owners(collect: Collect, run: Run, version: str) -> None:
    program = run(REENTRANT, version)
    program.settle("main", "writer")
    found = look(collect, program)
    main, writer = program.tids["main"], program.tids["writer"]
    assert [
        (lock["kind"], lock["place"], lock["owner"], lock["count"], lock["waiters"])
        for lock in sorted(found["locks"], key=lambda x: x["place"])
    ] == [
        ("RLock", f"Table.__lock (program.py:{program.line('# main')})", writer, 1, [main]),
        ("RLock", f"Table.other (program.py:{program.line('# writer')})", main, 2, [writer]),
    ]
    assert all(lock["owner_known"] for lock in found["locks"])


QUEUE = """
requests = queue.Queue(maxsize=4)
class ReadyEvent:
    def __init__(self):
        self._event = threading.Event()
    def synchronize(self):
        self._event.wait()  # copier
def copy_loop():
    while True:
        requests.get().synchronize()
def fill():
    while True:
        requests.put(ReadyEvent())  # main
spawn("copier", copy_loop)
say()
fill()
"""


@every_version
def test_a_full_queue_and_a_blocked_put(collect: Collect, run: Run, version: str) -> None:
    program = run(QUEUE, version)
    program.settle("main", "copier")
    found = look(collect, program)
    (queue,) = found["queues"]
    main, copier = program.tids["main"], program.tids["copier"]
    assert (queue["depth"], queue["maxsize"], queue["unfinished"], queue["kind"]) == (4, 4, 5, "queue.Queue")
    assert queue["place"] == f"requests (program.py:{program.line('# main')})"
    assert (queue["putting"], queue["getting"], queue["takers"]) == ([main], [], [copier])
    assert found["locks"] == []
    waits = {wait["tid"]: wait for wait in found["waits"]}
    assert waits[copier]["kind"] == "threading.Event" and waits[copier]["flag"] is False
    assert waits[copier]["place"] == f"ReadyEvent._event (program.py:{program.line('# copier')})"
    assert waits[main]["address"] == queue["address"]


WAITS = """
future, done = Future(), threading.Event()
inbox, simple = queue.Queue(), queue.SimpleQueue()
ready = threading.Condition()
def result():
    future.result()
def condition():
    with ready:
        ready.wait_for(lambda: False)
def take():
    simple.get()
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
sleeper = spawn("sleeper", done.wait)
for function in (result, condition, take):
    spawn(function.__name__, function)
spawn("inbox", inbox.get)
spawn("joiner", sleeper.join)
say()
done.wait()
"""


@every_version
def test_whoever_waits_for_something_else_waits_for_no_lock(collect: Collect, run: Run, version: str) -> None:
    program = run(WAITS, version)
    names = ("main", "sleeper", "result", "condition", "take", "inbox", "joiner")
    program.settle(*names)
    found = look(collect, program)
    assert found["locks"] == []
    tids = {tid: name for name, tid in program.tids.items()}
    kinds = {tids[wait["tid"]]: wait["kind"] for wait in found["waits"]}
    assert kinds == {
        "main": "threading.Event",
        "sleeper": "threading.Event",
        "result": "concurrent.futures._base.Future",
        "condition": "threading.Condition",
        "inbox": "queue.Queue",
        "joiner": "join",
    }
    waits = {tids[wait["tid"]]: wait for wait in found["waits"]}
    assert waits["joiner"]["target"] == program.tids["sleeper"]
    assert (waits["main"].get("flag"), waits["result"].get("flag"), waits["condition"].get("flag")) == (False, "PENDING", None)
    assert waits["main"]["address"] == waits["sleeper"]["address"]
    queues = {tuple(sorted(tids[tid] for tid in queue["getting"] if tid in tids)): queue for queue in found["queues"]}
    assert queues[("inbox",)]["depth"] == queues[("take",)]["depth"] == 0
    assert queues[("take",)]["kind"] == "_queue.SimpleQueue" and queues[("take",)]["maxsize"] is None
    assert queues[()]["kind"] == "_queue.SimpleQueue"  # that of the idle pool


HOLDS = """
import helper
first, second, third = threading.Lock(), threading.Lock(), threading.Condition(threading.Lock())
gate = threading.Event()
def pair():
    with first, second:  # pair
        pass
def waits_in_its_block():
    with third:
        third.wait()
def lets_go():
    with second:
        second.release()
        gate.wait()
def wants_first():
    first.acquire()
def spins():
    with third:
        named["spinner"] = threading.get_native_id()
        gate.set()
        while True:
            sum(range(1000))
spawn("waiter", waits_in_its_block)
while not third._waiters:
    time.sleep(0.001)
spawn("keeper", helper.keep, second)
helper.kept.wait()
spawn("pair", pair)
spawn("first", wants_first)
spawn("spins", spins)
gate.wait()
spawn("third", lambda: third.acquire())
say()
sys.stdin.read()
"""
HELPER = """
import threading
kept, never = threading.Event(), threading.Event()
class Keeper:
    def __init__(self, lock):
        self.mine = lock
    def hold(self):
        with self.mine:
            kept.set()
            never.wait()
def keep(lock):
    Keeper(lock).hold()
"""


def test_who_holds_a_plain_lock(collect: Collect, run: Run) -> None:
    program = run(HOLDS, helper=HELPER)
    program.settle("pair", "keeper", "waiter", "third")
    # "first" may or may not have come before "pair": it waits either way, as pair never comes past second
    program.settle("first")
    found = look(collect, program)
    tids = {tid: name for name, tid in program.tids.items()}
    told = {lock["place"].partition(" ")[0]: lock for lock in found["locks"]}
    told = {name: ([tids[t] for t in lock["waiters"]], [tids[t] for t in lock["inside"]]) for name, lock in told.items()}
    assert told["second"] == (["pair"], ["keeper"])  # another function, another name, the same object
    assert told["first"] == (["first"], ["pair"])  # the same statement took it before it came to the second
    # whoever waits in a condition has let its lock go; the thread that runs has not moved from its line
    assert told["third"][0] == ["third"] and told["third"][1] in (["spinner"], ["spins"], [])
