"""Engines that are more than one core and its ranks: data-parallel replicas, and two nodes on one host."""

from __future__ import annotations

from pathlib import Path

import pytest
import scenarios
from judge import CONSEQUENCES, STRONG, assert_no_wrong_established, assert_nothing_broke, assert_root, look
from real_server import Server, eventually, free_port, process_state, process_title

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


def test_two_nodes(vllm_home: Path, tmp_path: Path) -> None:
    """Both nodes run on this host; the follower has no front, no core and no metrics, only its rank. Passes overlap."""
    port = free_port()
    shared = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port(port + 100))]
    overlapping = {"FF_FORCE_ASYNC": "1"}
    head = Server(tmp_path / "head", vllm_home, *shared, "--node-rank", "0", port=port, **overlapping)
    follower = Server(tmp_path / "follower", vllm_home, *shared, "--node-rank", "1", "--headless", port=port, **overlapping)
    try:
        head.wait_ready()
        follower.wait_ready()
        head.warm_up()
        load = head.loaded(4, 1500)
        culprit = follower.find("VLLM::Worker_TP1")
        follower.pause(culprit)
        try:
            head.wait_frozen()
            seen = look(head, follower, name="two-nodes")
            assert_root(seen, "process-stopped", 1, pid=culprit)
            assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
            assert seen.engine["id"] and seen.ranks == [0, 1], "one engine, though two families of processes"
            assert seen.covered("2 of 2 ranks"), "no node is missed where both run on one host"
            assert_no_wrong_established(seen, STALL)
        finally:
            follower.resume(culprit)
        assert load.all_answered(), load.events

        load = head.loaded(4, 1500)
        follower.fire("deadlock 1")
        try:
            head.wait_frozen()
            seen = look(head, follower, name="two-nodes-deadlock")
            scenarios.deadlocked(seen, culprit, grades=STRONG)
        finally:
            follower.fire("")
        assert load.all_answered(), load.events

        head.loaded(4, 1500)
        follower.fire("exc 1")
        eventually(lambda: "WorkerProc hit an exception" in follower.text, "the worker's exception")
        head.wait_frozen()
        seen = look(head, follower, name="two-nodes-exception")
        assert_root(seen, "worker-exception-swallowed", 1, pid=culprit)
        assert_no_wrong_established(seen, {*STALL, "worker-exception-swallowed"})
    finally:
        follower.stop()
        head.stop()
