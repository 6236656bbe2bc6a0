"""What was expected and what was seen, where numbers repeat: replicas that each count from 0, nodes that share a host."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forensics.analysis import analyze
from forensics.analysis.coverage import PER_RANK, gap
from forensics.analysis.rules import SOURCES
from forensics.model import Outcome, ProcessInfo, Report
from forensics.report.view import coverage_sentence
from tests.analysis import made
from tests.analysis.conftest import Told
from tests.analysis.engines import folder
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


def _live(**sizes: int) -> dict[int, dict[str, list[dict[str, object]]]]:
    values = [{"name": name, "expr": name, "type": "int", "value": size, "torn": False} for name, size in sizes.items()]
    return {CORE: {"values": values}}


def test_the_running_objects_count_more_than_the_command_line_and_the_difference_is_told(tmp_path: Path) -> None:
    s = Scene(tmp_path, ranks=2)
    s.objects = _live(world_size=4, tensor_parallel_size=4, nnodes=2, node_rank=0)
    seen = analyze([s.bundle()]).coverage
    assert seen.expected_ranks == (0, 1, 2, 3) and seen.seen_ranks == (0, 1)
    assert seen.unseen_node_count == 1
    assert {shape.where for shape in seen.stated} == {"live object", "log", "command line"}
    assert seen.stated[0].where == "live object" and seen.stated[0].world_size == 4
    ranks, nodes = seen.disagreements
    assert "4 (live object)" in ranks and "2 (log)" in ranks and "2 (command line)" in ranks
    assert "2 (live object)" in nodes and "1 (command line)" in nodes


def test_running_objects_never_make_a_rank_disappear_that_was_seen(tmp_path: Path) -> None:
    s = Scene(tmp_path, ranks=3)
    s.objects = _live(world_size=2, tensor_parallel_size=2)
    seen = analyze([s.bundle()]).coverage
    assert seen.expected_ranks == seen.seen_ranks == (0, 1, 2)
    assert "2 (live object)" in seen.disagreements[0]


def test_sources_that_agree_are_no_disagreement(tmp_path: Path) -> None:
    seen = analyze([Scene(tmp_path, ranks=2).bundle()]).coverage
    assert seen.ranks_stated and not seen.disagreements
    assert coverage_sentence(seen) == "2 of 2 ranks, 1 of 1 nodes seen"


def test_a_size_that_nothing_states_is_not_made_up(tmp_path: Path) -> None:
    lines = [
        folder.sglang(t, "Decode batch. #running-req: 2, #token: 90, gen throughput (token/s): 60.0, #queue-req: 0", f"TP{t % 3}")
        for t in range(60)
    ]
    seen = made.told(tmp_path / "x", {"node0.log": made.text(lines)}).coverage
    assert seen.seen_ranks == (0, 1, 2) and not seen.ranks_stated
    assert coverage_sentence(seen) == "3 ranks seen, their number is not known, 1 of 1 nodes seen"


def holes(report: Report) -> list[str]:
    """Squares of the grid that are missing, or that are there twice."""
    found = []
    for engine in report.engines:
        seen = engine.coverage
        cells = [(c.node, c.rank, c.pid, c.source) for c in seen.cells]
        found += [f"twice: {cell}" for cell in set(cells) if cells.count(cell) > 1]
        by_node = {(c.node, c.source) for c in seen.cells}
        found += [f"{node} {source}" for node in seen.expected_nodes for source in SOURCES if (node, source) not in by_node]
        by_rank = {(c.rank, c.source) for c in seen.cells}
        found += [f"rank {rank} {source}" for rank in seen.expected_ranks for source in PER_RANK if (rank, source) not in by_rank]
        if seen.unseen_node_count:
            found += [f"unnamed {source}" for source in SOURCES if ("?", source) not in by_node]
    return found


@pytest.mark.parametrize("incident", made.MAKERS)
def test_a_folder_of_files_leaves_no_hole_in_the_grid(tmp_path: Path, incident: str) -> None:
    assert not holes(made.told(tmp_path / "x", made.MAKERS[incident]()))


@pytest.mark.parametrize("what", ["whole", "replicas", "a replica unseen", "a node unseen", "denied", "unread"])
def test_a_capture_leaves_no_hole_in_the_grid(tmp_path: Path, what: str) -> None:
    s = Scene(tmp_path, ranks=4)
    s.denied = {"stacks": "DENIED", "kernel": "TIMEOUT"} if what == "denied" else {}
    s.unread = {WORKER + 1} if what == "unread" else set()
    bundles = {
        "replicas": lambda: two_replicas(tmp_path / "r", busy=0, moves=True),
        "a replica unseen": lambda: two_replicas(tmp_path / "r", busy=0, moves=True, unseen=(1,)),
        "a node unseen": lambda: _serve(tmp_path / "n", (0,)),
    }
    report = analyze([bundles.get(what, s.bundle)()])
    assert report.engines and not holes(report)


def test_a_rank_and_a_node_that_were_not_found_have_squares_that_say_so(tmp_path: Path) -> None:
    seen = analyze([_serve(tmp_path, (0,))]).coverage
    lost = [c for c in seen.cells if c.rank == 1]
    assert {c.source for c in lost} == set(PER_RANK)
    assert {(c.outcome, c.reason) for c in lost} == {(Outcome.SKIPPED, "this rank was not found")}
    unnamed = [c for c in seen.cells if c.node == "?" and c.rank is None]
    assert len(unnamed) == len(SOURCES) and all("not captured" in c.reason for c in unnamed)
