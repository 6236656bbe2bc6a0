"""What was expected and what was seen, where numbers repeat: replicas that each count from 0, nodes that share a host."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forensics.analysis import analyze
from forensics.analysis.coverage import gap
from forensics.model import ProcessInfo
from tests.analysis.conftest import Told
from tests.analysis.replicas import two_replicas
from tests.analysis.scene import API, CORE, T0, WORKER, Scene


def test_each_replica_has_its_own_ranks(tmp_path: Path) -> None:
    seen = analyze([two_replicas(tmp_path, busy=0, moves=True)]).coverage
    assert len(seen.expected_ranks) == len(seen.seen_ranks) == 2
    assert seen.complete and not gap(seen)


def test_a_rank_of_one_replica_does_not_stand_for_its_namesake(tmp_path: Path) -> None:
    seen = analyze([two_replicas(tmp_path, busy=0, moves=True, unseen=(1,))]).coverage
    assert (len(seen.expected_ranks), len(seen.seen_ranks)) == (2, 1)
    assert not seen.complete
    assert "replica 1" in gap(seen)


def test_idleness_is_not_established_while_a_replica_s_rank_is_unseen(tmp_path: Path) -> None:
    assert Told(analyze([two_replicas(tmp_path / "a", busy=-1, moves=True, clients=0)])).grade("idle-healthy") == "established"
    told = Told(analyze([two_replicas(tmp_path / "b", busy=-1, moves=True, clients=0, unseen=(1,))]))
    assert told.grade("idle-healthy") in ("supported", None)


def _serve(folder: Path, ranks: tuple[int, ...]) -> Path:
    """An engine of two nodes of which those with the given node ranks run on this host."""
    s = Scene(folder, ranks=2)
    rows = []
    for node_rank in ranks:
        argv = ("python3", "vllm", "serve", "/m", "--tensor-parallel-size", "2", "--nnodes", "2", "--node-rank", str(node_rank))
        argv += ("--master-addr", "127.0.0.1", "--master-port", "29501", *(("--headless",) if node_rank else ()))
        pid = API + 10 * node_rank
        rows.append(ProcessInfo(pid=pid, ppid=1, node=s.node, title=" ".join(argv), argv=argv, state="S", start_ticks=10))
        if not node_rank:
            rows.append(
                ProcessInfo(
                    pid=CORE, ppid=API, node=s.node, title="VLLM::EngineCore", argv=("VLLM::EngineCore",), state="S", start_ticks=11
                )
            )
        title = f"VLLM::Worker_TP{node_rank}"
        rows.append(
            ProcessInfo(
                pid=WORKER + node_rank, ppid=pid if node_rank else CORE, node=s.node, title=title, argv=(title,), state="S", start_ticks=12
            )
        )
    s._add("discovery", "discovery/processes.json", "process-table", msgspec.json.encode(rows).decode(), at=T0)
    for node_rank in ranks:
        s._stack(WORKER + node_rank, 1, T0)
        s._process(WORKER + node_rank, 1, T0)
    s.writer.seal(node=s.node, started_ns=T0, ended_ns=T0 + 10**9, utc_offset_s=0)
    return s.writer.path


def test_two_nodes_on_one_host_are_both_seen(tmp_path: Path) -> None:
    seen = analyze([_serve(tmp_path, (0, 1))]).coverage
    assert seen.unseen_node_count == 0
    assert "not captured" not in gap(seen)


def test_a_node_that_nobody_captured_is_still_missed(tmp_path: Path) -> None:
    seen = analyze([_serve(tmp_path, (0,))]).coverage
    assert seen.unseen_node_count == 1
    assert "1 node(s)" in gap(seen)
