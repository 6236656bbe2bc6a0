"""Locks, queues and waits of real processes in states that are known."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, needs_root
from live_programs import VERSIONS, Program, launch

from collectors import _moment, _pyspy, _threads
from collectors._cpython import attach
from collectors._sources import CLOCK_SLACK_NS

Collect = Callable[..., Collected]
Run = Callable[..., Program]
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[Program] = []

    def start(body: str, version: str = "", prefix: Sequence[str] = (), **modules: str) -> Program:
        program = launch(tmp_path, body, version, prefix, **modules)
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


CLOSURE = """
class Blocks:
    def __init__(self):
        self.blocks, self.table = threading.Lock(), threading.Lock()
    def exchange(self):
        theirs = threading.Event()
        def evict():
            with self.table:
                theirs.set()
                with self.blocks:  # evictor
                    pass
        with self.blocks:
            spawn("evictor", evict)
            theirs.wait()
            say()
            with self.table:  # main
                pass
Blocks().exchange()
"""


@every_version
def test_locks_that_an_inner_function_shares(collect: Collect, run: Run, version: str) -> None:
    """`self` is then no plain local: a cell here, and there a free variable that only the function object keeps."""
    program = run(CLOSURE, version)
    program.settle("main", "evictor")
    main, evictor = program.tids["main"], program.tids["evictor"]
    blocks, table = sorted(look(collect, program)["locks"], key=lambda lock: lock["place"])
    assert (blocks["place"], blocks["waiters"], blocks["inside"]) == (
        f"Blocks.blocks (program.py:{program.line('# evictor')})",
        [evictor],
        [main],
    )
    assert (table["place"], table["waiters"], table["inside"]) == (f"Blocks.table (program.py:{program.line('# main')})", [main], [evictor])


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
        (lock["kind"], lock["place"], lock["owner"], lock["count"], lock["waiters"], lock["inside"])
        for lock in sorted(found["locks"], key=lambda x: x["place"])
    ] == [
        ("RLock", f"Table.__lock (program.py:{program.line('# main')})", writer, 1, [main], [writer]),
        ("RLock", f"Table.other (program.py:{program.line('# writer')})", main, 2, [writer], [main]),
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


TAKERS = """
full, other = queue.Queue(1), queue.Queue(1)
full.put(1)
def maker(inbox):
    def consume():
        while True:
            never.wait()
            inbox.get()
    return consume
def call(a, b):
    a()
never = threading.Event()
spawn("of another", call, maker(other), maker(full))
spawn("of this", call, maker(full), maker(other))
def fill():
    full.put(2)
spawn("fill", fill)
say()
never.wait()
"""


@every_version
def test_takers_are_those_of_this_queue(collect: Collect, run: Run, version: str) -> None:
    """Two closures of one function: which one runs, its frame tells and not what its caller holds."""
    program = run(TAKERS, version)
    program.settle(*program.tids)
    (blocked,) = [queue for queue in look(collect, program)["queues"] if queue["putting"]]
    assert (blocked["putting"], blocked["takers"]) == ([program.tids["fill"]], [program.tids["of this"]])


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
fourth = threading.Lock()
def own_condition():
    with fourth:
        pause()
def pause():
    fourth.release()
    gate.wait(), time.sleep(1000)
    fourth.acquire()
def takes_over():
    fourth.acquire()
    time.sleep(1000)
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
spawn("own", own_condition)
spawn("taker", takes_over)
spawn("spins", spins)
gate.wait()
while not fourth.locked():
    time.sleep(0.001)
spawn("fourth", lambda: fourth.acquire())
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
    program.settle("first", "fourth")
    found = look(collect, program)
    tids = {tid: name for name, tid in program.tids.items()}
    told = {lock["place"].partition(" ")[0]: lock for lock in found["locks"]}
    told = {name: ([tids[t] for t in lock["waiters"]], [tids[t] for t in lock["inside"]]) for name, lock in told.items()}
    assert told["second"] == (["pair"], ["keeper"])  # another function, another name, the same object
    assert told["first"] == (["first"], ["pair"])  # the same statement took it before it came to the second
    assert told["fourth"] == (["fourth"], [])  # a function called in the block released it, and another has it now
    # whoever waits in a condition has let its lock go; the thread that runs has not moved from its line
    assert told["third"][0] == ["third"] and told["third"][1] in (["spinner"], ["spins"], [])


SWAPPED = """
import importlib.util, types, other
arrived, never = threading.Event(), threading.Event()
def stay():
    arrived.set()
    never.wait()
class Box:
    def __init__(self):
        self.lock = threading.Lock()
class Computed:
    def __get__(self, box, kind=None):
        return box.real
    def __set__(self, box, value):
        pass
class Shadowed:
    lock = Computed()
box, shadowed = Box(), Shadowed()
shadowed.__dict__["lock"], shadowed.real = threading.Lock(), threading.Lock()
changing, fixed = threading.Lock(), threading.Lock()
copied, captured, rebound, second = [threading.Lock() for _ in range(4)]
def attribute():
    with box.lock:
        stay()
def descriptor():
    with shadowed.lock:
        stay()
def module_variable():
    with changing:
        stay()
def globals_():
    with fixed:
        stay()
def closure():
    def make(lock):
        def work():
            with lock:
                stay()
        return work
    def call(a, b):
        b()
    call(make(second), make(copied))
def capture():
    lock = captured
    with lock:
        match second:
            case lock:
                stay()
def inner():
    lock = rebound
    def swap():
        nonlocal lock
        lock = second
    with lock:
        swap()
        stay()
def want(lock):
    lock.acquire()
def look(function, entered, name=""):
    named_now = spawn(name or function.__name__, function)
    arrived.wait()
    arrived.clear()
    spawn((name or function.__name__) + " entered", want, entered)
look(attribute, box.lock)
look(descriptor, shadowed.real)
look(module_variable, changing)
own = {"fixed": threading.Lock(), "stay": stay}
look(types.FunctionType(globals_.__code__, own), own["fixed"], "globals_")
look(closure, copied)
look(capture, captured)
look(inner, rebound)
spec = importlib.util.spec_from_file_location("plugin", other.__file__)
plugin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plugin)
plugin.stay = stay
look(plugin.module_copy, plugin.lock)
box.lock, changing = threading.Lock(), threading.Lock()
for number, lock in enumerate((box.lock, changing, fixed, shadowed.__dict__["lock"], second, other.lock)):
    lock.acquire()
    spawn(f"free {number}", want, lock)
say()
never.wait()
"""
OTHER = """
import threading
lock = threading.Lock()
def module_copy():
    with lock:
        stay()
"""


@every_version
def test_a_holder_is_inside_the_lock_that_it_took_whatever_its_name_means_now(collect: Collect, run: Run, version: str) -> None:
    program = run(SWAPPED, version, other=OTHER)
    program.settle(*program.tids)
    names = {tid: name for name, tid in program.tids.items()}
    found = {names[lock["waiters"][0]]: [names[tid] for tid in lock["inside"]] for lock in look(collect, program)["locks"]}
    cases = ("attribute", "descriptor", "module_variable", "globals_", "closure", "capture", "inner", "module_copy")
    assert found == {f"{name} entered": [name] for name in cases} | {f"free {number}": [] for number in range(6)}


LET_GO = """
locks = {name: threading.Lock() for name in ("call", "alias", "local", "exit", "text", "condition", "another", "entering", "left")}
alias, another, noise = locks["alias"].release, threading.Lock(), threading.Lock()
arrived, never = threading.Event(), threading.Event()
another.acquire()
def stay():
    arrived.set()
    never.wait()
def call(lock):
    with lock:
        lock.release()
        stay()
def of_alias(lock):
    with lock:
        alias()
        stay()
def local(lock, go):
    with lock:
        go()
        stay()
def exit_(lock):
    with lock:
        lock.__exit__(None, None, None)
        stay()
def text(lock):
    with lock:
        getattr(lock, "release")()
        stay()
def condition(lock):
    waits = threading.Condition(lock)
    with lock:
        arrived.set()
        waits.wait()
def of_another(lock):
    with lock:
        another.release()
        another.acquire()
        stay()
def left(lock):
    with lock:
        pass
    stay()
def look(function, lock, *more):
    spawn(function.__name__, function, lock, *more)
    arrived.wait()
    arrived.clear()
def want(lock):
    lock.acquire()
look(call, locks["call"])
look(of_alias, locks["alias"])
look(local, locks["local"], locks["local"].release)
look(exit_, locks["exit"])
look(text, locks["text"])
look(condition, locks["condition"])
look(of_another, locks["another"])
look(left, locks["left"])
def entering(lock):
    with lock:
        pass
locks["entering"].acquire()
spawn("entering", entering, locks["entering"])
for name, lock in locks.items():
    if name != "another":
        lock.acquire(timeout=0 if name == "entering" else 60)
    spawn("of " + name, want, lock)
say()
never.wait()
"""


@every_version
def test_who_may_have_let_go_is_not_called_the_holder(collect: Collect, run: Run, version: str) -> None:
    program = run(LET_GO, version)
    program.settle(*program.tids)
    names = {tid: name for name, tid in program.tids.items()}
    found = {names[max(lock["waiters"])]: [names[tid] for tid in lock["inside"]] for lock in look(collect, program)["locks"]}
    told = ("call", "alias", "local", "exit", "text", "condition", "entering", "left")
    assert found == {f"of {name}": [] for name in told} | {"of another": ["of_another"]}


KINDS = """
left, generated, own, twice = threading.RLock(), threading.Lock(), threading._PyRLock(), threading.Lock()
arrived, never = threading.Event(), threading.Event()
def stay():
    arrived.set()
    never.wait()
ident = []
def dies():
    left.acquire()
    ident.append(threading.get_ident())
def generator():
    with generated:
        yield
        stay()
def generates():
    for _ in generator():
        pass
def in_python():
    with own, own:
        stay()
def itself():
    with twice:
        with twice:  # twice
            pass
def want(lock):
    with lock:
        pass
dead = threading.Thread(target=dies)
dead.start(), dead.join()
for number in range(20):
    spawn(f"idle {number}", never.wait)
named["heir"] = next((t.native_id for t in threading.enumerate() if t.ident == ident[0]), 0)
for function in (generates, in_python):
    spawn(function.__name__, function)
    arrived.wait()
    arrived.clear()
for lock, name in ((left, "left"), (generated, "generated"), (own, "own")):
    spawn("wants " + name, want, lock)
spawn("itself", itself)
say()
never.wait()
"""


@every_version
def test_holders_of_every_kind_of_lock(collect: Collect, run: Run, version: str) -> None:
    program = run(KINDS, version)
    if not program.tids["heir"]:
        pytest.skip("no thread was given the ident of the one that ended")
    program.settle(*program.tids)
    tids = program.tids
    found = {lock["waiters"][0]: lock for lock in look(collect, program)["locks"]}
    told = {
        name: (found[tids[name]]["kind"], found[tids[name]]["owner"], found[tids[name]]["inside"]) for name in tids if tids[name] in found
    }
    assert told == {
        # its owner has ended, and the thread that carries its ident now was never inside
        "wants left": ("RLock", tids["heir"], []),
        "wants generated": ("Lock", None, [tids["generates"]]),
        "wants own": ("RLock", tids["in_python"], [tids["in_python"]]),
        "itself": ("Lock", None, [tids["itself"]]),
    }
    own = found[tids["wants own"]]
    assert own["count"] == 2 and own["place"].startswith("lock (program.py:")
    assert {name: found[tids[name]]["owner_known"] for name in told} == {
        "wants left": True,
        "wants generated": False,
        "wants own": True,
        "itself": False,
    }


LARGE = """
class Large:
    pass
large = Large()
for number in range(700_000):
    large.__dict__["k%d" % number] = None
large.lock, small = threading.Lock(), threading.Lock()
x = Large()
x.a = x
x.lock = threading.Lock()
never, arrived = threading.Event(), threading.Barrier(4)
def in_large(self):
    with self.lock:
        arrived.wait()
        never.wait()
def wants_large(self):
    with self.lock:
        pass
def in_small():
    with small:
        arrived.wait()
        never.wait()
def wants_small():
    with small:
        pass
def in_deep():
    with x.lock:
        arrived.wait()
        never.wait()
def wants_deep():
    with x{deep}.lock:
        pass
spawn("in large", in_large, large)
spawn("in small", in_small)
spawn("in deep", in_deep)
arrived.wait()
spawn("wants large", wants_large, large)
spawn("wants small", wants_small)
spawn("wants deep", wants_deep)
say()
never.wait()
"""


def test_what_is_too_large_costs_only_itself(collect: Collect, run: Run) -> None:
    program = run(LARGE.format(deep=".a" * 400))
    program.settle(*program.tids)
    found = look(collect, program)
    told = {tuple(lock["waiters"]): lock["inside"] for lock in found["locks"]}
    assert told[program.tids["wants small"],] == [program.tids["in small"]]
    assert told.get((program.tids["wants deep"],), [program.tids["in deep"]]) == [program.tids["in deep"]]
    assert told.get((program.tids["wants large"],), [program.tids["in large"]]) == [program.tids["in large"]]
    assert {wait["tid"] for wait in found["waits"]} >= {program.tids[name] for name in ("main", "in large", "in small", "in deep")}


def test_a_kernel_that_does_not_say_where_threads_wait(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    program = run(DEADLOCK)
    program.settle("main", "writer")
    assert _threads.blind(program.pid, program.pid) == ""
    with pytest.raises(FileNotFoundError):
        _threads.blind(program.pid, 1)
    py_spy = _pyspy.find()
    assert py_spy
    with attach(program.pid) as process:
        assert _moment.Moment(process, py_spy, 30).verdict == ("OK", "", "")
        monkeypatch.setattr(_moment, "at_futex", lambda pid, tid: None)
        monkeypatch.setattr(_moment, "blind", lambda pid, tid: "No such file or directory")
        outcome, reason, cure = _moment.Moment(process, py_spy, 30).verdict
    assert outcome == "PARTIAL" and "syscall: No such file or directory" in reason and cure


def test_a_source_that_changed_since_the_start_names_nothing(collect: Collect, run: Run) -> None:
    program = run(DEADLOCK)
    program.settle("main", "writer")
    later = time.time_ns() + 2 * CLOCK_SLACK_NS  # as an editor would leave it; a start is told to no more than this
    os.utime(program.path, ns=(later, later))
    found = look(collect, program)
    # who waits and who is inside is told by memory alone; the names are those of what frames and modules hold
    both = tuple(program.tids.values())
    assert {(*lock["waiters"], *lock["inside"]) for lock in found["locks"]} == {both, both[::-1]}
    assert {lock["place"].partition(" ")[0] for lock in found["locks"]} == {"table_lock", "buffer_lock"}
    assert f"{program.path}: changed after the process started" in found["notes"]


BUSY = """
low, high = threading.Lock(), threading.Lock()
def work():
    while True:
        with low:
            with high:
                sum(range(50))
for i in range(4):
    spawn(f"t{i}", work)
say()
sys.stdin.read()
"""


def test_locks_that_come_and_go_are_held_by_nobody_twice(collect: Collect, run: Run) -> None:
    program = run(BUSY)
    request = {"targets": [{"pid": program.pid}], "samples": 15, "interval_s": 0.01}
    found = collect("objects", request)
    assert {a["outcome"] for a in found.attempts} == {"OK"}
    for name in found.content:
        locks = found.json(name)["locks"]
        assert all(len(lock["inside"]) <= 1 and not set(lock["inside"]) & set(lock["waiters"]) for lock in locks), locks
        # the locks are always taken in one order: whoever has the second waits for none
        assert all(lock["place"].startswith("low") for lock in locks if lock["inside"] and lock["waiters"]) or len(locks) < 2, locks


def test_a_process_that_ends_while_it_is_read(collect: Collect, run: Run, tmp_path: Path) -> None:
    """It is killed as soon as py-spy has printed: whatever memory is asked for after that is gone."""
    program = run(DEADLOCK)
    program.settle("main", "writer")
    script = tmp_path / "py-spy"
    script.write_text(f'#!/bin/sh\n{_pyspy.find()} "$@"\nkill -9 {program.pid}\nwhile [ -d /proc/{program.pid}/fd/0 ]; do :; done\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    request = {"targets": [{"pid": program.pid}], "samples": 2, "interval_s": 0.01, "options": {"py_spy": str(script)}}
    found = collect("objects", request)
    first, second = found.attempts
    assert (found.rc, found.stderr) == (0, "")
    assert first["outcome"] in ("PARTIAL", "OK", "ABSENT") and second["outcome"] == "ABSENT"
    for name in found.content:
        assert found.json(name)["locks"] == [], "what could not be read twice is not told"


def test_a_stopped_process_is_read_as_any_other(collect: Collect, run: Run) -> None:
    program = run(DEADLOCK)
    program.settle("main", "writer")
    os.kill(program.pid, signal.SIGSTOP)
    program.wait_for(lambda: b"State:\tT" in Path(f"/proc/{program.pid}/status").read_bytes(), "a stop")
    found = look(collect, program)
    assert sorted((lock["waiters"], lock["inside"]) for lock in found["locks"]) == sorted(
        ([a], [b]) for a, b in (tuple(program.tids.values()), tuple(program.tids.values())[::-1])
    )
    assert b"State:\tT" in Path(f"/proc/{program.pid}/status").read_bytes()


@needs_root
def test_without_permission(collect: Collect, run: Run) -> None:
    program = run(QUEUE)
    py_spy = _pyspy.find()
    assert py_spy
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        request = {"targets": [{"pid": program.pid}], "samples": 1, "options": {"py_spy": shutil.copy(py_spy, folder)}}
        (attempt,) = collect("objects", request, as_nobody=True).attempts
    assert attempt["outcome"] == "DENIED" and "CAP_SYS_PTRACE" in attempt["cure"] and attempt["evidence"] == []


def test_without_py_spy(collect: Collect, run: Run) -> None:
    program = run(QUEUE)
    (attempt,) = collect("objects", {"targets": [{"pid": program.pid}], "samples": 1, "options": {"py_spy": "/nonexistent"}}).attempts
    assert attempt["outcome"] == "SKIPPED" and "install py-spy" in attempt["cure"]


VALUES = """
SECRET = "tell me of the harbour at night"
class Request:
    def __init__(self, n):
        self.request_id = f"chatcmpl-{n:04d}deadbeefcafe"
        self.prompt = SECRET
        self.prompt_token_ids = [4711, 4712, 4713, 4714, 4715]
class Config:
    def __init__(self):
        self.async_scheduling = True
        self.limits = {"steps": 3}
class Base:
    def __init__(self):
        self.config = Config()
        self.running = [Request(n) for n in range(3)]
        self.batches, self.started, self.never = None, time.monotonic() - 100, sys.maxsize
        self.slot, self.requests = queue.Queue(maxsize=1), queue.Queue()
        self.slot.put(Request(7))
        for request in self.running:
            self.requests.put(request)
class Core(Base):
    def run(self):
        say()
        self.wait(SECRET, [4711, 4712, 4713, 4714, 4715])
    def wait(self, prompt, prompt_token_ids):
        request_id = "chatcmpl-0001deadbeefcafe"
        self.slot.put(request_id)
os.environ["TIME_LIMIT_S"] = "300"
Core().run()
"""
LIVE = [
    {"name": "async", "expr": "Base.config.async_scheduling"},
    {"name": "running", "expr": "len(Core.requests_of_old)"},
    {"name": "running", "expr": "len(Core.running)", "role": "worker"},
    {"name": "running", "expr": "len(Core.config)"},
    {"name": "batches", "expr": "Core.batches"},
    {"name": "config", "expr": "Core.config"},
    {"name": "steps", "expr": "Core.config.limits['steps']"},
    {"name": "age_s", "expr": "Core.started", "clock": "age"},
    {"name": "left_s", "expr": "Core.never", "clock": "left"},
    {"name": "limit_s", "expr": "os.environ['TIME_LIMIT_S']"},
    {"name": "of_another", "expr": "len(Core.running)", "role": "core"},
    {"name": "wrong", "expr": "Core.running +"},
    # declared by mistake: what a user wrote stays where it is all the same
    {"name": "text", "expr": "Core.running[0].prompt"},
    {"name": "id", "expr": "Core.running[0].request_id"},
    {"name": "ids", "expr": "Core.running[0].prompt_token_ids"},
    {"name": "request", "expr": "Core.running[0]"},
]


@every_version
def test_declared_values(collect: Collect, run: Run, version: str) -> None:
    program = run(VALUES, version)
    program.settle("main")
    found = look(collect, program, live=LIVE)
    values = {value["name"]: value for value in found["values"]}
    age = values.pop("age_s")["value"]
    assert age >= 100
    assert {name: value["value"] for name, value in values.items()} == {
        "async": True,
        "running": 3,
        "batches": None,
        "config": "…",
        "steps": 3,
        "left_s": None,
        "limit_s": "300",
        "text": "…",
        "id": "…",
        "ids": "…",
        "request": "…",
    }
    assert values["config"]["type"] == "__main__.Config" and values["running"]["expr"] == "len(Core.running)"
    assert not any(value["torn"] for value in found["values"])
    # a queue of one is listed although nobody asked for it, an unbounded one that nobody is in is not
    assert [(q["place"].partition(" ")[0], q["depth"], q["maxsize"]) for q in found["queues"]] == [("Core.slot", 1, 1)]


def test_of_an_engine_that_may_be_well_only_values_of_one_role_are_read(collect: Collect, run: Run) -> None:
    program = run(VALUES)
    program.settle("main")
    found = look(collect, program, live=LIVE, only_values_of="worker")
    assert found["values"] and not (found["queues"] or found["locks"] or found["waits"])
    other = collect("objects", {"targets": [{"pid": program.pid, "role": "api"}], "samples": 1, "options": {"only_values_of": "core"}})
    assert [a["outcome"] for a in other.attempts] == ["SKIPPED"] and not other.content


def test_nothing_that_a_user_wrote_reaches_the_bundle(collect: Collect, run: Run, tmp_path: Path) -> None:
    """Through the writer that a capture uses; and what a diagnosis needs passes it unchanged."""
    from forensics.bundle import BundleWriter

    program = run(VALUES)
    program.settle("main")
    request = {"targets": [{"pid": program.pid, "role": "worker"}], "samples": 1, "options": {"live": LIVE}}
    found = collect("objects", request)
    (name,) = found.content
    with BundleWriter(tmp_path / "out", "node-1") as writer:
        evidence = writer.add(name, "live-json", found.content[name], collector="objects", pid=program.pid, sample=1)
    assert evidence.redactions == 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*.json"))
    assert json.loads(found.content[name]) == json.loads(next((tmp_path / "out").rglob(f"pid-{program.pid}.1.json")).read_bytes())
    for secret in (b"harbour", b"deadbeef", b"4712", b"chatcmpl"):
        assert secret not in written and secret not in found.content[name]


PASSING = """
class Wait:
    def __init__(self):
        self.started = time.monotonic()
def once(limit):
    wait = Wait()
    return limit * 2
def standing(wait, limit):
    if not say():
        sys.stdin.read()
def running():
    for n in range(10**9):
        once(n / 7)
if "{kind}" == "runs":
    spawn("running", running)
    say()
    sys.stdin.read()
else:
    standing(Wait(), 12.5)
"""


@every_version
def test_a_value_of_a_wait_is_told_while_it_lasts(collect: Collect, run: Run, version: str) -> None:
    live = [{"name": "limit", "expr": "limit", "passing": True}, {"name": "age", "expr": "Wait.started", "clock": "age", "passing": True}]
    values = {v["name"]: v["value"] for v in look(collect, run(PASSING.format(kind="stands"), version), live=live)["values"]}
    assert values["limit"] == 12.5 and values["age"] >= 0


def test_a_value_of_a_wait_that_is_over_is_not_told(collect: Collect, run: Run) -> None:
    """The memory of its number is used for the next one at once."""
    live = [{"name": "limit", "expr": "limit", "passing": True}]
    program = run(PASSING.format(kind="runs"))
    # on a machine so busy that it does not move between two dumps, the value stands after all
    assert [] in [look(collect, program, live=live)["values"] for _ in range(5)]


@pytest.mark.parametrize("printed", ["[]", "{}", "[1, 2]", '[{"frames": 3}]', "[" * 100_000, '[{"frames": [{"name": 1}]}]', "nan"])
def test_whatever_py_spy_prints_is_judged(collect: Collect, run: Run, tmp_path: Path, printed: str) -> None:
    program = run(QUEUE)
    script = tmp_path / "py-spy"
    (tmp_path / "printed").write_text(printed)
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/printed\n")
    script.chmod(0o755)
    look(collect, program, outcome="OK" if printed == "[]" else "UNSUPPORTED", py_spy=str(script))


@needs_root
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")
def test_threads_of_another_pid_namespace_carry_our_ids(collect: Collect, run: Run) -> None:
    program = run(DEADLOCK, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    (child,) = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    held = {int(tid): Path(f"/proc/{child}/task/{tid}/comm") for tid in os.listdir(f"/proc/{child}/task")}
    assert len(held) == 2 and not set(held) & set(program.tids.values())
    found: list[dict[str, Any]] = []

    def deadlocked() -> bool:
        collected = collect("objects", {"targets": [{"pid": int(child)}], "samples": 1})
        found[:] = collected.json(f"objects/pid-{child}.1.json")["locks"]
        return len(found) == 2

    program.wait_for(deadlocked, "its deadlock")
    assert {(*lock["waiters"], *lock["inside"]) for lock in found} == {tuple(held), tuple(held)[::-1]}


SHARED = """
import multiprocessing
shared = multiprocessing.get_context("fork").Queue(maxsize=3)
def fill():
    while True:
        shared.put(b"x")  # put
def take():
    other.get()  # get
other = multiprocessing.get_context("fork").Queue()
spawn("take", take)
if __name__ == "__main__":
    say()
    fill()
"""


@every_version
def test_queues_between_processes(collect: Collect, run: Run, version: str) -> None:
    program = run(SHARED, version)
    program.settle("main")
    queues = {queue["place"]: queue for queue in look(collect, program)["queues"] if queue["kind"] == "multiprocessing.queues.Queue"}
    full = queues.pop(f"shared (program.py:{program.line('# put')})")
    assert (full["depth"], full["maxsize"], full["putting"]) == (3, 3, [program.tids["main"]])
    (empty,) = queues.values()
    assert (empty["depth"], empty["maxsize"], empty["getting"]) == (0, None, [program.tids["take"]])


FORKED = """
child = os.fork()
if child:
    try:
        os.waitpid(child, 0)
    finally:
        os._exit(0)
import ctypes
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with the process that the test started
named["main"] = threading.get_native_id()
"""


@every_version
def test_a_forked_process_knows_its_main_thread(collect: Collect, run: Run, version: str) -> None:
    """Its `threading` module may still hold the id that the main thread had in the parent."""
    program = run(FORKED + DEADLOCK, version)
    child = program.tids["main"]
    assert child != program.pid
    found: list[dict[str, Any]] = []

    def deadlocked() -> bool:
        collected = collect("objects", {"targets": [{"pid": child}], "samples": 1})
        found[:] = collected.json(f"objects/pid-{child}.1.json")["locks"]
        return len(found) == 2

    program.wait_for(deadlocked, "its deadlock")
    main, writer = child, program.tids["writer"]
    assert sorted((lock["waiters"], lock["inside"]) for lock in found) == sorted([([main], [writer]), ([writer], [main])])
