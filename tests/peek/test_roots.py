"""What frames hold: addresses by way of py-spy, and nothing else of what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors._cpython import Gone, NoRoots, Process, Root, attach, evaluate, parse_dump, roots, thread_ids
from collectors._pyspy import find

from .conftest import needs_root, python_of

PY_SPY = find() or ""
pytestmark = pytest.mark.skipif(not PY_SPY, reason="no py-spy program here")
Target = Callable[..., "subprocess.Popen[str]"]

PROGRAM = """
import queue, sys, threading
class Engine:
    def __init__(self): self.q, self.lock = queue.Queue(3), threading.RLock()
    def step(self, batch, go):
        with self.lock:
            self.q.put(batch)
            go.wait()
def report(): print("ready", flush=True); sys.stdin.read()
engine, go = Engine(), threading.Event()
worker = threading.Thread(target=engine.step, args=([1, 2], go), name="worker-\\x1b[1m", daemon=True)
worker.start()
while not go._cond._waiters: pass
report()
"""


@pytest.fixture(params=[(3, 10), (3, 11), (3, 12), (3, 13)], ids=str)
def engine(request: pytest.FixtureRequest, target: Target) -> subprocess.Popen[str]:
    python = python_of(request.param)
    if python is None:
        pytest.skip("no CPython {}.{} on this machine".format(*request.param))
    return target(PROGRAM, python)


def by_name(held: list[Root], name: str, frame: str) -> Root:
    found = [one for one in held if one.name == name and one.frame.endswith(frame)]
    assert len(found) == 1, held
    return found[0]


def test_locals_of_every_frame_with_their_threads(engine: subprocess.Popen[str]) -> None:
    with attach(engine.pid) as process:
        held = roots(process, PY_SPY)
        this = by_name(held, "self", "step")
        assert this.type == "__main__.Engine" and this.thread_name == "worker-\x1b[1m" and this.line == 8
        assert by_name(held, "batch", "step").type == "list"
        assert this.os_thread_id in {int(tid) for tid in os.listdir(f"/proc/{engine.pid}/task")}
        # one thread under both of its numbers: the lock knows the one, the kernel the other
        lock = process.lock(process.get(this.address, "lock"))
        assert lock.owner_ident == this.thread_ident and lock.depth == 1
        assert thread_ids(process)[this.thread_ident] == this.os_thread_id
        assert engine.pid in thread_ids(process).values(), "the main thread too"
        assert evaluate(process, "Engine.q", held).value["depth"] == 1
        assert evaluate(process, "len(Engine.q.queue)", held).value == 1
        assert evaluate(process, "batch", held).value == [1, 2]


@needs_root
def test_threads_of_a_container_have_the_numbers_of_this_node() -> None:
    """The process counts them from one."""
    command = ["unshare", "--fork", "--pid", "--kill-child", sys.executable, "-c", PROGRAM]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert one.stdout and one.stdin
        if one.stdout.readline() != "ready\n":
            pytest.skip("no pid namespaces here")
        pid = int(Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text())
        tids = {int(tid) for tid in os.listdir(f"/proc/{pid}/task")}
        with attach(pid) as process:
            assert set(thread_ids(process).values()) == tids
            assert by_name(roots(process, PY_SPY), "self", "step").os_thread_id in tids - {pid}
    finally:
        one.kill()
        one.wait(10)
        for pipe in (one.stdin, one.stdout):
            if pipe:
                pipe.close()


def test_a_forked_process(target: Target) -> None:
    """Its main thread remembers the number that it had in the parent."""
    one = target(
        "import os, sys, threading\n"
        "read, write = os.pipe()\n"
        "if pid := os.fork():\n"
        "    os.read(read, 1)\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
        "    os.kill(pid, 9)\n"
        "else:\n"
        "    os.write(write, b'x')\n"
        "    threading.Event().wait(60)\n"
    )
    pid = int(Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text())
    try:
        with attach(pid) as process:
            assert list(thread_ids(process).values()) == [pid]
    finally:
        os.kill(pid, 9)


def test_a_stopped_process_is_read_and_stays_stopped(engine: subprocess.Popen[str]) -> None:
    def state() -> str:
        return Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()[0]

    os.kill(engine.pid, 19)  # SIGSTOP
    deadline = time.monotonic() + 30
    while state() != "T":
        assert time.monotonic() < deadline
    with attach(engine.pid) as process:
        assert evaluate(process, "Engine.q.maxsize", roots(process, PY_SPY)).value == 3
    assert state() == "T"


def test_no_value_that_py_spy_writes_is_kept(engine: subprocess.Popen[str]) -> None:
    with attach(engine.pid) as process:
        assert "[1, 2]" not in repr(roots(process, PY_SPY))


@pytest.fixture
def process(target: Target) -> Process:
    return attach(target("import sys; print('ready', flush=True); sys.stdin.read()").pid)


@pytest.mark.parametrize(
    "dump",
    [
        None,
        {},
        [],
        [{}],
        [{"frames": None}],
        [{"frames": [{"locals": None}]}],
        [{"frames": [{"locals": [{}]}]}],
        [{"thread_id": None, "frames": [{"name": None, "line": None, "locals": [{"name": "x", "addr": 8}]}]}],
        [{"frames": [{"locals": [{"name": "x", "addr": "12"}, {"name": "x", "addr": 1 << 70}, {"name": "x", "addr": -8}]}]}],
    ],
)
def test_a_dump_without_what_is_looked_for(process: Process, dump: object) -> None:
    assert parse_dump(process, dump) == []


def test_a_py_spy_that_is_not_there_or_says_nothing_of_use(process: Process, tmp_path: Path) -> None:
    def fake(script: str) -> str:
        path = tmp_path / f"py-spy-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    for program in ("", "/nonexistent/py-spy", fake("echo nonsense"), fake("exit 1"), fake("echo '['")):
        with pytest.raises(NoRoots) as caught:
            roots(process, program)
        assert caught.value.outcome == "PARTIAL" and str(caught.value)
    with pytest.raises(Gone):
        roots(
            process,
            fake("echo 'Error: Failed to get process executable name' >&2; echo 'No such file or directory (os error 2)' >&2; exit 1"),
        )
    with pytest.raises(NoRoots, match=r"within 0\.2 s"):
        roots(process, fake("sleep 1000"), timeout_s=0.2)
    assert "sys" in process.modules(), "the process itself is still readable"


def test_a_frame_that_was_just_being_made_is_cured_by_another_try(process: Process, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text(
        f"#!/bin/sh\nif [ -e {tmp_path}/second ]; then echo '[]'; else : > {tmp_path}/second; echo 'Error: x' >&2; exit 1; fi\n"
    )
    program.chmod(0o755)
    assert roots(process, str(program)) == []
