"""One server of two ranks, several faults one after another: each reversible, except the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judge import CONSEQUENCES, STRONG, assert_no_wrong_established, assert_nothing_broke, assert_root, look
from real_server import Server, eventually, process_state

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]

STALL = {*CONSEQUENCES, "rank-not-responding", "rank-divergence-collective"}
"""True of a rank that stands while the other waits for it in a collective."""


@pytest.fixture(scope="module")
def server(vllm_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tp2"), vllm_home, "--tensor-parallel-size", "2")
    try:
        yield server.wait_ready().warm_up()
    finally:
        server.stop()


def test_idle(server: Server) -> None:
    server.wait_idle()
    seen = look(server, name="idle")
    assert_nothing_broke(seen)
    assert seen.grade("idle-healthy") in STRONG
    assert seen.grade("engine-stalled") in ("", "refuted")
    assert_no_wrong_established(seen, {"idle-healthy", "idle-cpu-spin"})
    assert seen.report["coverage"]["seen_ranks"] == [0, 1]


def test_normal_traffic(server: Server) -> None:
    load = server.loaded(4, 500, seconds=40)  # goes on for longer than the capture takes
    seen = look(server, name="normal")
    assert_nothing_broke(seen)
    assert seen.grade("healthy-serving") == "established"
    assert_no_wrong_established(seen, {"healthy-serving", "busy-spin"})
    assert load.all_answered(), load.events


def test_slow_steps(server: Server) -> None:
    """Three seconds a step on rank 1 is slow and is no stall; every request is answered."""
    server.fire("slow 1 3")
    try:
        load = server.load(2, 24)
        eventually(lambda: server.metric("num_requests_running") >= 1, "a running request")
        server.wait_step(2)
        seen = look(server, name="slow")
        assert seen.root["finding"] is None and seen.root["rank"] is None, seen.root
        assert seen.state in ("healthy", "degraded"), seen.report["verdict"]
        assert seen.grade("slow-progress") in STRONG
        assert seen.grade("engine-stalled") in ("", "refuted")
        assert_no_wrong_established(seen, {"slow-progress", "healthy-serving", "busy-spin"})
        assert load.all_answered(), load.events
    finally:
        server.fire("")


def test_stopped_under_load(server: Server) -> None:
    load = server.loaded(8, 1500)
    culprit = server.find("VLLM::Worker_TP1")
    server.pause(culprit)
    try:
        server.wait_frozen()
        seen = look(server, name="stopped")
        assert_root(seen, "process-stopped", 1, pid=culprit)
        assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
        assert_no_wrong_established(seen, {*STALL, "process-stopped"})
        assert process_state(culprit) == "T"
    finally:
        server.resume(culprit)
    assert load.all_answered(), load.events


def test_stopped_while_idle(server: Server) -> None:
    """No metric ever moves or shows a request: work is visible only in stacks and sockets."""
    server.wait_idle()
    culprit = server.find("VLLM::Worker_TP1")
    server.pause(culprit)
    try:
        load = server.load(4, 50)
        eventually(lambda: server.metric("http_requests_total") >= 0 and load.process.poll() is None, "requests on their way")
        server.wait_frozen()
        assert server.metric("num_requests_running") == 0
        seen = look(server, name="stopped-idle")
        assert_root(seen, "process-stopped", 1, pid=culprit)
        assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
        assert_no_wrong_established(seen, {*STALL, "process-stopped"})
    finally:
        server.resume(culprit)
    assert load.all_answered(), load.events


def test_exception_that_nobody_is_told(server: Server) -> None:
    """The last one: what rank 1 has missed of the collective cannot be made good."""
    server.loaded(4, 1500)
    server.fire("exc 1")
    eventually(lambda: "WorkerProc hit an exception" in server.text, "the worker's exception")
    server.wait_frozen()
    seen = look(server, name="exception")
    assert_root(seen, "worker-exception-swallowed", 1, pid=server.find("VLLM::Worker_TP1"))
    assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
    assert_no_wrong_established(seen, {*STALL, "worker-exception-swallowed"})
