"""Data-parallel engines and ranks of one replica: who stays out, who decided differently, who is left over."""

from __future__ import annotations

import pytest

from forensics.analysis import topology
from forensics.analysis.case import Case
from forensics.analysis.rules import rules
from forensics.analysis.view import View
from forensics.model import EvidenceRef, LogHit, LogSpan, ProcessInfo, ProcessState, TimeRange
from tests.analysis.collectives.lines import clock, place, ready, serving, start, vllm

REF = EvidenceRef(source="node0.log", locator="line 1")


def rule(name: str):
    return next(r for r in rules() if r.name == name)


def dp_start(at: str) -> list[str]:
    return [
        vllm("APIServer", 1, at, "vLLM API server version 0.25.1", file="api_server.py:1890"),
        *(vllm(f"EngineCore_DP{d}", 41 + d, at, "Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=2, enable_expert_parallel=True") for d in (0, 1)),
        *(vllm(f"EngineCore_DP{d}", 41 + d, "11:55:00", "init engine (profile, create kv cache, warmup model) took 61.20 seconds") for d in (0, 1)),
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]  # fmt: skip


def wave(dp: int, at: str, text: str) -> str:
    return vllm(f"EngineCore_DP{dp}", 41 + dp, at, text, "DEBUG", "core.py:1400")


def died(dp: int, at: str) -> list[str]:
    who = (f"EngineCore_DP{dp}", 41 + dp, at)
    return [
        vllm(*who, "EngineCore encountered a fatal error.", "ERROR", "core.py:1138"),
        vllm(*who, "TimeoutError: RPC call to execute_model timed out.", "ERROR", "core.py:1138"),
    ]


def test_an_engine_that_left_its_wave_while_a_peer_waits(read):
    told = read(
        node0=[
            *dp_start("11:50:00"),
            serving("11:59:00"),
            wave(0, "11:59:40", "Wave 3 finished, pausing engine loop."),
            wave(1, "11:59:40", "Wave 3 finished, pausing engine loop."),
            wave(0, "11:59:59", "EngineCore starting idle loop for wave 4."),
            *died(0, "12:05:00"),
        ]
    )
    found = told.by_id["dp-peer-missing-from-collective"]
    assert found.grade.value == "supported"
    assert "engine 1" in found.title


def test_replicas_of_a_dense_model_do_not_wait_for_each_other(read):
    lines = [line.replace(", enable_expert_parallel=True", "") for line in dp_start("11:50:00")]
    told = read(
        node0=[
            *lines,
            serving("11:59:00"),
            wave(0, "11:59:40", "Wave 3 finished, pausing engine loop."),
            wave(1, "11:59:40", "Wave 3 finished, pausing engine loop."),
            wave(0, "11:59:59", "EngineCore starting idle loop for wave 4."),
            *died(0, "12:05:00"),
        ]
    )
    assert told.grade("dp-peer-missing-from-collective") is None


def test_engines_that_pause_together_are_idle(read):
    told = read(
        node0=[
            *dp_start("11:50:00"),
            serving("11:59:00"),
            serving("11:59:10"),
            wave(0, "11:59:40", "Wave 3 finished, pausing engine loop."),
            wave(1, "11:59:40", "Wave 3 finished, pausing engine loop."),
        ]
    )
    assert told.grade("dp-peer-missing-from-collective") is None


# ---- ranks of one replica


def hit(rank: int, step: int, at: int, **fields: str) -> LogHit:
    when = TimeRange(earliest_ns=at, latest_ns=at, basis="logged")
    ref = EvidenceRef(source="node0.log", locator=f"line {step * 10 + rank}")
    return LogHit(
        node="node0",
        ref=ref,
        at=when,
        pid=100 + rank,
        signature="scheduled",
        feeds="rank-divergence-batch",
        role="context",
        rank=rank,
        fields={"step": str(step), **fields},
    )


def batches(per_step: list[list[str]], hang: bool = True) -> Case:
    case = Case()
    for rank in range(len(per_step[0])):
        case.add_process(ProcessInfo(pid=100 + rank, node="node0", title=f"Worker_TP{rank}", log_files=("node0.log",)))
    case.add_process(ProcessInfo(pid=50, node="node0", title="EngineCore", log_files=("node0.log",)))
    pids = (50, *(100 + r for r in range(len(per_step[0]))))
    case.add([LogSpan(node="node0", ref=EvidenceRef(source="node0.log", locator="file"), first_ns=1, last_ns=10**12, pids=pids)])
    case.add([hit(r, 4410 + n, (n + 1) * 10**9, scheduled=s) for n, step in enumerate(per_step) for r, s in enumerate(step)])
    if hang:
        case.add(
            [
                LogHit(
                    node="node0",
                    ref=EvidenceRef(source="node0.log", locator="line 99999"),
                    at=TimeRange(earliest_ns=400 * 10**9, latest_ns=400 * 10**9, basis="logged"),
                    pid=50,
                    signature="x",
                    feeds="engine-stalled",
                    role="cascade",
                    event="hang",
                    limit_s=300.0,
                )
            ]
        )
    topology.build(case)
    return case


@pytest.mark.parametrize(
    ("steps", "hang", "grade"),
    [
        ([["1", "1", "1", "1"], ["1", "1", "1", "1"], ["1", "1", "0", "0"]], True, "established"),
        ([["3", "5", "2", "1"], ["4", "5", "2", "2"], ["4", "5", "2", "1"]], True, "supported"),
        ([["1", "1", "1", "1"], ["2", "2", "2", "2"]], True, None),
        ([["3", "5"], ["4", "5"]], False, "possible"),
    ],
)
def test_batches_that_differ_at_one_step(steps, hang, grade):
    case = batches(steps, hang)
    found = list(rule("rank_batch").evaluate(View(case, case.engines[0])))
    assert [f.grade.value for f in found] == ([grade] if grade else [])
    assert all(len(f.ranks) > 1 for f in found)


# ---- what is left of a run before


def processes(worker_started: int, alive: bool = True) -> Case:
    case = Case()
    case.add_process(ProcessInfo(pid=1, ppid=0, node="node0", argv=("vllm", "serve", "/m"), title="vllm serve /m", started_ns=1000 * 10**9))
    case.add_process(
        ProcessInfo(pid=50, ppid=1, node="node0", title="VLLM::EngineCore", argv=("VLLM::EngineCore",), started_ns=1005 * 10**9)
    )
    case.add_process(
        ProcessInfo(pid=61, ppid=50, node="node0", title="VLLM::Worker_TP0", argv=("VLLM::Worker_TP0",), started_ns=1010 * 10**9)
    )
    old = ProcessInfo(
        pid=33,
        ppid=1 if worker_started > 1000 else 0,
        node="node0",
        title="VLLM::Worker_TP1",
        argv=("VLLM::Worker_TP1",),
        started_ns=worker_started * 10**9,
    )
    case.add_process(old)
    case.add([ProcessState(node="node0", ref=REF, pid=p, state="S", gone=p == 33 and not alive) for p in (1, 50, 61, 33)])
    topology.build(case)
    return case


def test_a_live_worker_older_than_its_head_is_left_over():
    case = processes(100)
    head = next(e for e in case.engines if any(p.pid == 50 for p in e.processes))
    found = list(rule("orphan_rank").evaluate(View(case, head)))
    assert [f.grade.value for f in found] == ["established"]
    assert found[0].pids == (33,)
    assert found[0].role.value == "context", "nothing says that it hurts"


@pytest.mark.parametrize(("started", "alive"), [(1012, True), (100, False)])
def test_a_child_of_the_head_or_a_dead_process_is_none(started, alive):
    case = processes(started, alive)
    assert not [f for e in case.engines for f in rule("orphan_rank").evaluate(View(case, e))]


def test_a_container_that_gives_the_same_pids_again_has_no_orphans(read):
    def run(at: str, done: str) -> list[str]:
        return [
            *start(at),
            place("Worker_TP0", 70, at, 0, 2, 0),
            place("Worker_TP1", 71, at, 1, 2, 1),
            *ready(done),
            serving(done),
            serving(f"{clock(done, 300):%H:%M:%S}"),
        ]

    told = read(
        node0=[
            *run("10:00:00", "10:02:00"),
            *run("11:00:00", "11:02:00"),
            vllm(
                "Worker_TP1", 71, "11:09:00", "No available shared memory broadcast block found in 60 seconds.", file="shm_broadcast.py:1"
            ),
            serving("11:12:00"),
        ]
    )
    assert told.grade("orphan-rank-from-previous-run") is None
