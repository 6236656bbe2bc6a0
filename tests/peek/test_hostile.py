"""What may go wrong while somebody else's memory is read: it changes, it ends, it is garbage, it is not what it says it is."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors._cpython import Bounds, Gone, NotPython, OutOfBounds, PeekError, Process, Unreadable, Unsupported, attach
from collectors._cpython import _layouts as layouts
from collectors._cpython._interpreter import Interpreter
from collectors._cpython._layouts import layout_for, published
from collectors._cpython._memory import Memory

from .conftest import EVERYTHING, VERSIONS, Child, needs_root, python_of

QUICK = Bounds(depth=8, items=200, objects=2000, text=200, nbytes=1 << 20, seconds=0.2)

MUTATING = """
import threading
pair = {"a": 1000, "b": 1000}
stuff = {"list": [], "dict": {}, "deque": collections.deque(), "set": set(), "plain": Plain({"a": 0})}
going = True
def churn():
    n = 1000
    while going:
        n += 1
        pair["a"] = n
        pair["b"] = n
        stuff["list"].append([n]); stuff["dict"][str(n)] = n; stuff["deque"].append((n,)); stuff["set"].add(n)
        stuff["plain"].__dict__[str(n % 50)] = n
        if n % 97 == 0: stuff["list"].clear(); stuff["dict"].clear(); stuff["set"] = set(); stuff["plain"] = Plain({"a": n})
        if n % 3: stuff["deque"].popleft()
        if n % 89 == 0: stuff["deque"] = collections.deque()
thread = threading.Thread(target=churn, daemon=True)
thread.start()
"""


def test_a_value_that_changes_under_the_read_is_torn_or_true(child: Child) -> None:
    """What is not called torn was so at one moment: the writer keeps `a` at most one ahead of `b`."""
    child.make(MUTATING)
    pair, stuff = child.make("pair"), child.make("stuff")
    seen = {True: 0, False: 0}
    until = time.monotonic() + 1.5
    try:
        while time.monotonic() < until:
            try:
                snapshot = child.process.snapshot(pair, QUICK)
                seen[snapshot.torn] += 1
                if not snapshot.torn:
                    assert snapshot.value["a"] - snapshot.value["b"] in (0, 1)
                child.process.snapshot(stuff, QUICK)
            except (Unreadable, OutOfBounds):
                continue
    finally:
        child.make("going = False; thread.join()")
    assert sum(seen.values())
    after = child.process.snapshot(pair, EVERYTHING)
    assert not after.torn and after.value == child.process.value(child.make("dict(pair)"))


def test_a_read_is_done_anew_and_called_torn_when_it_never_holds_still(child: Child) -> None:
    child.make("moving = [1]")
    address = child.make("moving")

    def read_and(change: Callable[[int], bool]) -> tuple[Any, bool]:
        tries = 0

        def once() -> Any:
            nonlocal tries
            tries += 1
            value = child.process.decode(address, QUICK).value
            if change(tries):
                child.make("moving.append(len(moving) + 1)")
            return value

        return child.process.consistently(once)

    assert read_and(lambda tries: tries == 1) == ([1, 2], False)
    assert read_and(lambda tries: True) == ([1, 2, 3, 4], True)


def test_a_target_that_has_ended(fresh: Callable[..., Child]) -> None:
    child = fresh()
    address = child.make("[1, 2]")
    child.popen.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still there as a zombie
    with pytest.raises(Gone):
        child.process.snapshot(address)
    with pytest.raises(PeekError):
        attach(child.pid)
    child.popen.wait()
    with pytest.raises(Gone):
        attach(child.pid)


@pytest.mark.parametrize("after", [1, 5, 30, 200])
def test_a_target_that_ends_in_the_middle_of_a_read(fresh: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    child = fresh()
    address = child.make("[Plain({'a': [i]}) for i in range(500)]")
    whole, reads = Memory._pread, 0

    def dying(self: Memory, at: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == after:
            child.popen.kill()
            child.popen.wait()
        return whole(self, at, size)

    monkeypatch.setattr(Memory, "_pread", dying)
    with pytest.raises(Gone, match="ended while it was read"):
        child.process.snapshot(address, EVERYTHING)


def test_a_target_that_becomes_another_program(target: Callable[..., subprocess.Popen[str]]) -> None:
    one = target(
        "import sys, os\nx = [1]\nprint('ready', flush=True)\nsys.stdin.readline()\nos.execv(sys.executable, [sys.executable, '-c', 'import sys; print(1, flush=True); sys.stdin.read()'])"
    )
    process = attach(one.pid)
    modules = process.modules()
    assert one.stdin and one.stdout
    one.stdin.write("\n")
    one.stdin.flush()
    assert one.stdout.readline() == "1\n"
    with pytest.raises(Gone):
        process.value(modules["sys"])
    process.close()


@needs_root
def test_without_the_right_to_read() -> None:
    code = (
        "import os, sys\n"
        "from collectors._cpython import attach, Denied\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: attach(int(sys.argv[1]))\n"
        "except Denied as error: print(error.outcome, error.exit_code, error.cure)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("DENIED 3 run as root or with CAP_SYS_PTRACE"), done.stderr


def test_what_is_no_python() -> None:
    one = subprocess.Popen(["sleep", "1000"])
    try:
        with pytest.raises(NotPython, match="runs no CPython"):
            attach(one.pid)
    finally:
        one.kill()
        one.wait()
    with pytest.raises(PeekError):  # a kernel thread, or nothing at all in a namespace of its own
        attach(2)


@pytest.mark.parametrize("version", [(3, 8), (3, 9), (3, 15), (4, 0), (2, 7)])
def test_a_version_that_is_not_known_is_named(version: tuple[int, int]) -> None:
    with pytest.raises(Unsupported, match="CPython {}.{} ".format(*version)):
        layout_for(version)


@pytest.mark.parametrize("version", [(3, 7), (3, 8), (3, 9)])
def test_an_old_python_is_refused_by_name(version: tuple[int, int], target: Callable[..., subprocess.Popen[str]]) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip("no CPython {}.{} on this machine".format(*version))
    with pytest.raises(Unsupported, match="CPython {}.{} ".format(*version)):
        attach(target("import sys; print('ready', flush=True); sys.stdin.read()", python).pid)


def test_the_layout_of_another_version_is_noticed(child: Child) -> None:
    """By sys.hexversion, which would be somewhere else: nothing is read with a layout that does not fit."""
    for version in VERSIONS:
        layout = layouts._TABLE[version]
        if version == child.version:
            continue
        other = Interpreter(version, child.process.interpreter.runtime, layout, "python")
        with pytest.raises(Unsupported, match="CPython {}.{}".format(*version)):
            Process(child.process.memory, other).check()


def published_by(child: Child) -> bytes:
    return child.process.memory.read(child.process.interpreter.runtime, layouts.PUBLISHED_BYTES)


@pytest.fixture(scope="module")
def newest() -> Any:
    """A CPython that publishes its offsets."""
    python = python_of((3, 13))
    if python is None:
        pytest.skip("no CPython 3.13 on this machine")
    made = Child(python)
    yield made
    made.end()


def patched(monkeypatch: pytest.MonkeyPatch, child: Child, word: int, value: int) -> None:
    """Let the process publish another value."""
    whole, at = Memory._pread, child.process.interpreter.runtime

    def pread(self: Memory, address: int, size: int) -> bytes:
        data = whole(self, address, size)
        if address == at:
            data = data[: 8 * word] + value.to_bytes(8, "little") + data[8 * word + 8 :]
        return data

    monkeypatch.setattr(Memory, "_pread", pread)


def test_published_offsets_agree_with_the_table(newest: Child) -> None:
    """And so the table is right where nothing is published."""
    assert newest.process.heap.layout == layouts._TABLE[3, 13]
    version, free_threaded, _ = published(published_by(newest)) or ((0, 0), True, b"")
    assert version == (3, 13) and not free_threaded


def test_a_free_threaded_build_is_refused_by_name(newest: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, newest, 2, 1)
    with pytest.raises(Unsupported, match=r"free-threaded CPython 3\.13"):
        attach(newest.pid)


@pytest.mark.parametrize(
    ("hexversion", "said"), [(0x030F00F0, "CPython 3.15 "), (0x030E00F0, "not in the order that we know|modules are not")]
)
def test_a_newer_python_is_refused_unless_it_fits(newest: Child, monkeypatch: pytest.MonkeyPatch, hexversion: int, said: str) -> None:
    patched(monkeypatch, newest, 1, hexversion)
    with pytest.raises(Unsupported, match=said):
        attach(newest.pid)


def test_offsets_that_cannot_be_are_refused() -> None:
    raw = layouts.COOKIE + (0x030D00F0).to_bytes(8, "little") + bytes(8) + b"\xff" * 1000
    with pytest.raises(Unsupported, match="order that we know"):
        layout_for((3, 13), raw)
    with pytest.raises(Unsupported, match="does not publish"):
        layout_for((3, 13), raw[:64])


def test_modules_are_found_where_another_build_keeps_them(child: Child) -> None:
    interpreter = child.process.interpreter
    moved = interpreter.layout._replace(interp_modules=interpreter.layout.interp_modules + 8)
    process = Process(child.process.memory, interpreter._replace(layout=moved))
    process.check()
    assert "sys" in process.modules()


def readable(pid: int) -> list[tuple[int, int]]:
    """Mapped memory that may be read."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    ranges = [re.match(r"(\w+)-(\w+) r", line) for line in lines if "[v" not in line]
    return [(int(found[1], 16), int(found[2], 16)) for found in ranges if found]


def everything_at(process: Process, address: int) -> None:
    """Every way of reading an address; only errors of ours may come out, and in bounded time."""
    reads: list[Callable[[int], Any]] = [
        lambda at: process.snapshot(at, Bounds(depth=4, items=20, objects=200, text=50, nbytes=1 << 18, seconds=0.05)),
        process.type_name,
        process.attributes,
        process.length,
        process.lock,
        process.globals_of,
        process.closure_of,
        process.content_of,
        lambda at: list(process.items(at, 50)),
        lambda at: list(process.pairs(at, 50)),
        lambda at: process.get(at, "anything"),
    ]
    for read in reads:
        try:
            read(address)
        except Gone:
            raise
        except PeekError:
            pass


def test_random_addresses_never_crash_the_reader(child: Child) -> None:
    chance = random.Random(3)
    ranges = readable(child.pid)
    wild = [0, 1, 7, 8, 0xFFF, 0x1000, 1 << 47, (1 << 56) - 8, 1 << 56, (1 << 64) - 8, -8, *(chance.getrandbits(64) for _ in range(50))]
    inside = [chance.randrange(*chance.choice(ranges)) & ~(7 if chance.random() < 0.9 else 0) for _ in range(400)]
    for address in wild + inside:
        everything_at(child.process, address)


def test_corrupted_memory_never_crashes_the_reader(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real objects, in whose memory a bit or a word reads wrongly now and then."""
    child.make("import queue, threading")
    addresses = [
        child.make(source)
        for source in (
            "[1, 'a', (2.5, b'x'), {'k': {1, 2}}, 2**100]",
            "{'a': {1: 2}, 3: [4]}",
            "rotated(range(200), 30)",
            "Plain({'a': 1, 'b': Opened({'c': Slotted(1, Mixed(2, 3, d=4))})})",
            "queue.Queue(3)",
            "queue.SimpleQueue()",
            "threading.Thread()",
            "collections.OrderedDict(a=1, b=2)",
            "churned_set('abc')",
            "Text('abc')",
            "Count(2**70)",
        )
    ]
    chance = random.Random(11)
    whole = Memory._pread

    def pread(self: Memory, address: int, size: int) -> bytes:
        data = bytearray(whole(self, address, size))
        if data and chance.random() < 0.05:
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at] ^= 1 << chance.randrange(8)
            else:
                word = chance.choice([0, (1 << 64) - 1, 1 << 62, address, address & ~0xFFF, chance.getrandbits(64)])
                data[at // 8 * 8 : at // 8 * 8 + 8] = word.to_bytes(8, "little")[: len(data) - at // 8 * 8]
        return bytes(data)

    monkeypatch.setattr(Memory, "_pread", pread)
    for _ in range(25):
        for address in addresses:
            child.process.heap.forget()
            everything_at(child.process, address)


def test_reading_leaves_the_target_as_it_was(fresh: Callable[..., Child]) -> None:
    child = fresh()
    address = child.make("[Plain({'a': 1})]")

    def facts() -> dict[str, str]:
        lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        return {
            name: value
            for name, _, value in (line.partition(":") for line in lines)
            if name in ("State", "TracerPid", "SigPnd", "voluntary_ctxt_switches")
        }

    deadline = time.monotonic() + 30
    while "S" not in facts()["State"]:
        assert time.monotonic() < deadline
    before = facts()
    with attach(child.pid) as process:
        process.snapshot(address, EVERYTHING)
        process.modules()
    assert facts() == before, "not even woken once"
