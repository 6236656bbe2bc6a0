"""Engines that are more than one core and its ranks: data-parallel replicas, and two nodes on one host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scenarios
from judge import CONSEQUENCES, STRONG, assert_no_wrong_established, assert_nothing_broke, assert_root, look
from real_server import Server, TwoNodes, eventually, process_state, process_title

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1200)]

STALL = {*CONSEQUENCES, "process-stopped", "rank-not-responding", "rank-divergence-collective", "dp-peer-missing-from-collective"}


def test_two_replicas(vllm_home: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, vllm_home, "--data-parallel-size", "2", "--api-server-count", "2")
    try:
        server.wait_ready().warm_up()
        server.wait_idle()
        seen = look(server, name="replicas-idle")
        assert_nothing_broke(seen)
        assert seen.grade("idle-healthy") in STRONG
        assert seen.covered("2 of 2 ranks")
        assert_no_wrong_established(seen, {"idle-healthy", "idle-cpu-spin"})

        core = server.find("VLLM::EngineCore_DP1")
        # the worker of that replica where it has one of its own, else the core itself computes
        culprit = next((pid for pid in server.children(core) if process_title(pid).startswith("VLLM::Worker")), core)
        load = server.loaded(8, 1500, seconds=0)  # once: the other replica answers its share and falls idle
        # a replica that is stopped with nothing in hand is no stall
        eventually(lambda: re.search(r'^vllm:num_requests_running\{engine="1"[^}]*\} [1-9]', server.get("/metrics")[1], re.M), "its share")
        server.pause(culprit)
        try:
            server.wait_frozen()
            seen = look(server, name="replica-stopped")
            assert_root(seen, "process-stopped", 0 if culprit != core else seen.root["rank"], pid=culprit)
            assert seen.state == "stalled" and seen.covered("2 of 2 ranks")
            assert_no_wrong_established(seen, STALL)
            assert process_state(culprit) == "T"
        finally:
            server.resume(culprit)
        assert load.all_answered(), load.events
    finally:
        server.stop()


SOME = (scenarios.stopped_while_idle, scenarios.queue_blocked, scenarios.exception_that_nobody_is_told)
ALL = (scenarios.stopped_under_load, scenarios.lock_deadlock, *SOME)
ASYNC = {"FF_FORCE_ASYNC": "1"}


@pytest.mark.parametrize(
    ("mode", "faults"),
    [(ASYNC, SOME), pytest.param({}, ALL, marks=pytest.mark.soak), pytest.param(ASYNC, ALL, marks=pytest.mark.soak)],
    ids=["async", "sync-all", "async-all"],
)
def test_two_nodes(vllm_home: Path, tmp_path: Path, mode: dict[str, str], faults) -> None:
    head = TwoNodes(tmp_path, vllm_home, **mode)
    try:
        head.wait_ready().warm_up()
        for scenario in faults:
            seen = scenario(head)
            assert seen.engine["id"] and seen.ranks == [0, 1], "one engine, though two families of processes"
            assert seen.covered("2 of 2 ranks"), "no node is missed where both run on one host"
            head.fire("")
            head.drop_loads()
    finally:
        head.stop()
