"""Logs that hold several lives of an engine: what broke in one explains nothing of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.analysis.case import Case
from forensics.analysis.engine import run_rules
from forensics.analysis.rules import process_state, worker_died
from forensics.analysis.view import View
from forensics.model import EngineInstance, EngineProcess, EvidenceRef, Frame, ProcessInfo, ProcessState, RankId, Role, ThreadStack
from tests.analysis.conftest import Told
from tests.analysis.scene import API, CORE, IN_STEP, WORKER, WORKER_IDLES, Scene


def earlier_life(s: Scene, *, killed: int | None = None, raised: int | None = None) -> None:
    """Put a life of the same pids (a container gives them again) before the one that the scene is about."""
    present, s.lines = s.lines, []
    s.log(-9000, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m'}")
    s.log(-8990, "EngineCore", CORE, "INFO", "init engine (profile, create kv cache, warmup model) took 9.20 s")
    s.lines.append(f"(APIServer pid={API}) INFO:     Application startup complete.")
    if killed is not None:
        s.log(
            -8000,
            "EngineCore",
            CORE,
            "ERROR",
            f"Worker proc VllmWorker-{killed} died unexpectedly (exit code: -9), shutting down executor.",
        )
        s.traceback(-7999, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: cancelled")
    if raised is not None:
        s.traceback(-8300, f"Worker_TP{raised}", WORKER + raised, "WorkerProc hit an exception.", "RuntimeError: in an earlier life")
        timeout = "TimeoutError: RPC call to execute_model timed out."
        s.traceback(-8000, "EngineCore", CORE, "EngineCore encountered a fatal error.", timeout)
    s.lines += present


def test_an_incident_of_an_earlier_life_is_told_and_is_over(scene, tell):
    s = scene()
    earlier_life(s, killed=0)
    told = tell(s)
    assert told.state == "healthy"
    assert told.grade("healthy-serving") == "established"
    assert told.by_id["worker-process-died"].until is not None
    assert told.by_id["engine-died"].until is not None
    assert "Started again" in told.report.verdict.sentence


def test_the_death_in_an_earlier_life_is_not_the_root_of_the_present_stall(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    earlier_life(s, killed=0)
    told = tell(s)
    assert told.state == "stalled"
    assert told.root == ("process-stopped", 1)


def test_a_second_incident_is_judged_by_its_own_lines(scene, tell):
    s = scene()
    s.still()
    s.log(-8, "EngineCore", CORE, "ERROR", "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.")
    s.traceback(-7, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: cancelled")
    s.states[WORKER + 1, 0] = s.states[CORE, 0] = "gone"
    earlier_life(s, raised=0)
    told = tell(s)
    assert told.state == "dead"
    assert told.root == ("worker-process-died", 1)
    assert told.report.first_event.finding == "worker-process-died"


def test_an_exception_of_an_earlier_life_does_not_hide_the_one_of_this_life(scene, tell):
    s = scene()
    s.hang(1, WORKER_IDLES)
    s.traceback(-8, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: in this life")
    earlier_life(s, raised=1)
    told = tell(s)
    assert told.root == ("worker-exception-swallowed", 1)
    assert "in this life" in told.report.verdict.sentence


def stats(minute: int, second: int, tokens: float, running: int, engine: int = 0) -> str:
    return (
        f"(APIServer pid=11) INFO 09-01 10:{minute:02}:{second:02} [loggers.py:271] Engine {engine:03}: Avg prompt throughput: 0.0 tokens/s, "
        f"Avg generation throughput: {tokens} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%"
    )


def started(minute: int) -> list[str]:
    return [
        f"(APIServer pid=11) INFO 09-01 10:{minute:02}:00 [api.py:1] non-default args: {{'tensor_parallel_size': 2}}",
        f"(EngineCore pid=12) INFO 09-01 10:{minute:02}:20 [core.py:1] init engine (profile, create kv cache, warmup model) took 9.20 s",
    ]


def bare(folder: Path, *lines: str) -> Told:
    (folder / "node0.log").write_text("\n".join(lines) + "\n")
    return Told(analyze([folder]))


@pytest.mark.parametrize("before", [[], [stats(3, 0, 50.0, 2)]])
def test_a_stall_after_a_restart_lasts(tmp_path, before):
    told = bare(tmp_path, *started(0), *before, *started(5), *(stats(6, s, 0.0, 3) for s in (0, 10, 20)))
    assert told.state == "stalled"
    assert told.by_id["engine-stalled"].until is None


def test_a_stall_that_a_restart_ended_is_over(tmp_path):
    told = bare(tmp_path, *started(0), *(stats(2, s, 0.0, 3) for s in (0, 10, 20)), *started(5), stats(6, 0, 80.0, 2))
    assert told.state == "healthy"
    assert told.by_id["engine-stalled"].until is not None


def test_ranks_of_two_nodes_with_the_same_pids_are_two_ranks():
    """Each container counts its own pids: what was seen of a follower's worker is not said of the head's."""
    case = Case()
    processes = []
    for node, rank, state, place in (("head0", 0, "R", "all_reduce"), ("tail0", 1, "T", "forward")):
        ref = EvidenceRef(source=node, locator="x")
        case.add([ProcessState(node=node, ref=ref, pid=300, state=state)])
        case.add([ThreadStack(node=node, ref=ref, pid=300, tid=300, name="MainThread", frames=(Frame(name=place, file="x.py"),))])
        info = ProcessInfo(pid=300, node=node, title=f"VLLM::Worker_TP{rank}")
        processes.append(EngineProcess(info=info, role=Role.WORKER, rank=RankId(rank=rank, world_size=2), label=f"worker TP{rank}"))
    engine = EngineInstance(id="e0", kind="vllm", processes=tuple(processes), nodes=("head0", "tail0"), world_size=2)
    case.engines = [engine]
    view = View(case, engine)
    assert [view.stopped(p) for p in processes] == [False, True]
    assert [t.last.frames[0].name for p in processes if (t := view.main_thread(p))] == ["all_reduce", "forward"]
    found, _ = run_rules(view, [process_state.RULE])
    assert [(f.id, f.ranks) for f in found] == [("process-stopped", (1,))]


@pytest.mark.parametrize("core", [CORE, 777])
def test_a_death_long_before_the_core_was_seen_alive_was_of_an_earlier_life(scene, tell, core):
    """No start-up line between: the log level hides it."""
    s = scene()
    s.lines = []
    s.log(-5000, "EngineCore", core, "ERROR", "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.")
    s.traceback(-4999, "EngineCore", core, "EngineCore encountered a fatal error.", "RuntimeError: cancelled")
    told = tell(s)
    assert told.state == "healthy"
    assert told.by_id["engine-died"].until is not None


def test_a_death_without_a_restart_stays_a_death_though_the_capture_came_late(scene, tell):
    s = scene()
    s.metrics = []
    s.traceback(-4999, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: cancelled")
    for pid in (CORE, WORKER, WORKER + 1):
        s.states[pid, 0] = "gone"
    assert tell(s).state == "dead"


DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."


def test_the_end_of_a_log_whose_fatal_line_was_cut_off_still_tells_a_death(tmp_path):
    """Scrapes in the folder moved, at times that nobody knows: that is no service after the death."""
    lines = [f"(APIServer pid=11) ERROR 09-01 10:09:{s:02} [serving.py:500] {DEAD}" for s in range(5)]
    for n in (1, 2):
        metrics = f'# TYPE vllm:iteration_tokens_total_count counter\nvllm:iteration_tokens_total_count{{engine="0"}} {n}\n'
        (tmp_path / f"node0.metrics.{n}.txt").write_text(metrics)
    told = bare(tmp_path, *lines)
    assert told.state == "dead"
    assert told.grade("engine-died") == "supported"
    assert told.grade("healthy-serving") is None


def test_a_worker_that_died_on_a_node_without_a_core_is_seen():
    """A follower's launcher looks after its workers; the core that would have told of the death is on another node."""
    case = Case()
    members = []
    for pid, title, role, state in ((10, "vllm serve --headless", Role.LAUNCHER, "S"), (11, "VLLM::Worker_TP1", Role.WORKER, "Z")):
        case.add([ProcessState(node="tail0", ref=EvidenceRef(source="ps", locator=str(pid)), pid=pid, state=state)])
        rank = RankId(rank=1, world_size=2) if role is Role.WORKER else None
        members.append(EngineProcess(info=ProcessInfo(pid=pid, node="tail0", title=title), role=role, rank=rank, label=title))
    engine = EngineInstance(id="e0", kind="vllm", processes=tuple(members), nodes=("tail0",), world_size=2)
    case.engines = [engine]
    found, _ = run_rules(View(case, engine), [worker_died.RULE])
    assert [(f.id, f.ranks) for f in found] == [("worker-process-died", (1,))]


def _failed_start(minute: int, first_pid: int, bad: int) -> list[str]:
    """A start of which one rank fails, in a container: its workers have pids from first_pid on, in the order of their ranks."""
    core, at = first_pid - 10, f"05-30 14:{minute}"
    lines = [
        f"(EngineCore pid={core}) INFO {at}:00 [core.py:112] Initializing a V1 LLM engine (v0.25.0) with config: model='/m', "
        "tensor_parallel_size=4, pipeline_parallel_size=1, data_parallel_size=1"
    ]
    for r in range(4):
        place = f"world_size=4 rank={r} local_rank={r} distributed_init_method=tcp://127.0.0.1:29501 backend=nccl"
        lines.append(f"(Worker_TP{r} pid={first_pid + r}) INFO {at}:15 [parallel_state.py:1607] {place}")
    said = f"(Worker_TP{bad} pid={first_pid + bad}) ERROR {at}:40 [multiproc_executor.py:948] "
    lines += [said + "WorkerProc failed to start.", said + "Traceback (most recent call last):"]
    lines += [
        said + "ValueError: shape mismatch in shard",
        f"(EngineCore pid={core}) ERROR {at}:42 [core.py:718] EngineCore failed to start.",
    ]
    return lines


def test_a_pid_that_another_rank_had_in_the_start_before_is_named_as_who_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "node0.log").write_text("\n".join([*_failed_start(10, 100, 1), *_failed_start(12, 102, 1)]) + "\n")
    report = analyze([tmp_path])
    failed = [f for f in report.findings if f.id == "worker-start-failed"]
    assert len(failed) == 2 and all(f.ranks == (1,) for f in failed)  # pid 101, and 103, which was rank 3 the first time
    assert report.root.rank == 1


def test_a_start_after_one_that_failed_is_another_life(tmp_path: Path) -> None:
    lines = [*_failed_start(10, 100, 1), *_failed_start(12, 100, 1)[:5]]
    lines.append("(EngineCore pid=90) INFO 05-30 14:14:00 [core.py:250] init engine (profile, create kv cache, warmup model) took 96.20 s")
    lines.append("(APIServer pid=1) INFO:     Application startup complete.")
    (tmp_path / "node0.log").write_text("\n".join(lines) + "\n")
    told = {f.id: f for f in analyze([tmp_path]).findings}
    assert told["startup-completed"].since and told["startup-completed"].title.endswith("14:12:00Z")
    assert told["worker-start-failed"].until is not None or told["worker-start-failed"].role.value != "root"


def test_ranks_that_failed_alike_at_once_are_not_told_apart(tmp_path: Path) -> None:
    lines = _failed_start(10, 100, 1)
    other = [line.replace("Worker_TP1 pid=101", "Worker_TP0 pid=100") for line in lines[5:8]]
    (tmp_path / "node0.log").write_text("\n".join([*lines[:5], *other, *lines[5:]]) + "\n")
    report = analyze([tmp_path])
    assert report.root.finding == "worker-start-failed" and report.root.rank is None


def test_a_start_of_v0_8_that_failed_is_no_death_in_serving(tmp_path: Path) -> None:
    said = "(VllmWorker rank=1 pid=9911) ERROR 04-22 10:10:10 [multiproc_executor.py:435] "
    cause = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
    (tmp_path / "serve.log").write_text(
        "INFO 04-22 10:09:10 [core.py:58] Initializing a V1 LLM engine (v0.8.4) with config: model='/m', tensor_parallel_size=2\n"
        f"{said}WorkerProc failed to start.\n{said}Traceback (most recent call last):\n{said}ValueError: no such layer\n"
        f"ERROR 04-22 10:10:13 [core.py:387] EngineCore hit an exception: Traceback (most recent call last):\n"
        f"ERROR 04-22 10:10:13 [core.py:387] {cause}\n"
        "CRITICAL 04-22 10:10:13 [core_client.py:359] Got fatal signal from worker processes, shutting down. See stack trace above "
        "for root cause issue.\n"
    )
    found = {f.id: f.grade.value for f in analyze([tmp_path]).findings}
    assert found["worker-start-failed"] == "established" and "engine-died" not in found
