"""Counts of operations: RAS and flight recorders, with and without the logs beside them."""

from __future__ import annotations

import json

import pytest

from tests.analysis.collectives.lines import gave_up, place, ready, serving, start, vllm


def ras(level: int, late: dict[int, int], world: int = 4, host: str = "node0") -> str:
    lines = [
        "NCCL version 2.28.9 compiled with CUDA 13.0",
        "CUDA runtime version 13000, driver version 13000",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"      1          {world}            1          {world}        {world}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        f"    0         1         1         {world}         {world}         {world}   RUNNING  {'MISMATCH' if late else 'OK'}",
        "",
        "Errors",
        "======",
        "",
        "Warnings",
        "========",
        "",
    ]
    if late:
        lines += [
            "#0-0 (27a079b828ff1a75) MISMATCH",
            "  Communicator ranks have different AllReduce operation counts",
            f"  {world - len(late)} ranks have launched up to operation {level}",
            *(
                f"  Rank {r} has launched up to operation {n} -- GPU {r} managed by process {500 + r} on node {host}"
                for r, n in late.items()
            ),
        ]
    return "\n".join(lines) + "\n"


def engine(*more: str) -> list[str]:
    return [
        *start("11:50:00", 4), *(place(f"Worker_TP{r}", 500 + r, "11:50:30", r, 4, r) for r in range(4)), *ready("11:55:00"),
        serving("11:59:40"), serving("11:59:50"), *more,
    ]  # fmt: skip


HUNG = (
    serving("12:00:00", tokens=0.0), serving("12:00:10", tokens=0.0), serving("12:00:20", tokens=0.0),
    vllm("EngineCore", 41, "12:05:00", "EngineCore encountered a fatal error.", "ERROR", "core.py:1138"),
    vllm("EngineCore", 41, "12:05:00", "TimeoutError: RPC call to sample_tokens timed out.", "ERROR", "core.py:1138"),
)  # fmt: skip


def test_the_rank_that_launched_less_is_behind_where_the_engine_stands_still(read):
    told = read({"node0.ras.1.txt": ras(6650, {2: 6649})}, node0=engine(*HUNG))
    found = told.by_id["rank-behind-in-collective"]
    assert (found.grade.value, found.ranks) == ("established", (2,))
    assert told.grade("rank-divergence-collective") == "established"
    assert told.root[1] == 2


def test_two_equal_reports_are_enough_without_a_log_that_says_so(read):
    told = read({"node0.ras.1.txt": ras(6650, {2: 6649}), "node0.ras.2.txt": ras(6650, {2: 6649})}, node0=engine())
    assert told.by_id["rank-behind-in-collective"].ranks == (2,)


def test_one_report_of_a_running_job_says_nothing(read):
    told = read({"node0.ras.1.txt": ras(6650, {2: 6649})}, node0=engine(serving("12:00:00"), serving("12:00:10")))
    assert told.grade("rank-behind-in-collective") is None
    assert told.grade("rank-divergence-collective") is None


def test_two_reports_of_a_job_that_moves_say_nothing(read):
    told = read(
        {"node0.ras.1.txt": ras(6650, {2: 6649}), "node0.ras.2.txt": ras(6660, {1: 6659})},
        node0=engine(serving("12:00:00"), serving("12:00:10")),
    )
    assert told.grade("rank-behind-in-collective") is None


def test_counts_that_are_level_name_nobody_though_the_engine_hangs(read):
    told = read({"node0.ras.1.txt": ras(6650, {})}, node0=engine(*HUNG))
    assert told.grade("rank-behind-in-collective") is None
    assert told.grade("rank-divergence-collective") is None


def dump(
    rank: int, enqueued: int, completed: int, op: str = "all_reduce", group: str = "1", members: str = "[0, 1, 2, 3]", desc: str = "tp"
) -> str:
    entries = [
        {
            "record_id": n, "pg_id": 1, "process_group": [group, desc], "collective_seq_id": n, "p2p_seq_id": 0, "op_id": n,
            "profiling_name": f"nccl:{op}", "time_created_ns": 1773489600000000000 + n, "state": "completed" if n <= completed else "scheduled",
            "retired": n <= completed, "is_p2p": False, "timeout_ms": 600000,
        }
        for n in range(max(1, enqueued - 3), enqueued + 1)
    ]  # fmt: skip
    status = {"1": {"last_enqueued_collective": enqueued, "last_started_collective": enqueued, "last_completed_collective": completed}}
    config = {"1": {"name": group, "desc": desc, "ranks": members}}
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": status, "entries": entries})


def fired(*ranks: int) -> list[str]:
    return ["2026-03-14 11:00:00 INFO trainer: start", *(gave_up(r, "12:10:00", seq=78) for r in ranks)]


def test_recorders_of_all_members_establish_who_is_behind(read):
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 79, 77) for r in (0, 1, 3)} | {"nccl_trace_rank_2.json": dump(2, 77, 77)}
    told = read(dumps, node0=fired(0, 1, 3))
    found = told.by_id["rank-behind-in-collective"]
    assert (found.grade.value, found.ranks) == ("established", (2,))
    assert told.root[1] == 2


def test_with_one_dump_lacking_it_is_no_more_than_supported(read):
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 79, 77) for r in (0, 3)} | {"nccl_trace_rank_2.json": dump(2, 77, 77)}
    told = read(dumps, node0=fired(0, 3))
    assert told.grade("rank-behind-in-collective") == "supported"


def test_recorders_at_different_operations_of_one_number(read):
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 78, 77, "all_reduce" if r < 2 else "broadcast") for r in range(4)}
    told = read(dumps, node0=fired(0, 1, 2, 3))
    assert told.grade("rank-divergence-collective") == "established"
    assert told.root[1] is None


def test_groups_that_share_a_description_are_not_one_group(read):
    """Two halves of a mesh, each level in itself."""
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 90, 89, group="3", members="[0, 1]", desc="mesh_tp") for r in (0, 1)}
    dumps |= {f"nccl_trace_rank_{r}.json": dump(r, 80, 79, group="4", members="[2, 3]", desc="mesh_tp") for r in (2, 3)}
    told = read(dumps, node0=fired(0, 1, 2, 3))
    assert told.grade("rank-behind-in-collective") is None
    assert told.grade("rank-divergence-collective") is None


def test_dumps_of_a_running_job_say_nothing(read):
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 79 - (r == 2), 77) for r in range(4)}
    told = read(dumps, node0=["2026-03-14 11:00:00 INFO trainer: start", "2026-03-14 11:00:09 INFO trainer: step 78"])
    assert told.grade("rank-behind-in-collective") is None


@pytest.mark.parametrize("late", [(1, 2, 3), (0, 1, 2)])
def test_one_ahead_of_all_is_not_a_crowd_behind(read, late):
    dumps = {f"nccl_trace_rank_{r}.json": dump(r, 77 if r in late else 79, 77) for r in range(4)}
    told = read(dumps, node0=fired(*(r for r in range(4) if r not in late)))
    assert told.grade("rank-behind-in-collective") is None
