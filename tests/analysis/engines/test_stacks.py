"""Stacks of SGLang's ranks beside logs that name no pid: what the log states of the engine holds for its processes."""

from __future__ import annotations

import pytest

from tests.analysis.engines.folder import T0, decode, sglang, started

SOFT = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)"
COLLECTIVE = [
    "all_reduce (torch/distributed/distributed_c10d.py:2810)",
    "all_reduce (sglang/srt/distributed/parallel_state.py:401)",
    "forward (sglang/srt/models/llama.py:88)",
    "event_loop_overlap (sglang/srt/managers/scheduler.py:800)",
]
OUTSIDE = [
    "wait (threading.py:355)",
    "get (queue.py:171)",
    "prefetch (plugin/offload.py:60)",
    "event_loop_overlap (sglang/srt/managers/scheduler.py:790)",
]


def dump(pid: int, title: str, frames: list[str]) -> list[str]:
    head = [f"Process {pid}: {title}", "Python v3.12.3 (/usr/bin/python3.12)", "", f'Thread {pid} (active): "MainThread"']
    return [*head, *(f"    {frame}" for frame in frames)]


def dumps(where: dict[int, str], outside: int) -> dict[str, list[str]]:
    files = {}
    for rank, node in where.items():
        for sample in (1, 2):
            frames = OUTSIDE if rank == outside else COLLECTIVE
            files[f"{node}.pid{4200 + rank}.pyspy.{sample}.txt"] = dump(4200 + rank, f"sglang::scheduler_TP{rank}", frames)
    return files


@pytest.mark.parametrize("outside", [0, 1])
def test_the_rank_outside_is_named_from_mailed_stacks(look, outside: int) -> None:
    log = [*started(), *(decode(t) for t in range(-60, 1, 10)), sglang(300, SOFT, "TP0")]
    told = look(node0=log, **dumps({0: "node0", 1: "node0"}, outside))
    assert [(e.kind, e.nodes) for e in told.report.engines] == [("sglang", ("node0",))]
    assert told.report.engines[0].coverage.expected_ranks == (0, 1)
    assert told.state == "stalled"
    assert told.root == ("rank-divergence-collective", outside)
    assert told.by_id["engine-stalled"].since.earliest_ns == int(T0 * 1e9)


def test_two_nodes_are_joined_by_what_their_logs_state(look) -> None:
    more = "dist_init_addr='192.0.2.1:5000', nnodes=2, node_rank={}, "
    head = [*started(4, more=more.format(0), ranks=range(2)), *(decode(t) for t in range(-60, 1, 10)), sglang(300, SOFT, "TP0")]
    follower = started(4, more=more.format(1), ranks=range(2, 4))[:-2]
    where = {0: "node0", 1: "node0", 2: "node1", 3: "node1"}
    told = look(node0=head, node1=follower, **dumps(where, 3))
    assert [e.nodes for e in told.report.engines] == [("node0", "node1")]
    assert told.root == ("rank-divergence-collective", 3)
    assert told.report.root.node == "node1"


def test_stacks_of_one_node_only(look) -> None:
    more = "dist_init_addr='192.0.2.1:5000', nnodes=2, node_rank={}, "
    head = [*started(4, more=more.format(0), ranks=range(2)), *(decode(t) for t in range(-60, 1, 10)), sglang(300, SOFT, "TP0")]
    follower = started(4, more=more.format(1), ranks=range(2, 4))[:-2]
    told = look(node0=head, node1=follower, **dumps({0: "node0", 1: "node0"}, 7))
    assert [e.nodes for e in told.report.engines] == [("node0", "node1")]
    assert told.report.engines[0].coverage.expected_ranks == (0, 1, 2, 3)
    assert told.root[1] is None, "both ranks that were seen wait for those that were not"


@pytest.mark.parametrize("wrapper", ["", "sglang-1  | ", "2026-09-01T10:05:00.123456789Z stdout F "])
def test_stacks_that_the_watchdog_prints_are_read(look, wrapper: str) -> None:
    lines = [*started(), *(decode(t) for t in range(-60, 1, 10))]
    for rank, frames in ((0, COLLECTIVE), (1, OUTSIDE)):
        said = f"Pyspy dump for PID {4200 + rank} (py-spy dump --native --pid {4200 + rank}):"
        lines += [sglang(300, said, f"TP{rank}"), *dump(4200 + rank, f"sglang::scheduler_TP{rank}", frames), ""]
        lines += [sglang(300, SOFT.replace("True", "False"), f"TP{rank}")]
    lines.append(sglang(305, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."))
    told = look(node0=[wrapper + line for line in lines])
    assert [len(e.processes) for e in told.report.engines] == [2]
    assert told.state == "dead"
    assert told.by_id["rank-divergence-collective"].ranks == (1,)
    assert told.grade("rank-divergence-collective") in ("possible", "supported"), "a single look"
    assert any("prefetch" in ref.quote for ref in told.by_id["rank-divergence-collective"].because)
