"""Grammars, experts in parallel, leases, weights, probes, restarts, limits, spinning: with their healthy look-alikes."""

from __future__ import annotations

import pytest

from tests.analysis.mechanisms.logs import T0, Log, sglang, told

MATCHER = "[10:00:0{}] /project/cpp/grammar_matcher.cc:{}: Warning: The matcher has terminated after accepting the stop token, but is trying to accept new token with id 198."
SPEC = "speculative_config=SpeculativeConfig(method='eagle3', model='/d', num_spec_tokens=3), "
TIMEOUT = "TimeoutError: RPC call to sample_tokens timed out."


def livelock(spec: bool = True, zero: int = 1, after: str = "") -> Log:
    log = Log(config=SPEC if spec else "").flow(-100, 2)
    log.raw(MATCHER.format(3, 612))
    if after:
        log.line(4, "Worker_TP0", 430, after, "ERROR")
    for i in range(zero):
        log.stats(10 + 10 * i, 0.0, 1, 0, 3.0)
    for i in range(1, 6):
        log.core_says(4 + 60 * i, "No available shared memory broadcast block found in 60 seconds. This typically happens when", "INFO")
    return log


@pytest.mark.parametrize("zero", [1, 5])
def test_a_matcher_driven_past_its_end_right_before_tokens_stopped(tmp_path, zero):
    t = told(tmp_path, node0=livelock(zero=zero))
    assert t.grade("grammar-matcher-after-termination") == "established"
    assert t.grade("grammar-spec-livelock") == "supported"
    assert t.state == "stalled" and t.root == ("grammar-spec-livelock", None)


def test_it_ends_in_a_timeout_of_a_raised_limit(tmp_path):
    log = livelock()
    log.core_says(903, "EngineCore encountered a fatal error.", "ERROR").core_says(903, TIMEOUT, "ERROR")
    t = told(tmp_path, node0=log, env_txt="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=900\nPATH=/bin\n")
    assert t.grade("grammar-spec-livelock") == "supported" and t.state == "dead"
    assert "15 min" in t.by_id["time-limit-raised"].title and t.by_id["time-limit-raised"].role.value == "context"
    assert abs(t.by_id["engine-stalled"].since.earliest_ns - (T0 + 3) * 10**9) <= 10 * 10**9


def test_without_drafts_there_is_no_livelock_to_name(tmp_path):
    t = told(tmp_path, node0=livelock(spec=False))
    assert t.grade("grammar-matcher-after-termination") == "established" and "grammar-spec-livelock" not in t.by_id


def test_a_warning_followed_by_traffic_is_not_told(tmp_path):
    log = Log(config=SPEC).flow(-100, 2)
    for _ in range(40):
        log.raw(MATCHER.format(3, 612))
    t = told(tmp_path, node0=log.flow(12, 100))
    assert not [i for i in t.by_id if i.startswith("grammar-")] and t.state == "healthy"


def test_a_warning_long_before_a_stall_is_not_its_cause(tmp_path):
    log = Log(config=SPEC).flow(-100, 2)
    log.raw(MATCHER.format(3, 612)).flow(12, 600)
    for at in range(600, 700, 10):
        log.stats(at, 0.0, 1, 0, 3.0)
    assert "grammar-spec-livelock" not in told(tmp_path, node0=log).by_id


def test_an_exception_of_a_worker_before_it_is_another_reading(tmp_path):
    log = Log(config=SPEC).flow(-100, 2)
    log.line(1, "Worker_TP1", 431, "WorkerProc hit an exception.", "ERROR")
    log.raw(MATCHER.format(3, 612)).stats(10, 0.0, 1).stats(20, 0.0, 1).stats(30, 0.0, 1)
    assert "grammar-spec-livelock" not in told(tmp_path, node0=log).by_id


def test_a_grammar_that_is_not_compiled_in_time(tmp_path):
    lines = [
        sglang(-200, "The server is fired up and ready to roll!", None),
        sglang(0, "Grammar preprocessing timed out: req.grammar_key=('json', '{}')"),
    ]
    assert told(tmp_path, node0=lines).grade("grammar-compile-blocking") == "established"


@pytest.mark.parametrize(
    "line",
    ["RuntimeError: DeepEP error: timeout (dispatch CPU)", "RuntimeError: DeepEP error: CPU recv timeout",
     "DeepEP timeout check failed: rank = 5, thread = 2, value = 1024)", "DeepEP timeout for combine receivers, rank 5, responsible_channel = 3"],
)  # fmt: skip
def test_experts_that_waited_name_themselves_and_not_the_one_that_did_not_come(tmp_path, line):
    log = Log().flow(-200, 0)
    log.line(100, "Worker_TP5_EP5", 435, line, "ERROR")
    t = told(tmp_path, node0=log)
    finding = t.by_id["deepep-dispatch-timeout"]
    assert finding.grade.value == "established" and finding.ranks == () and finding.since.earliest_ns == T0 * 10**9
    assert t.root[1] is None


def test_after_a_worker_died_the_experts_timeout_is_a_consequence(tmp_path):
    log = Log().flow(-200, 0)
    log.core_says(1, "Worker proc VllmWorker-3 died unexpectedly (exit code: -11), shutting down executor.", "ERROR")
    log.line(101, "Worker_TP5_EP5", 435, "RuntimeError: DeepEP error: CPU recv timeout", "ERROR")
    t = told(tmp_path, node0=log)
    assert t.by_id["deepep-dispatch-timeout"].role.value == "cascade" and t.root[0] == "sigsegv"


def dynamo(at: float, message: str, level: str = "ERROR") -> str:
    import time

    return (
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(T0 + at))}.168234Z {level:>5} dynamo_runtime::transports::etcd::lease: {message}"
    )


def test_a_lease_that_was_given_up(tmp_path):
    t = told(
        tmp_path,
        frontend=[
            dynamo(0, "Unable to send lease heartbeat. Check etcd server status error=transport error", "WARN"),
            dynamo(10, "Unable to maintain lease. Check etcd server status error=Unable to refresh lease - deadline exceeded"),
        ],
        node0=Log().flow(-100, 20),
    )
    finding = t.by_id["control-plane-lease-lost"]
    assert finding.grade.value == "established" and finding.since.earliest_ns // 10**9 == T0
    assert finding.nodes == ("frontend",)


def test_a_lease_that_is_tried_again_is_not_lost(tmp_path):
    lines = [dynamo(i, f"Attempting to maintain lease. Check etcd server status, attempt {i}/24 error=x") for i in (1, 2)]
    assert "control-plane-lease-lost" not in told(tmp_path, frontend=lines).by_id


SHARD = "Loading safetensors checkpoint shards: {:3}% Completed | {}/41 [{}<22:00, {:5.2f}{}]"


def test_shards_that_come_slowly_during_start_up(tmp_path):
    log = Log(start=False).core_says(0, "Initializing a V1 LLM engine (v0.19.1) with config: model='/m', tensor_parallel_size=2", "INFO")
    for i in range(1, 9):
        log.raw(SHARD.format(i * 2, i, f"0{i}:10", 71.5, "s/it"))
    log.core_says(600, "still loading", "INFO")
    t = told(tmp_path, node0=log)
    assert t.grade("slow-weight-load") == "established" and t.by_id["slow-weight-load"].until is None
    assert "engine-stalled" not in t.by_id


@pytest.mark.parametrize(("rate", "unit"), [(1.5, "s/it"), (4.2, "it/s")])
def test_shards_at_an_ordinary_rate_are_not_told(tmp_path, rate, unit):
    log = Log()
    for i in range(1, 9):
        log.raw(SHARD.format(i * 2, i, f"0{i}:10", rate, unit))
    assert "slow-weight-load" not in told(tmp_path, node0=log.flow(-100, 0)).by_id


def test_one_cold_shard_is_not_a_slow_load(tmp_path):
    log = Log(start=False).core_says(0, "Initializing a V1 LLM engine (v0.19.1) with config: model='/m', tensor_parallel_size=2", "INFO")
    log.raw(SHARD.format(2, 1, "00:31", 31.5, "s/it")).core_says(60, "still loading", "INFO")
    assert "slow-weight-load" not in told(tmp_path, node0=log).by_id


def test_a_load_told_by_its_sum(tmp_path):
    log = Log(start=False).core_says(
        -3000, "Initializing a V1 LLM engine (v0.19.1) with config: model='/m', tensor_parallel_size=2", "INFO"
    )
    log.line(-1000, "Worker_TP0", 430, "Model loading took 61.2 GiB memory and 1902.300000 seconds")
    log.core_says(-700, "init engine (profile, create kv cache, warmup model) took 88.10 seconds", "INFO").flow(-100, 0)
    assert told(tmp_path, node0=log).grade("slow-weight-load") == "established"


def test_a_raised_limit_without_a_stall_is_nobody_s_business(tmp_path):
    t = told(tmp_path, node0=Log().flow(-100, 100), env_txt="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800\n")
    assert "time-limit-raised" not in t.by_id and t.state == "healthy"


def test_a_limit_at_its_default_was_not_raised(tmp_path):
    log = Log().flow(-100, 1)
    for at in range(10, 90, 10):
        log.stats(at, 0.0, 4)
    assert "time-limit-raised" not in told(tmp_path, node0=log, env_txt="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=300\n").by_id


TOP = "  PID USER  %CPU COMMAND\n  310 root  {core} VLLM::EngineCore\n  430 root  {rank} VLLM::Worker_TP0\n"


def idle(tail: int = 6, served: bool = False) -> Log:
    log = Log()
    log.line(-690, "Worker_TP0", 430, "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A")
    if served:
        log.flow(-100, 0)
    for i in range(tail):
        log.stats(10 * i, 0.0, 0, 0, 0.0)
    return log


POLLS = """\
GIL: 49.00%, Active: 100.00%, Threads: 5

  %Own   %Total  OwnTime  TotalTime  Function (filename)
 64.00%  64.00%    5.03s     5.03s   sched_yield (vllm/distributed/utils.py)
"""


@pytest.mark.parametrize(
    ("served", "polls", "grade"), [(False, True, "established"), (False, False, "supported"), (True, True, "supported")]
)
def test_a_reader_that_polls_while_nothing_is_outstanding_is_a_cost(tmp_path, served, polls, grade):
    """A look of unknown time may be from before the engine went idle; a rate alone does not show that it polls."""
    more = {"worker_pyspy__top_txt": POLLS} if polls else {}
    t = told(tmp_path, node0=idle(served=served), node0_top_txt=TOP.format(core=99.8, rank=100.2), **more)
    found = [f for f in t.report.findings if f.id == "idle-cpu-spin"]
    assert {f.grade.value for f in found} == {grade} and {f.pids for f in found} == {(310,), (430,)}
    assert t.state == "healthy" and "engine-stalled" not in t.by_id


def test_the_same_processes_at_work_are_not_idle(tmp_path):
    log = Log().flow(-100, 0)
    log.line(-690, "Worker_TP0", 430, "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A")
    assert "idle-cpu-spin" not in told(tmp_path, node0=log, node0_top_txt=TOP.format(core=99.8, rank=100.2)).by_id


def test_an_idle_process_that_sleeps_does_not_spin(tmp_path):
    assert "idle-cpu-spin" not in told(tmp_path, node0=idle(), node0_top_txt=TOP.format(core=2.1, rank=0.7)).by_id


def test_a_warning_at_the_end_of_the_last_answer_is_not_told(tmp_path):
    log = Log(config=SPEC).flow(-100, 2)
    log.raw(MATCHER.format(3, 612)).stats(10, 0.0, 0, 0, 0.0)
    t = told(tmp_path, node0=log)
    assert not [i for i in t.by_id if i.startswith("grammar-")] and t.state == "healthy"


def test_no_line_without_movement_was_printed_before_the_limit_ran_out(tmp_path):
    log = Log(config=SPEC).flow(-100, 2)
    log.raw(MATCHER.format(3, 612))
    log.core_says(303, "EngineCore encountered a fatal error.", "ERROR").core_says(303, TIMEOUT, "ERROR")
    t = told(tmp_path, node0=log)
    assert t.grade("grammar-spec-livelock") == "supported" and t.state == "dead" and t.root[1] is None


def test_drafts_are_told_by_their_own_figures_too(tmp_path):
    log = Log().flow(-100, 2)
    log.line(
        1,
        "APIServer",
        7,
        "SpecDecoding metrics: Mean acceptance length: 2.41, Accepted throughput: 31.20 tokens/s, Drafted throughput: 66 tokens/s",
    )
    log.raw(MATCHER.format(3, 493)).stats(10, 0.0, 2).stats(20, 0.0, 2).stats(30, 0.0, 2)
    assert told(tmp_path, node0=log).grade("grammar-spec-livelock") == "supported"


def test_a_fault_of_the_gpu_before_it_is_another_reading(tmp_path):
    kernel = "2026-07-01T09:58:30+00:00 node0 kernel: NVRM: Xid (PCI:0000:b3:00): 79, pid=430, GPU has fallen off the bus.\n"
    assert "grammar-spec-livelock" not in told(tmp_path, node0=livelock(zero=5), node0_kernel_log=kernel).by_id
