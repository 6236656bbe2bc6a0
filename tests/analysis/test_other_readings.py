"""What else the same evidence may mean: where another reading fits, nothing is established and nobody is named for it."""

from __future__ import annotations

import json

import pytest

from forensics.analysis import analyze
from forensics.analysis.progress import build
from forensics.model import EvidenceRef, ProgressSample, TimeRange
from tests.analysis.conftest import Told
from tests.analysis.scene import API, CORE, CORE_IDLES, CORE_WAITS, IN_COLLECTIVE, IN_STEP, WORKER, WORKER_IDLES
from tests.analysis.test_incidents import BROKEN
from tests.analysis.test_lives import bare, started, stats

IN_SYNC = ["Event.synchronize (torch/cuda/streams.py)", *IN_STEP[1:]]
COMPILES = ["Popen.communicate (subprocess.py)", "run (subprocess.py)", "run_ninja (flashinfer/jit/cpp_ext.py)", *IN_STEP[1:]]


def test_an_exception_that_the_engine_outlived_is_not_the_cause_of_a_later_stall(scene, tell):
    """No stats line tells that it went on, but a core that lost an answer would have given up an hour ago."""
    s = scene()
    s.traceback(-3600, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "RuntimeError: a bad adapter")
    s.lines = s.lines[-5:]
    s.hang(1, IN_STEP)
    told = tell(s)
    assert told.root == ("rank-divergence-collective", 1)
    assert told.grade("worker-exception-swallowed") in (None, "possible")


def test_an_exception_of_a_rank_that_took_calls_since_loses_to_a_stopped_rank(scene, tell):
    s = scene()
    s.traceback(-90, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "RuntimeError: a bad adapter")
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    told = tell(s)
    assert told.root == ("process-stopped", 1)
    assert "worker-exception-swallowed" not in told.established


def test_a_traceback_before_the_engine_was_ready_explains_nothing_later(scene, tell):
    s = scene()
    s.lines.insert(1, s.lines[0].replace("non-default args", "WorkerProc hit an exception."))
    s.hang(1, IN_STEP)
    s.traceback(-105, "Worker_TP0", WORKER, "optional kernels are missing", "ImportError: no module named fast_kernels")
    s.lines = [*s.lines[:3], *s.lines[-5:], *s.lines[3:-5]]
    told = tell(s)
    assert told.grade("worker-exception-swallowed") is None
    assert told.root == ("rank-divergence-collective", 1)


def test_the_newer_exception_counts_when_the_older_was_outlived(scene, tell):
    s = scene()
    s.traceback(-90, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: a bad adapter")
    stats_line = (
        "Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs"
    )
    s.log(-40, "APIServer", API, "INFO", stats_line)
    s.traceback(-8, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: the one that matters")
    s.hang(1, WORKER_IDLES)
    told = tell(s)
    assert told.root == ("worker-exception-swallowed", 1)
    assert "the one that matters" in told.by_id["worker-exception-swallowed"].title


def test_a_queue_that_refused_an_item_and_was_outlived_is_no_root(scene, tell):
    s = scene()
    s.traceback(-60, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "queue.Full")
    told = tell(s)
    assert told.state == "healthy"
    assert told.root == (None, None)


def test_an_exception_whose_name_ends_like_a_full_queue_is_still_told(scene, tell):
    s = scene()
    s.still()
    s.traceback(-8, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "errors.CacheFullError: no block left")
    s.traceback(-8, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: Worker failed with error 'no block left'")
    s.states[CORE, 0] = "gone"
    assert tell(s).root == ("worker-exception-fatal", 0)


@pytest.mark.parametrize("frames", [IN_SYNC, [], ["recv (torch/distributed/distributed_c10d.py)", *IN_STEP[1:]]])
def test_a_rank_that_waits_for_its_gpu_or_a_peer_may_be_inside_the_collective(scene, tell, frames):
    s = scene(ranks=4)
    s.hang(2, frames)
    told = tell(s)
    assert told.grade("engine-stalled") == "established"
    assert told.grade("rank-divergence-collective") is None
    assert told.root == (None, None)


def test_a_compiler_that_a_worker_waits_for_is_no_standstill(scene, tell):
    s = scene()
    s.hang(1, COMPILES)
    told = tell(s)
    assert not told.established & BROKEN


def test_a_core_that_cannot_run_is_not_idle(scene, tell):
    s = scene()
    s.idle()
    s.states[CORE, 0] = "T"
    told = tell(s)
    assert told.grade("idle-healthy") is None
    assert told.root[0] == "process-stopped"


def test_idleness_is_not_established_over_a_rank_whose_stack_nobody_saw(scene, tell):
    s = scene()
    s.idle()
    s.stacks[WORKER + 1, "MainThread"] = []
    assert tell(s).grade("idle-healthy") == "supported"


def test_a_scraper_that_keeps_its_connection_does_not_hide_idleness(scene, tell):
    s = scene()
    s.idle()
    s.clients = 2
    told = tell(s)
    assert told.state == "healthy"
    assert told.grade("idle-healthy") == "supported"


def test_an_open_connection_to_a_stopped_idle_engine_is_not_yet_outstanding_work(scene, tell):
    s = scene()
    s.idle()
    s.clients = 2
    s.states[CORE, 0] = "T"
    told = tell(s)
    assert "engine-stalled" not in told.established
    assert told.root[0] == "process-stopped"


def test_weights_read_from_a_disk_are_no_fault_of_the_rank_that_waits_for_them(scene, tell):
    s = scene(served=False)
    s.health, s.metrics = None, []
    s.log(-20, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m'}")
    s.everywhere(CORE, CORE_WAITS)
    for rank in range(2):
        s.everywhere(WORKER + rank, ["load_weights (vllm/loader.py)", "Worker.load_model (vllm/worker.py)"])
        s.states[WORKER + rank, 0] = "D"
    told = tell(s)
    assert told.state == "starting"
    assert told.root == (None, None)
    assert not told.established & BROKEN


def test_gauges_without_a_counter_that_every_step_moves_prove_no_standstill():
    def sample(n: int, **counters: float) -> ProgressSample:
        at = TimeRange(earliest_ns=n * 10**10, latest_ns=n * 10**10, basis="sampled")
        return ProgressSample(
            node="a", ref=EvidenceRef(source=f"m{n}", locator="x"), at=at, via="metrics", counters=counters, running=3, sample=n
        )

    assert build([sample(1), sample(2), sample(3)]).metrics == []
    assert build([sample(1, prompt_tokens=7), sample(2, prompt_tokens=7)]).metrics == []
    assert [i.moved for i in build([sample(1, steps=7), sample(2, steps=7)]).metrics] == [False]


def test_one_moment_told_by_two_replicas_is_not_a_standstill_that_repeats(tmp_path):
    """A prompt of some seconds on each of two replicas: one all-zero line of each."""
    told = bare(tmp_path, *started(0), stats(2, 0, 50.0, 1, 0), stats(2, 0, 50.0, 1, 1), stats(2, 10, 0.0, 1, 0), stats(2, 10, 0.0, 1, 1))
    assert told.grade("engine-stalled") is None


def test_a_replica_that_stands_still_is_seen_though_the_other_serves(tmp_path):
    lines = [line for s in range(0, 60, 10) for line in (stats(2, s, 0.0, 3, 0), stats(2, s, 70.0, 3, 1))]
    assert bare(tmp_path, *started(0), *lines).grade("engine-stalled") == "established"


WAIT = "(EngineCore pid=12) INFO 09-01 10:02:00 [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds."


def test_a_wait_that_ended_long_ago_does_not_confirm_one_zero_line(tmp_path):
    told = bare(tmp_path, *started(0), WAIT, *(stats(m, 0, 60.0, 2) for m in range(4, 9)), stats(8, 10, 0.0, 2))
    assert told.grade("engine-stalled") is None


def test_a_health_check_that_timed_out_is_not_a_step_that_did(tmp_path):
    late = "(EngineCore pid=12) ERROR 09-01 10:04:05 [core.py:9] TimeoutError: RPC call to check_health timed out."
    told = bare(tmp_path, *started(0), *(stats(4, s, 60.0, 2) for s in (0, 10, 20)), late)
    assert told.grade("engine-stalled") is None
    assert told.grade("symptom-rpc-timeout") is None


def test_the_idle_replica_is_not_blamed_for_the_busy_one(tmp_path):
    """Two replicas of one rank each: the one that burns no CPU has nothing to do with the other's step."""
    from tests.analysis.replicas import Replicas, two_replicas

    def spinning(self: Replicas, pid: int, sample: int, at: int) -> None:
        self.cpu[WORKER + 1, WORKER + 1] = [1.0, 3.0, 16.0]
        super(Replicas, self)._process(pid, sample, at)

    Replicas._process = spinning  # type: ignore[method-assign]
    try:
        told = Told(analyze([two_replicas(tmp_path, busy=1, moves=False)]))
    finally:
        del Replicas._process
    assert told.grade("engine-stalled") == "established"
    assert told.grade("one-rank-not-in-collective") is None


def test_a_stage_that_waits_for_input_is_not_outside_the_other_stages_collective(scene, tell):
    """PP 2 x TP 2: rank 1 is outside its stage's collective; the idle ranks of the next stage are not."""
    s = scene(ranks=4)
    s.lines = [
        line.replace(f"PP rank 0, PCP rank 0, TP rank {r}", f"PP rank {r // 2}, PCP rank 0, TP rank {r % 2}")
        for line in s.lines
        for r in [int(line.split("TP rank ")[1][0]) if "TP rank " in line else 0]
    ]
    s.hang(1, IN_STEP)
    for rank in (2, 3):
        s.everywhere(WORKER + rank, WORKER_IDLES)
    told = tell(s)
    assert told.root == ("rank-divergence-collective", 1)


def test_an_idle_core_beside_a_busy_front_claims_nothing(scene, tell):
    s = scene()
    s.idle()
    s.everywhere(CORE, CORE_IDLES)
    s.everywhere(API, IN_COLLECTIVE)
    assert not tell(s).established & BROKEN


@pytest.mark.parametrize(("status", "finding"), [(None, "health-probe-timeout-under-load"), (503, "health-endpoint-misleading")])
def test_a_failing_probe_of_an_engine_that_works_says_nothing_against_it(scene, tell, status, finding):
    s = scene()
    s.health = None
    probe = {"url": "http://127.0.0.1:8000/health", "status": status, "latency_s": 5.0, "error": "timed out", "body": ""}
    s.extra.append(("health", "health/8000-health.json", "http|" + json.dumps(probe), API))
    told = tell(s)
    assert told.state == "healthy"
    assert told.grade(finding) == "established"


def test_a_worker_that_ended_is_named_for_its_end_not_for_its_absence(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "Z"
    assert tell(s).root == ("worker-process-died", 1)


@pytest.mark.parametrize(("zeros", "grade"), [(3, "supported"), (6, "established")])
def test_zeros_after_traffic_may_be_one_prompt_that_is_longer_than_all_before(tmp_path, zeros: int, grade: str):
    lines = [*(stats(2, s, 70.0, 3) for s in range(0, 60, 10)), *(stats(3, 10 * n, 0.0, 1) for n in range(zeros))]
    told = bare(tmp_path, *started(0), *lines)
    assert told.grade("engine-stalled") == grade and told.state == "stalled"
