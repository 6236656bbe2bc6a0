"""Whole incidents, captured or mailed: which rank is named, how firmly, and what must not be said."""

from __future__ import annotations

import pytest

from tests.analysis.scene import API, CORE, CORE_WAITS, IN_STEP, WORKER, WORKER_IDLES

BROKEN = {
    "engine-stalled", "engine-died", "process-stopped", "rank-not-responding", "rank-divergence-collective", "lock-deadlock",
    "worker-process-died", "worker-exception-swallowed", "worker-exception-fatal", "bounded-queue-overflow", "one-rank-not-in-collective",
    "process-uninterruptible", "worker-start-failed", "failure-head-of-line-blocked", "health-endpoint-misleading",
}  # fmt: skip
IN_LOCK = ["transfer (vllm_plugin/offload.py)", *IN_STEP[1:]]


def test_a_serving_engine_is_healthy_and_nothing_is_claimed(scene, tell):
    told = tell(scene())
    assert told.state == "healthy"
    assert told.grade("healthy-serving") == "established"
    assert told.root == (None, None)
    assert not told.established & BROKEN


def test_an_idle_engine_is_idle_only_because_every_witness_agrees(scene, tell):
    s = scene()
    s.idle()
    told = tell(s)
    assert told.state == "healthy"
    assert told.grade("idle-healthy") == "established"
    assert not told.established & BROKEN


def test_gauges_alone_do_not_establish_idleness(scene, tell):
    s = scene()
    s.idle()
    s.denied["stacks"] = "DENIED"
    told = tell(s)
    assert told.grade("idle-healthy") == "supported"


def test_a_worker_frozen_while_idle_is_not_idle(scene, tell):
    s = scene()
    s.idle()
    s.states[WORKER + 1, 0] = "T"
    told = tell(s)
    assert told.grade("idle-healthy") is None
    assert told.root == ("process-stopped", 1)
    assert told.state == "degraded"
    assert told.grade("engine-stalled") is None


def test_requests_that_arrive_after_the_freeze_are_seen_though_the_gauges_say_idle(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.still(0, 0)
    s.states[WORKER + 1, 0] = "T"
    told = tell(s)
    assert told.state == "stalled"
    assert told.grade("engine-stalled") == "established"
    assert told.root == ("process-stopped", 1)


def test_a_stopped_rank_is_the_root_and_the_spinning_one_its_victim(scene, tell):
    s = scene(ranks=4)
    s.hang(2, IN_STEP)
    s.states[WORKER + 2, 0] = "T"
    for rank in (0, 1, 3):
        s.cpu[WORKER + rank, WORKER + rank] = [1.0, 3.0, 16.0]
    told = tell(s)
    assert told.root == ("process-stopped", 2)
    assert told.grade("engine-stalled") == "established"
    assert told.grade("rank-not-responding") == "established"
    assert {r for f in told.report.findings if f.id == "busy-spin" for r in f.ranks} == {0, 1, 3}
    assert all(f.role.value != "root" for f in told.report.findings if f.id == "busy-spin")
    targets = {(w.waiter_rank, w.target_rank) for w in told.report.waits if w.via == "collective"}
    assert targets == {(0, 2), (1, 2), (3, 2)}


def test_a_rank_outside_the_collective_is_named_from_two_samples(scene, tell):
    s = scene(ranks=4)
    s.hang(3, IN_LOCK)
    s.everywhere(WORKER + 3, ["transfer_loop (vllm_plugin/offload.py)", "Thread.run (threading.py)"], thread="writer")
    s.everywhere(WORKER + 3, IN_LOCK)
    told = tell(s)
    assert told.root == ("rank-divergence-collective", 3)
    assert told.grade("rank-divergence-collective") == "established"
    # which lock, held by whom, no stack says
    assert told.grade("lock-deadlock") == "possible"


def test_the_same_stacks_in_an_engine_that_moves_claim_nothing(scene, tell):
    s = scene()
    s.hang(1, IN_LOCK)
    s.metrics = [s._metrics(100), s._metrics(100), s._metrics(102, tokens_per_step=4)]
    told = tell(s)
    assert not told.established & BROKEN
    assert told.grade("rank-divergence-collective") is None
    assert told.grade("slow-progress") == "established"
    assert told.root == (None, None)


@pytest.mark.parametrize(("gap_s", "said"), [(1.4, "slow-progress"), (0.2, "healthy-serving")])
def test_slow_is_told_by_the_time_between_tokens_not_by_how_many_fall_into_a_short_look(scene, tell, gap_s, said):
    s = scene()
    before = 500  # a quick life until now: the mean since the start tells nothing
    s.metrics = [
        s._metrics(100 + 2 * sample) | {"gaps": before + 8 * sample, "gap_seconds": before * 0.02 + 8 * sample * gap_s}
        for sample in range(2)
    ]
    told = tell(s)
    assert told.grade(said) == "established"
    assert told.root == (None, None)


def test_a_short_look_is_not_enough_to_establish_a_stall(scene, tell):
    s = scene()
    s.hang(1, IN_LOCK)
    s.span_s = 4.0
    told = tell(s)
    assert told.grade("engine-stalled") in ("supported", "possible")
    assert "engine-stalled" not in told.established
    assert "rank-divergence-collective" not in told.established


def test_a_worker_that_moves_inside_its_step_is_computing(scene, tell):
    s = scene()
    s.still()
    s.everywhere(CORE, CORE_WAITS)
    for rank in range(2):
        s.stacks[WORKER + rank, "MainThread"] = [
            ["Attention.forward (vllm/a.py)", *IN_STEP[1:]],
            ["Mlp.forward (vllm/b.py)", *IN_STEP[1:]],
            ["Norm.forward (vllm/c.py)", *IN_STEP[1:]],
        ]
    told = tell(s)
    assert not told.established & BROKEN


def test_an_exception_on_a_silent_rank_is_found_though_nobody_was_told(scene, tell):
    s = scene()
    s.hang(1, WORKER_IDLES)
    s.traceback(-8, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: index 9 is out of bounds")
    told = tell(s)
    assert told.root == ("worker-exception-swallowed", 1)
    assert told.grade("worker-exception-swallowed") == "established"
    # true as well, but explained: it must not compete for the root
    assert told.by_id["rank-divergence-collective"].role.value == "cascade"
    assert told.grade("health-endpoint-misleading") == "established"


def test_an_exception_that_the_engine_survived_is_no_finding(scene, tell):
    s = scene()
    s.traceback(-8, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: one bad request")
    told = tell(s)
    assert not told.established & BROKEN
    assert told.root == (None, None)


def test_a_full_queue_on_the_output_rank_kills_and_is_the_root_not_its_empty_echo(scene, tell):
    s = scene()
    s.still()
    s.traceback(-8, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "queue.Full")
    s.traceback(-8, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: Worker failed with error '', please check")
    s.states[CORE, 0] = "gone"
    s.states[WORKER, 0] = s.states[WORKER + 1, 0] = "gone"
    told = tell(s)
    assert told.root == ("bounded-queue-overflow", 0)
    assert told.grade("engine-died") == "established"
    assert told.grade("worker-process-died") is None
    assert told.grade("memory-exhaustion") == "refuted"
    assert told.state == "dead"


def test_a_worker_that_ends_first_is_the_root_and_its_teardown_is_not(scene, tell):
    s = scene()
    s.still()
    s.log(-8, "EngineCore", CORE, "ERROR", "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.")
    s.traceback(-1, "EngineCore", CORE, "EngineCore encountered a fatal error.", "RuntimeError: cancelled")
    s.states[WORKER + 1, 0] = "gone"
    told = tell(s)
    assert told.root == ("worker-process-died", 1)
    assert "SIGKILL" in told.by_id["worker-process-died"].title
    assert told.grade("engine-died") == "established"


def test_a_zombie_worker_under_a_living_core_died(scene, tell):
    s = scene()
    s.still()
    s.states[WORKER + 1, 2] = s.states[WORKER + 1, 3] = "Z"
    told = tell(s)
    assert told.root == ("worker-process-died", 1)


def test_a_timeout_alone_names_no_rank(scene, tell):
    s = scene()
    s.still()
    s.denied["stacks"] = "DENIED"
    s.log(-4, "EngineCore", CORE, "ERROR", "EngineCore encountered a fatal error.")
    s.log(-4, "EngineCore", CORE, "ERROR", "TimeoutError: RPC call to sample_tokens timed out.")
    told = tell(s)
    assert told.root == (None, None)
    assert told.grade("symptom-rpc-timeout") == "established"
    assert told.grade("engine-stalled") == "established"


def test_an_orderly_stop_is_not_a_death(scene, tell):
    s = scene()
    s.still()
    s.log(-6, "APIServer", API, "INFO", "[shutdown] API server: shutdown triggered")
    s.log(-5, "EngineCore", CORE, "INFO", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    s.log(-4, "EngineCore", CORE, "ERROR", "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.")
    for pid in (CORE, WORKER, WORKER + 1):
        s.states[pid, 0] = "gone"
    told = tell(s)
    assert told.state == "stopped"
    assert not told.established & BROKEN
    assert told.root == (None, None)


def test_a_starting_engine_is_not_stalled(scene, tell):
    s = scene(served=False)
    s.health = None
    s.metrics = []
    s.log(-120, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m'}")
    s.log(-30, "EngineCore", CORE, "INFO", "No available shared memory broadcast block found in 60 seconds.")
    s.everywhere(CORE, CORE_WAITS)
    for rank in range(2):
        s.everywhere(WORKER + rank, ["load_weights (vllm/loader.py)", "Worker.load_model (vllm/worker.py)"])
    told = tell(s)
    assert told.state == "starting"
    assert not told.established & BROKEN


def test_two_ranks_that_break_apart_are_not_guessed_between(scene, tell):
    s = scene(ranks=4)
    s.hang(3, IN_STEP)
    s.states[WORKER + 2, 0] = s.states[WORKER + 3, 0] = "T"
    told = tell(s)
    assert told.root == (None, None)
    assert told.report.root.candidates


def test_a_process_in_uninterruptible_sleep_counts_when_it_stays_there(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "D"
    told = tell(s)
    assert told.grade("process-uninterruptible") == "established"
    assert told.root[1] == 1


def test_our_own_tracing_stop_is_not_a_stopped_process(scene, tell):
    s = scene()
    s.states[WORKER + 1, 2] = "t"
    told = tell(s)
    assert told.grade("process-stopped") is None


@pytest.mark.parametrize("denied", ["stacks", "process", "queues", "rpclogs", "cpu", "memory", "kernel"])
@pytest.mark.parametrize("how", ["DENIED", "TIMEOUT", "FAILED"])
def test_taking_evidence_away_never_raises_a_grade_or_clears_a_rule(tmp_path, tell, denied, how):
    from tests.analysis.scene import Scene

    def incident(name: str) -> Scene:
        s = Scene(tmp_path / name)
        s.hang(1, IN_LOCK)
        s.traceback(-8, "Worker_TP1", WORKER + 1, "WorkerProc hit an exception.", "RuntimeError: x")
        return s

    whole = tell(incident("whole"))
    blind = incident("blind")
    blind.denied[denied] = how
    told = tell(blind)
    for id, finding in told.by_id.items():
        if id.startswith("evidence-missing") or finding.grade.value in ("refuted", "not assessable"):
            continue
        before = whole.by_id.get(id)
        if before is None and finding.role.value != "root":
            continue
        assert before is not None and finding.grade.strength <= before.grade.strength, id
    for result in told.report.rules:
        before = whole.rule(result.rule)
        assert not (before == "INCONCLUSIVE" and result.status.value == "CLEAR"), result.rule
        assert result.status.value != "ERRORED", result


def test_a_rule_whose_evidence_was_denied_is_inconclusive_never_clear(scene, tell):
    s = scene()
    for collector in ("stacks", "process", "queues", "rpclogs", "cpu", "memory", "kernel"):
        s.denied[collector] = "DENIED"
    told = tell(s)
    for result in told.report.rules:
        assert result.status.value in ("INCONCLUSIVE", "NOT_APPLICABLE", "FIRED"), result
    assert {i for i in told.by_id if i.startswith("evidence-missing")} >= {"evidence-missing:stacks", "evidence-missing:log"}


def test_an_idle_replica_beside_a_busy_one_is_not_stalled(tmp_path):
    """Two data-parallel replicas behind one front: the work of one is no work held by the other."""
    from forensics.analysis import analyze
    from tests.analysis.conftest import Told
    from tests.analysis.replicas import two_replicas

    told = Told(analyze([two_replicas(tmp_path, busy=0, moves=True)]))
    assert not told.established & BROKEN
    assert told.grade("engine-stalled") is None


def test_a_stalled_replica_is_seen_beside_one_that_serves(tmp_path):
    from forensics.analysis import analyze
    from tests.analysis.conftest import Told
    from tests.analysis.replicas import two_replicas

    told = Told(analyze([two_replicas(tmp_path, busy=1, moves=False)]))
    assert told.state == "stalled"
    assert told.grade("engine-stalled") == "established"


def test_a_rank_that_spins_while_nothing_is_outstanding_is_a_cost_not_a_fault(scene, tell):
    s = scene()
    s.idle()
    s.cpu[WORKER, WORKER] = [1.0, 3.0, 16.0]
    told = tell(s)
    assert told.grade("idle-cpu-spin") == "established"
    assert told.grade("busy-spin") is None
    assert told.state == "healthy"


def test_a_rank_that_sleeps_on_a_timer_in_its_step_may_be_slow_and_not_stuck(scene, tell):
    s = scene()
    s.hang(1, ["prepare (vllm_plugin/throttle.py)", *IN_STEP[1:]])
    s.wchans[WORKER + 1] = "hrtimer_nanosleep"
    told = tell(s)
    assert told.grade("engine-stalled") == "supported"
    assert told.grade("rank-divergence-collective") == "supported"
    assert not told.established & BROKEN
    assert told.root == ("rank-divergence-collective", 1)
