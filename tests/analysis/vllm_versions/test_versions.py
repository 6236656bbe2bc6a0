"""Short logs of the shape that each family of vLLM versions writes: who is recognised, what is concluded, and what must not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.model import Finding, Report

STRONG = ("supported", "established")


def report(tmp_path: Path, **logs: str) -> Report:
    """Analyse logs by their names; "__" stands for a dot."""
    for name, text in logs.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text if text.endswith("\n") else text + "\n")
    return analyze([tmp_path])


def strong(told: Report, *ids: str) -> list[Finding]:
    return [f for f in told.findings if f.id in ids and f.grade.value in STRONG]


def causes(told: Report) -> set[str]:
    """What is said, firmly, to have broken."""
    return {f.id for f in told.findings if f.grade.value in STRONG and f.role.value == "root"}


def trace(prefix: str, exc: str) -> str:
    return "\n".join(
        prefix + line
        for line in (
            "Traceback (most recent call last):",
            '  File "/opt/vllm/worker/model_runner.py", line 101, in execute_model',
            "    raise error",
            exc,
        )
    )


V0_START = """\
INFO 10-29 11:09:02 api_server.py:528] vLLM API server version 0.6.3.post1
INFO 10-29 11:09:02 api_server.py:529] args: Namespace(subparser='serve', model_tag='/models/m', tensor_parallel_size={tp})
INFO 10-29 11:09:05 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='/models/m', speculative_config=None, tensor_parallel_size={tp}, pipeline_parallel_size=1
{workers}INFO 10-29 11:09:07 model_runner.py:1060] Starting to load model /models/m...
INFO 10-29 11:09:13 model_runner.py:1071] Loading model weights took 14.9888 GB
INFO 10-29 11:09:15 gpu_executor.py:122] # GPU blocks: 27938, # CPU blocks: 2048
INFO 10-29 11:09:40 model_runner.py:1523] Graph capturing finished in 22 secs.
INFO:     Started server process [1]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
INFO 10-29 11:10:00 metrics.py:345] Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 310.3 tokens/s, Running: 24 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 91.4%, CPU KV cache usage: 0.0%.
INFO 10-29 11:10:05 metrics.py:345] Avg prompt throughput: 10.1 tokens/s, Avg generation throughput: 305.3 tokens/s, Running: 24 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 91.0%, CPU KV cache usage: 0.0%.
"""
V0_WORKERS = """\
(VllmWorkerProcess pid=4711) INFO 10-29 11:09:05 multiproc_worker_utils.py:215] Worker ready; awaiting tasks
(VllmWorkerProcess pid=4712) INFO 10-29 11:09:05 multiproc_worker_utils.py:215] Worker ready; awaiting tasks
"""
V0_ONE = V0_START.format(tp=1, workers="")
V0_THREE = V0_START.format(tp=3, workers=V0_WORKERS)


def test_v0_one_gpu_in_service(tmp_path):
    told = report(tmp_path, node0__log=V0_ONE)
    assert [e.kind for e in told.engines] == ["vllm"]
    assert told.engines[0].version.startswith("0.6.3")
    assert told.verdict.state == "healthy"
    assert strong(told, "startup-completed") and not causes(told)


def test_v0_engine_process_gone_without_a_word(tmp_path):
    log = V0_ONE + (
        "ERROR 10-29 11:12:31 client.py:282] RuntimeError('Engine process (pid 76) died.')\n"
        "ERROR 10-29 11:12:31 client.py:282] NoneType: None\n"
        "CRITICAL 10-29 11:12:33 launcher.py:99] MQLLMEngine is already dead, terminating server process\n"
        'INFO:     192.0.2.7:60606 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "INFO:     Shutting down\nINFO:     Finished server process [1]\n"
    )
    told = report(tmp_path, node0__log=log)
    assert told.verdict.state == "dead"
    assert strong(told, "engine-died") and not strong(told, "orderly-shutdown", "host-oom-kill", "sigsegv")
    assert told.root.finding is None, "what ended the process stands in no line"


def test_v0_worker_killed(tmp_path):
    log = V0_THREE + (
        "ERROR 10-29 11:12:31 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 4712 died, exit code: -9\n"
        "INFO 10-29 11:12:31 multiproc_worker_utils.py:120] Killing local vLLM worker processes\n"
    )
    told = report(tmp_path, node0__log=log)
    (died,) = strong(told, "worker-process-died")
    assert "SIGKILL" in died.title and told.root.finding == "worker-process-died"
    assert not strong(told, "host-oom-kill", "orderly-shutdown")


def test_v0_stopped_from_outside_is_no_death_of_workers(tmp_path):
    log = V0_THREE + (
        "INFO 10-29 11:12:30 launcher.py:57] Shutting down FastAPI HTTP server.\n"
        "ERROR 10-29 11:12:31 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 4712 died, exit code: -15\n"
        "INFO 10-29 11:12:31 multiproc_worker_utils.py:120] Killing local vLLM worker processes\n"
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.\n"
    )
    told = report(tmp_path, node0__log=log)
    assert not strong(told, "worker-process-died", "engine-died") and not causes(told)
    assert strong(told, "orderly-shutdown")


def test_v0_worker_raises_and_the_engine_is_told(tmp_path):
    p = "(VllmWorkerProcess pid=4711) ERROR 10-29 11:12:31 multiproc_worker_utils.py:240] "
    log = V0_THREE + (
        f"{p}Exception in worker VllmWorkerProcess while processing method start_worker_execution_loop.\n"
        f"{trace(p, 'RuntimeError: shape mismatch')}\n"
        "ERROR 10-29 11:12:31 engine.py:137] RuntimeError('shape mismatch')\n"
        "CRITICAL 10-29 11:12:32 launcher.py:99] MQLLMEngine is already dead, terminating server process\n"
        "ERROR 10-29 11:12:40 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 4712 died, exit code: -15\n"
    )
    told = report(tmp_path, node0__log=log)
    assert told.verdict.state == "dead"
    assert told.root.finding == "worker-exception-fatal" and "shape mismatch" in strong(told, "worker-exception-fatal")[0].title
    assert not strong(told, "worker-exception-swallowed", "worker-process-died")


def test_v0_step_that_never_came_back(tmp_path):
    log = V0_THREE + (
        "INFO 10-29 11:10:10 metrics.py:345] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 24 reqs, Swapped: 0 reqs, Pending: 9 reqs, GPU KV cache usage: 91.0%, CPU KV cache usage: 0.0%.\n"
        "ERROR 10-29 11:11:06 async_llm_engine.py:846] Engine iteration timed out. This should never happen!\n"
        "ERROR 10-29 11:11:06 async_llm_engine.py:55] Engine background task failed\n"
        f"{trace('ERROR 10-29 11:11:06 async_llm_engine.py:55] ', 'asyncio.exceptions.TimeoutError')}\n"
    )
    told = report(tmp_path, node0__log=log)
    assert told.verdict.state in ("dead", "stalled")
    (timeout,) = strong(told, "symptom-rpc-timeout")
    assert timeout.role.value != "root" and told.root.finding is None
    (stall,) = strong(told, "engine-stalled")
    # sixty seconds before the line, or where the stats lines stop moving
    assert 0 <= (timeout.since.earliest_ns - stall.since.earliest_ns) / 1e9 <= 71


def test_v0_preemptions_aborts_and_refusals_are_no_fault(tmp_path):
    log = V0_ONE + (
        "WARNING 10-29 11:10:11 scheduler.py:1481] Sequence group cmpl-1-0 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end performance.\n"
        "INFO 10-29 11:10:12 async_llm_engine.py:223] Aborted request cmpl-5-0.\n"
        "ValueError: This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.\n"
        'INFO:     192.0.2.7:60606 - "POST /v1/completions HTTP/1.1" 400 Bad Request\n'
        "INFO 10-29 11:10:15 metrics.py:345] Avg prompt throughput: 10.1 tokens/s, Avg generation throughput: 305.3 tokens/s, Running: 24 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 99.0%, CPU KV cache usage: 0.0%.\n"
    )
    told = report(tmp_path, node0__log=log)
    assert told.verdict.state == "healthy" and not causes(told)


V1_START = """\
({api}pid=100) INFO 04-02 09:10:00 [{front}] non-default args: {{'model_tag': '/models/m', 'tensor_parallel_size': 2}}
{core}INFO 04-02 09:10:05 [core.py:58] Initializing a V1 LLM engine (v{version}) with config: model='/models/m', speculative_config=None, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1
{w0} INFO 04-02 09:10:09 [parallel_state.py:957] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0
{w1} INFO 04-02 09:10:09 [parallel_state.py:957] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 1
{w0} INFO 04-02 09:10:10 [gpu_model_runner.py:1174] Starting to load model /models/m...
{w0} INFO 04-02 09:10:40 [gpu_model_runner.py:1186] Model loading took 14.9889 GB and 29.8 seconds
{core}INFO 04-02 09:10:50 [kv_cache_utils.py:578] GPU KV cache size: 381,136 tokens
{core}INFO 04-02 09:10:55 [core.py:151] init engine (profile, create kv cache, warmup model) took 15.20 seconds
INFO:     Application startup complete.
{stats}INFO 04-02 09:11:10 [loggers.py:80] {engine}Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 31.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 0.0%
{stats}INFO 04-02 09:11:20 [loggers.py:80] {engine}Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 30.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.5%, Prefix cache hit rate: 0.0%
"""


def v1(version: str) -> tuple[str, str, str, str]:
    """(start of a log, prefix of the core, of rank 0, of rank 1) as that version writes them."""
    minor = int(version.split(".")[1])
    if minor <= 8:
        core, w0, w1, engine, api = "", "(VllmWorker rank=0 pid=811)", "(VllmWorker rank=1 pid=812)", "", "APIServer "
        text = V1_START.format(api=api, front="api_server.py:1", core=core, w0=w0, w1=w1, stats="", engine=engine, version=version)
        return text.split("\n", 1)[1], core, w0, w1
    name = "EngineCore_DP0" if minor < 18 else "EngineCore"
    core, w0, w1 = f"({name} pid=700) ", "(Worker_TP0 pid=811)", "(Worker_TP1 pid=812)"
    text = V1_START.format(
        api="APIServer ",
        front="utils.py:233",
        core=core,
        w0=w0,
        w1=w1,
        stats="(APIServer pid=100) ",
        engine="Engine 000: ",
        version=version,
    )
    return text, core, w0, w1


VERSIONS = ("0.8.4", "0.11.0", "0.25.1", "0.32.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_v1_in_service(tmp_path, version):
    told = report(tmp_path, node0__log=v1(version)[0])
    (engine,) = told.engines
    assert (engine.kind, engine.version) == ("vllm", version)
    assert sorted(p.rank.rank for p in engine.processes if p.role.value == "worker" and p.rank) == [0, 1]
    assert told.verdict.state == "healthy" and not causes(told)


@pytest.mark.parametrize("version", VERSIONS)
def test_v1_worker_raises_on_the_output_rank(tmp_path, version):
    text, core, w0, _ = v1(version)
    old = version.startswith("0.8")
    said = "EngineCore hit an exception: " if old else "EngineCore encountered a fatal error."
    c = f"{core}ERROR 04-02 09:12:00 [core.py:340] "
    told_line = f"{c}RuntimeError: Worker failed with error 'CUDA broke', please check the stack trace above for the root cause"
    text += (
        f"{w0} ERROR 04-02 09:12:00 [multiproc_executor.py:379] WorkerProc hit an exception.\n"
        f"{trace(w0 + ' ERROR 04-02 09:12:00 [multiproc_executor.py:379] ', 'RuntimeError: index out of range')}\n"
        + (
            f"{c}{said}Traceback (most recent call last):\n{told_line}\n"
            if old
            else f"{c}{said}\n{c}Traceback (most recent call last):\n{told_line}\n"
        )
        + (
            "CRITICAL 04-02 09:12:00 [core_client.py:269] Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.\n"
            if old
            else ""
        )
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "dead"
    assert (told.root.finding, told.root.rank) == ("worker-exception-fatal", 0)
    assert not strong(told, "worker-exception-swallowed", "worker-process-died")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("code", "said"), [("-9", "SIGKILL"), ("-11", "SIGSEGV"), ("None", "not seen"), ("1", "exit status 1"), ("", "not seen")]
)
def test_v1_worker_dies(tmp_path, version, code, said):
    text, core, _, _ = v1(version)
    exit_code = f" (exit code: {code})" if code else ""
    text += (
        f"{core}ERROR 04-02 09:12:00 [multiproc_executor.py:135] Worker proc VllmWorker-1 died unexpectedly{exit_code}, shutting down executor.\n"
        f"{core}ERROR 04-02 09:12:02 [core.py:700] EngineCore encountered a fatal error.\n"
        f"{core}ERROR 04-02 09:12:02 [core.py:700] Traceback (most recent call last):\n"
        f"{core}ERROR 04-02 09:12:02 [core.py:700] RuntimeError: Executor failed.\n"
    )
    told = report(tmp_path, node0__log=text)
    (died,) = strong(told, "worker-process-died")
    assert said in died.title and died.ranks == (1,)
    why = "sigsegv" if code == "-11" else "worker-process-died"
    assert (told.verdict.state, told.root.finding, told.root.rank) == ("dead", why, 1)
    assert not strong(told, "host-oom-kill", "ray-oom-kill")


def test_v1_stop_by_signal_is_no_death(tmp_path):
    text, core, w0, w1 = v1("0.32.0")
    text += (
        "(APIServer pid=100) INFO 04-02 09:12:00 [launcher.py:120] [shutdown] API server: shutdown triggered\n"
        f"{core}INFO 04-02 09:12:00 [core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
        f"{core}INFO 04-02 09:12:00 [core.py:1644] [shutdown] EngineCore: aborting in-flight requests count=4\n"
        f"{core}WARNING 04-02 09:12:05 [multiproc_executor.py:491] [shutdown] Executor: workers still running after grace period; sending SIGTERM count=2\n"
        f"{w0} WARNING 04-02 09:12:05 [multiproc_executor.py:974] WorkerProc was terminated\n"
        f"{w1} WARNING 04-02 09:12:05 [multiproc_executor.py:974] WorkerProc was terminated\n"
        "INFO:     Finished server process [100]\n"
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "stopped"
    assert strong(told, "orderly-shutdown") and not strong(told, "engine-died", "worker-process-died") and not causes(told)


def test_an_older_front_that_ends_for_no_fault_was_stopped(tmp_path):
    text, *_ = v1("0.11.0")
    text += (
        "(APIServer pid=100) INFO 04-02 09:12:00 [launcher.py:99] Shutting down FastAPI HTTP server.\n"
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Finished server process [100]\n"
    )
    told = report(tmp_path, node0__log=text)
    assert strong(told, "orderly-shutdown") and not strong(told, "engine-died") and not causes(told)


def test_a_core_that_ends_with_its_stopped_front_did_not_die_of_itself(tmp_path):
    text, *_ = v1("0.11.0")
    text += (
        "(APIServer pid=100) INFO 04-02 09:12:00 [launcher.py:99] Shutting down FastAPI HTTP server.\n"
        "(APIServer pid=100) ERROR 04-02 09:12:00 [core_client.py:564] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
        "INFO:     Finished server process [100]\n"
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "stopped" and not strong(told, "engine-died") and not causes(told)


def test_workers_reaped_in_the_second_before_the_front_says_that_it_ends(tmp_path):
    log = V0_THREE + (
        "ERROR 10-29 11:12:31 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 4712 died, exit code: -15\n"
        "INFO 10-29 11:12:31 launcher.py:57] Shutting down FastAPI HTTP server.\n"
        "INFO:     Finished server process [1]\n"
    )
    told = report(tmp_path, node0__log=log)
    assert not strong(told, "worker-process-died", "engine-died") and not causes(told)
    assert [f for f in told.findings if f.id == "orderly-shutdown"]


def test_an_engine_that_died_and_was_started_again(tmp_path):
    again = V0_ONE.replace("10-29 11:", "10-29 12:")
    log = (
        V0_ONE
        + (
            "ERROR 10-29 11:12:31 client.py:282] RuntimeError('Engine process (pid 76) died.')\n"
            "CRITICAL 10-29 11:12:33 launcher.py:99] MQLLMEngine is already dead, terminating server process\n"
        )
        + again
    )
    told = report(tmp_path, node0__log=log)
    assert told.verdict.state == "healthy" and "before that" in told.verdict.sentence.lower()


def test_the_end_of_a_front_whose_core_died_was_no_stop(tmp_path):
    text, *_ = v1("0.11.0")
    text += (
        "(APIServer pid=100) ERROR 04-02 09:12:00 [core_client.py:564] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
        "(APIServer pid=100) ERROR 04-02 09:12:00 [async_llm.py:480] AsyncLLM output_handler failed.\n"
        "(APIServer pid=100) INFO 04-02 09:12:01 [launcher.py:99] Shutting down FastAPI HTTP server.\n"
        "INFO:     Finished server process [100]\n"
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "dead" and not strong(told, "orderly-shutdown")


def test_a_start_for_which_the_memory_does_not_suffice(tmp_path):
    text, core, *_ = v1("0.11.0")
    text = text.split(f"{core}INFO 04-02 09:10:50")[0] + (
        f"{core}ERROR 04-02 09:10:50 [core.py:700] EngineCore failed to start.\n"
        f"{core}ERROR 04-02 09:10:50 [core.py:700] Traceback (most recent call last):\n"
        f'{core}ERROR 04-02 09:10:50 [core.py:700]   File "/opt/vllm/v1/core/kv_cache_utils.py", line 555, in check_enough_kv_cache_memory\n'
        f"{core}ERROR 04-02 09:10:50 [core.py:700] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
        "(APIServer pid=100) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}\n"
    )
    told = report(tmp_path, node0__log=text)
    (failed,) = strong(told, "worker-start-failed")
    assert "No available memory" in failed.title
    assert not strong(told, "startup-in-progress", "startup-completed", "engine-stalled", "gpu-oom")


@pytest.mark.parametrize(
    "reason",
    [
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 8/16 clients joined.",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (192.0.2.9, 29501).",
    ],
)
@pytest.mark.parametrize("header", ["", "Traceback (most recent call last):\n"])
def test_a_worker_that_waited_for_others_in_vain_is_no_cause(tmp_path, reason, header):
    p = "(Worker_TP0 pid=811) ERROR 04-02 09:20:10 [multiproc_executor.py:600] "
    text = "(Worker_TP0 pid=811) INFO 04-02 09:10:09 [parallel_state.py:1200] world_size=16 rank=0 local_rank=0 distributed_init_method=tcp://192.0.2.9:29501 backend=nccl\n"
    text += f"{p}WorkerProc failed to start.\n" + (p + header if header else "") + f"{p}{reason}\n"
    told = report(tmp_path, node0__log=text)
    assert not strong(told, "worker-start-failed", "startup-in-progress")
    assert "worker-start-failed" not in causes(told)


def test_a_worker_that_failed_by_itself_is_the_cause_beside_those_that_waited_for_it(tmp_path):
    w = "({} pid={}) ERROR 04-02 09:20:{} [multiproc_executor.py:600] "
    one, two = w.format("Worker_TP0", 811, 10), w.format("Worker_TP1", 812, 11)
    text = (
        f"(Worker_TP0 pid=811) INFO 04-02 09:10:09 [parallel_state.py:1] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0\n"
        f"(Worker_TP1 pid=812) INFO 04-02 09:10:09 [parallel_state.py:1] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 1\n"
        f"{one}WorkerProc failed to start.\n{trace(one, 'RuntimeError: Connection closed by peer [192.0.2.9]:4711')}\n"
        f"{two}WorkerProc failed to start.\n{trace(two, 'FileNotFoundError: /models/m/model-00002-of-00002.safetensors')}\n"
    )
    told = report(tmp_path, node0__log=text)
    assert (told.root.finding, told.root.rank) == ("worker-start-failed", 1)


# ---- data parallel


def replica(dp: int) -> str:
    return (
        f"(EngineCore_DP{dp} pid={700 + dp}) INFO 04-02 09:10:05 [core.py:58] Initializing a V1 LLM engine (v0.11.0) with config: model='/models/m', tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=2\n"
        f"(EngineCore_DP{dp} pid={700 + dp}) INFO 04-02 09:10:55 [core.py:151] init engine (profile, create kv cache, warmup model) took 15.20 seconds\n"
    )


DP = "(APIServer pid=100) INFO 04-02 09:10:00 [utils.py:233] non-default args: {'model_tag': '/models/m', 'tensor_parallel_size': 2, 'data_parallel_size': 2}\n" + replica(0) + replica(1) + "INFO:     Application startup complete.\n"  # fmt: skip


def test_one_core_of_two_replicas_dies(tmp_path):
    text = DP + (
        "(APIServer pid=100) ERROR 04-02 09:12:00 [core_client.py:564] Engine core proc EngineCore_DP1 died unexpectedly, shutting down client.\n"
        "(APIServer pid=100) RuntimeError: Process EngineCore_DP1 (PID: 701) died with exit code -9\n"
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "dead" and told.engines[0].kind == "vllm"
    assert told.root.finding is None or told.root.rank is None
    assert not strong(told, "host-oom-kill", "orderly-shutdown")


def test_the_worker_of_the_replica_whose_core_says_so_died(tmp_path):
    workers = "".join(
        f"(Worker_DP{dp}_TP{tp} pid={800 + 10 * dp + tp}) INFO 04-02 09:10:09 [parallel_state.py:957] rank {tp} in world size 2 is assigned as DP rank {dp}, PP rank 0, TP rank {tp}\n"
        for dp in (0, 1)
        for tp in (0, 1)
    )
    text = (
        DP
        + workers
        + "(EngineCore_DP1 pid=701) ERROR 04-02 09:12:00 [multiproc_executor.py:135] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.\n"
    )
    told = report(tmp_path, node0__log=text)
    (died,) = strong(told, "worker-process-died")
    assert died.pids == (811,), "not the worker of the same rank in the other replica"


# ---- Ray

RAY_START = """\
(EngineCore_DP0 pid=610) INFO 04-02 09:10:05 [core.py:58] Initializing a V1 LLM engine (v0.11.0) with config: model='/models/m', tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=1
(EngineCore_DP0 pid=610) 2026-04-02 09:10:06,118\tINFO worker.py:1832 -- Connecting to existing Ray cluster at address: 192.0.2.1:6379...
(EngineCore_DP0 pid=610) INFO 04-02 09:10:19 [ray_distributed_executor.py:578] RAY_CGRAPH_get_timeout is set to 300
(EngineCore_DP0 pid=610) INFO 04-02 09:10:55 [core.py:151] init engine (profile, create kv cache, warmup model) took 15.20 seconds
(APIServer pid=1) INFO 04-02 09:11:10 [loggers.py:87] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 310.0 tokens/s, Running: 48 reqs, Waiting: 2 reqs, GPU KV cache usage: 33.0%, Prefix cache hit rate: 0.0%
(APIServer pid=1) INFO 04-02 09:11:20 [loggers.py:87] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 310.0 tokens/s, Running: 48 reqs, Waiting: 2 reqs, GPU KV cache usage: 33.0%, Prefix cache hit rate: 0.0%
"""
GUESSES = "Worker unexpectedly exits with a connection error code 2. End of file. {} (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."


def actor_died(
    prefix: str,
    name: str = "ActorDiedError",
    tab: str = "\t",
    words: str = "There are some potential root causes.",
    ip: str = "192.0.2.31",
    time: str = "09:12:00",
) -> str:
    p = f"(EngineCore_DP0 pid=610) ERROR 04-02 {time} [core.py:720] "
    lines = [
        f"{p}EngineCore encountered a fatal error.",
        f"{p}Traceback (most recent call last):",
        f'{p}  File "/opt/vllm/v1/executor/ray_distributed_executor.py", line 70, in execute_model',
        f"{p}ray.exceptions.{name}: The actor died unexpectedly before finishing this task.",
        f"{prefix}{tab}class_name: RayWorkerWrapper",
        f"{prefix}{tab}actor_id: 00000000000000000000000000000700",
        f"{prefix}{tab}pid: 20430",
        f"{prefix}{tab}namespace: 00000000-0000-0000-0000-000000000000",
        f"{prefix}{tab}ip: {ip}",
        f"{prefix}The actor {'is dead' if name != 'ActorDiedError' else 'died'} because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: {GUESSES.format(words)}",
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["ActorDiedError", "RayActorError"])
@pytest.mark.parametrize("prefix", ["", "(EngineCore_DP0 pid=610) ERROR 04-02 09:12:00 [core.py:720] "])
@pytest.mark.parametrize("words", ["There are some potential root causes.", "Some common causes include:"])
def test_a_ray_actor_died_and_nobody_knows_why(tmp_path, name, prefix, words):
    told = report(tmp_path, head__log=RAY_START + actor_died(prefix, name, words=words))
    assert told.verdict.state == "dead"
    (died,) = strong(told, "ray-actor-died")
    assert (died.nodes, died.pids) == (("192.0.2.31",), (20430,))
    assert (told.root.finding, told.root.node, told.root.pid, told.root.rank) == ("ray-actor-died", "192.0.2.31", 20430, None)
    assert not strong(told, "ray-oom-kill", "host-oom-kill", "sigsegv", "worker-process-died")
    assert [f.grade.value for f in told.findings if f.id == "evidence-missing:raylet-log"] == ["established"]


def test_an_actor_that_went_with_its_node(tmp_path):
    dead = actor_died("").replace(
        "because its worker process has died. Worker exit type: SYSTEM_ERROR",
        "because its node has died. Node Id: 0a0b\n\tthe actor's node was terminated expectedly: received SIGTERM\n",
    )
    told = report(tmp_path, head__log=RAY_START + dead)
    (died,) = strong(told, "ray-actor-died")
    assert "with its node" in died.title and "received SIGTERM" in died.title and died.nodes == ("192.0.2.31",)


def test_with_the_raylets_log_it_is_not_missed(tmp_path):
    raylet = "[2026-04-02 09:10:00,018 I 301 301] (raylet) main.cc:226: Setting cluster ID to: 00aa\n[2026-04-02 09:12:00,018 I 301 301] (raylet) node_manager.cc:1481: Disconnecting client, graceful=false, disconnect_type=1, has_creation_task_exception=false\n"
    told = report(tmp_path, head__log=RAY_START + actor_died(""), raylet__out=raylet)
    assert strong(told, "ray-actor-died")
    assert not [f for f in told.findings if f.id == "evidence-missing:raylet-log"]


def test_an_exception_of_a_ray_worker_before_is_the_cause(tmp_path):
    p = "(RayWorkerWrapper pid=20430, ip=192.0.2.31) ERROR 04-02 09:11:58 [worker_base.py:574] "
    text = (
        RAY_START
        + f"{p}Error executing method 'execute_model'. This might cause deadlock in distributed execution.\n{trace(p, 'RuntimeError: table is gone')}\n"
        + actor_died("")
    )
    told = report(tmp_path, head__log=text)
    assert strong(told, "ray-actor-died")[0].role.value == "cascade"
    assert told.root.finding == "worker-exception-fatal" and "table is gone" in strong(told, "worker-exception-fatal")[0].title


def test_a_ray_worker_that_raised_while_the_engine_started(tmp_path):
    p = "(RayWorkerWrapper pid=512, ip=192.0.2.2) ERROR 04-02 09:10:30 [worker_base.py:574] "
    c = "(EngineCore_DP0 pid=610) ERROR 04-02 09:10:31 [core.py:700] "
    text = RAY_START.split("(EngineCore_DP0 pid=610) INFO 04-02 09:10:55", maxsplit=1)[0] + (
        f"{p}Error executing method 'load_model'. This might cause deadlock in distributed execution.\n{trace(p, 'OSError: no such file: model.safetensors')}\n"
        f"{c}EngineCore failed to start.\n{trace(c, 'ray.exceptions.RayTaskError(OSError): ray::RayWorkerWrapper.execute_method() (pid=512, ip=192.0.2.2, actor_id=0007)')}\n"
    )
    told = report(tmp_path, head__log=text)
    assert told.root.finding in ("worker-exception-fatal", "worker-start-failed")
    assert "model.safetensors" in told.verdict.sentence
    assert not strong(told, "worker-exception-swallowed", "startup-in-progress", "startup-completed")


@pytest.mark.parametrize(("exc", "root"), [("RuntimeError", "worker-exception-fatal"), ("ActorDiedError", None)])
def test_what_a_worker_on_another_node_raised_is_known_from_its_caller(tmp_path, exc, root):
    p = "(EngineCore_DP0 pid=610) ERROR 04-02 09:12:00 [core.py:720] "
    text = RAY_START + (
        f"{p}EngineCore encountered a fatal error.\n{p}Traceback (most recent call last):\n"
        f'{p}  File "/opt/vllm/v1/executor/ray_distributed_executor.py", line 70, in execute_model\n'
        f"{p}ray.exceptions.RayTaskError({exc}): ray::RayWorkerWrapper.execute_method() (pid=512, ip=192.0.2.2, actor_id=0007, repr=<RayWorkerWrapper object at 0x7f>)\n"
    )
    told = report(tmp_path, head__log=text)
    assert told.verdict.state == "dead" and told.root.finding == root
    if root:
        assert (told.root.node, told.root.pid) == ("192.0.2.2", 512)


def test_actors_that_were_ended_on_purpose_are_no_deaths(tmp_path):
    text = (
        RAY_START + "(EngineCore_DP0 pid=610) ERROR 04-02 09:12:00 [core.py:720] The actor is dead because it was killed by `ray.kill`.\n"
    )
    told = report(tmp_path, head__log=text)
    assert not [f for f in told.findings if f.id in ("ray-actor-died", "evidence-missing:raylet-log")]


@pytest.mark.parametrize(("said", "ranks"), [("[3]", (3,)), ("[1, 2]", (1, 2))])
def test_the_ray_executor_over_rings_names_ranks(tmp_path, said, ranks):
    text = (
        RAY_START
        + f"(EngineCore_DP0 pid=610) ERROR 04-02 09:12:00 [ray_executor_v2.py:522] RayWorkerProc rank={said} died unexpectedly, shutting down executor.\n"
    )
    told = report(tmp_path, head__log=text)
    (died,) = strong(told, "worker-process-died")
    assert died.ranks == ranks
    assert told.root.rank == (ranks[0] if len(ranks) == 1 else None)


# ---- lines that only sound bad


def test_a_healthy_log_full_of_scary_lines(tmp_path):
    text, core, w0, _ = v1("0.32.0")
    stats = "(APIServer pid=100) INFO 04-02 09:12:{} [loggers.py:310] Engine 000: Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 30.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, Preemptions: 7, GPU KV cache usage: 99.5%, Prefix cache hit rate: 0.0%\n"
    text += (
        stats.format(10)
        + (
            f"{w0} WARNING 04-02 09:12:11 [custom_all_reduce.py:216] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.\n"
            "(APIServer pid=100) INFO 04-02 09:12:12 [async_llm.py:783] Request cmpl-1 aborted.\n"
            "(APIServer pid=100) INFO 04-02 09:12:12 [async_llm.py:819] Request cmpl-2 failed due to ValueError: the EngineCore encountered nothing.\n"
            'ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n  File "a.py", line 1, in app\nValueError: worker died unexpectedly, said the user\'s own text\n'
            "(APIServer pid=100) INFO 04-02 09:12:13 [chat.py:1] prompt: 'What does Worker VllmWorkerProcess mean? It died, exit code: unknown'\n"
            f"{core}ERROR 04-02 09:12:14 [core.py:2056] Unexpected error pre-processing request cmpl-4\n"
            f"{core}INFO 04-02 09:12:15 [abstract.py:390] It took 2.513400 seconds to fall asleep.\n"
            f"{core}INFO 04-02 09:12:16 [abstract.py:408] It took 0.912300 seconds to wake up tags {{'weights'}}.\n"
        )
        + stats.format(20)
        + stats.format(30)
    )
    told = report(tmp_path, node0__log=text)
    assert told.verdict.state == "healthy" and not causes(told)
    assert not strong(told, "engine-died", "worker-process-died", "engine-stalled", "orderly-shutdown", "ray-actor-died")


def test_a_user_who_asks_about_a_crash_is_heard_as_nobody(tmp_path):
    text, *_ = v1("0.32.0")
    stats = "(APIServer pid=100) INFO 04-02 09:12:{} [loggers.py:310] Engine 000: Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 30.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 9.5%, Prefix cache hit rate: 0.0%\n"
    quoted = (
        "EngineCore encountered a fatal error.",
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
        "TimeoutError: RPC call to execute_model timed out.",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "[shutdown] API server: shutdown triggered",
    )
    for i, said in enumerate(quoted):
        prompt = f"why does my server say\n(EngineCore pid=7) ERROR 04-01 09:00:00 [core.py:1] {said}\nplease help"
        text += f"(APIServer pid=100) INFO 04-02 09:12:{11 + i} [logger.py:39] Received request cmpl-{i}: prompt: {prompt!r}, params: SamplingParams(n=1), lora_request: None.\n"
    told = report(tmp_path, node0__log=text + stats.format(20) + stats.format(30))
    assert told.verdict.state == "healthy" and not causes(told)
    assert not strong(told, "engine-died", "ray-actor-died", "orderly-shutdown", "symptom-rpc-timeout")
    assert 7 not in {p.pid for e in told.engines for p in e.processes}
