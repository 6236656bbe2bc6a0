"""Faults that end the server or leave it beyond repair: one start each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from judge import CONSEQUENCES, STRONG, Seen, analyze, assert_no_wrong_established, assert_root, look
from real_server import Server, eventually

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]

Start = Callable[[str], Server]


@pytest.fixture
def start(vllm_home: Path, tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def begin(name: str) -> Server:
        servers.append(Server(tmp_path / name, vllm_home, "--tensor-parallel-size", "2"))
        return servers[-1].wait_ready().warm_up()

    yield begin
    for server in servers:
        server.stop()


def look_at_the_dying(server: Server, name: str) -> Seen:
    """Capture while processes vanish; when none is left to capture, what remains is the log."""
    try:
        seen = look(server, name=name)
    except AssertionError:
        if server.processes():
            raise
        return analyze(server.log)
    return seen


def test_lock_deadlock(start: Start) -> None:
    server = start("deadlock")
    server.loaded(4, 1500)
    server.fire("deadlock 1")
    server.wait_frozen()
    seen = look(server, name="deadlock")
    assert_root(seen, "rank-divergence-collective", 1, pid=server.find("VLLM::Worker_TP1"))
    assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
    # plain locks store no owner, and stacks alone cannot tell one lock from another
    assert seen.grade("lock-deadlock") in ("supported", "possible")
    assert_no_wrong_established(seen, {*CONSEQUENCES, "rank-divergence-collective", "rank-not-responding"})


def test_queue_full(start: Start) -> None:
    server = start("queue-full")
    server.loaded(4, 1500)
    server.fire("qfull 0")
    eventually(lambda: "queue.Full" in server.text or "_queue.Full" in server.text, "the exception", every=0.05)
    seen = look_at_the_dying(server, "queue-full")
    assert_root(seen, "bounded-queue-overflow", 0)
    assert seen.grade("engine-died") in STRONG and seen.state == "dead"
    assert_no_wrong_established(seen, {*CONSEQUENCES, "bounded-queue-overflow", "engine-died", "worker-process-died"})
    assert not [grade for grade in seen.grades("memory-exhaustion") if grade != "refuted"], "more memory would not have helped"


def test_killed_under_load(start: Start) -> None:
    server = start("killed")
    server.loaded(4, 1500)
    culprit = server.find("VLLM::Worker_TP1")
    os.kill(culprit, signal.SIGKILL)
    seen = look_at_the_dying(server, "killed")
    assert_root(seen, "worker-process-died", 1)
    assert seen.state in ("dead", "stalled")
    assert_no_wrong_established(
        seen, {*CONSEQUENCES, "worker-process-died", "engine-died", "rank-not-responding", "rank-divergence-collective"}
    )
    assert not [grade for grade in seen.grades("host-oom-kill") if grade in STRONG], "a SIGKILL is not an out-of-memory kill"
