"""Logs as people post them: cut at both ends, without times, several processes in one file."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.vllm_versions.test_versions import causes, report, strong

REFUSED = """\
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718]   File "/opt/vllm/v1/worker/gpu_worker.py", line 180, in init_device
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718]     raise ValueError(
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718] ValueError: Free memory on device (11.2/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.
(EngineCore_DP0 pid=8201) Process EngineCore_DP0:
(EngineCore_DP0 pid=8201) Traceback (most recent call last):
"""
OUT_OF_MEMORY = """\
(EngineCore pid=8201) ERROR 02-11 06:40:12 [core.py:1136]     return torch.ops._C.repack(
(EngineCore pid=8201) ERROR 02-11 06:40:12 [core.py:1136] RuntimeError: CUDA driver error: out of memory
(EngineCore pid=8201) Traceback (most recent call last):
(EngineCore pid=8201)   File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap
"""


def test_a_refused_device_is_a_failed_start_though_the_line_that_says_so_was_cut_off(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=REFUSED)
    assert told.verdict.state == "dead"
    assert causes(told) == {"gpu-oom"}


def test_a_log_that_is_cut_after_an_allocation_failed_does_not_say_that_the_engine_went_on(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=OUT_OF_MEMORY)
    (found,) = strong(told, "gpu-oom")
    assert "went on" not in found.title


FORKED = """\
(VllmWorkerProcess pid=60411) ERROR 03-08 10:22:31 [multiproc_worker_utils.py:238] Exception in worker VllmWorkerProcess while processing method init_device.
(VllmWorkerProcess pid=60411) ERROR 03-08 10:22:31 [multiproc_worker_utils.py:238] Traceback (most recent call last):
(VllmWorkerProcess pid=60411) ERROR 03-08 10:22:31 [multiproc_worker_utils.py:238] torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (192.0.2.9, 41007).
"""
ABORTED = """\
INFO 03-08 10:00:00 metrics.py:345] Avg prompt throughput: 10.1 tokens/s, Avg generation throughput: 305.3 tokens/s, Running: 4 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 9.0%, CPU KV cache usage: 0.0%.
ERROR 03-08 10:12:31 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 5511 died, exit code: -6
INFO 03-08 10:12:31 multiproc_worker_utils.py:123] Killing local vLLM worker processes
[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.
"""
KILLED = ABORTED.replace("exit code: -6", "exit code: -9")


def test_a_worker_that_v0_forked_is_not_rank_0(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=FORKED)
    assert all(0 not in f.ranks and "rank 0" not in f.title for f in told.findings)


def test_an_abort_among_watchdogs_of_one_collective_is_their_work_and_no_root(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=ABORTED)
    assert strong(told, "worker-process-died") and not causes(told)


def test_a_kill_among_watchdogs_is_not_theirs(tmp_path: Path) -> None:
    assert causes(report(tmp_path, node0__log=KILLED)) == {"worker-process-died"}


CHANNEL = """\
INFO 06-02 08:10:22 [ray_distributed_executor.py:579] RAY_CGRAPH_get_timeout is set to 300
ERROR 06-02 08:10:36 [core.py:517] EngineCore encountered a fatal error.
ERROR 06-02 08:10:36 [core.py:517] Traceback (most recent call last):
ERROR 06-02 08:10:36 [core.py:517] ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read. ObjectID: 00bb
"""


def test_a_limit_that_cannot_have_run_out_is_not_told(tmp_path: Path) -> None:
    """What was set does not reach a Ray that was imported before: its own default was in force."""
    (found,) = strong(report(tmp_path, node0__log=CHANNEL), "symptom-ray-channel-timeout")
    assert "limit ran out (5 min)" not in found.title and found.since
    assert found.since.latest_ns > found.since.earliest_ns + 200 * 10**9


SHORT = """\
INFO 05-16 03:38:03 [async_llm.py:252] Added request cmpl-1.
ERROR 05-16 03:38:30 [core.py:398] EngineCore encountered a fatal error.
ERROR 05-16 03:38:30 [core.py:398] Traceback (most recent call last):
ERROR 05-16 03:38:30 [core.py:398] TimeoutError: RPC call to execute_model timed out.
"""


def test_of_an_unknown_version_the_shorter_limit_counts_too(tmp_path: Path) -> None:
    (found,) = strong(report(tmp_path, node0__log=SHORT), "engine-stalled")
    assert found.since and found.since.latest_ns - found.since.earliest_ns > 200 * 10**9


OWN_NUMBERS = "\n".join(
    f"INFO 02-03 11:2{i}:05 llm_engine.py:921] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
    "Max iteration time: 0.0 ms, Avg time/tok:0.0 ms, Running: 5 reqs, Swapped: 0 reqs, Pending: 1 reqs, GPU KV cache usage: 9.0%, CPU KV cache usage: 0.0%"
    for i in range(4)
)


def test_stats_lines_with_numbers_of_a_build_of_its_own_are_read(tmp_path: Path) -> None:
    assert report(tmp_path, node0__log=OWN_NUMBERS).verdict.state == "stalled"


RAISED = """\
ERROR 08-28 06:06:54 [core.py:502] TimeoutError: RPC call to execute_model timed out.
Process EngineCore_0:
Traceback (most r
"""


def test_a_core_whose_function_raised_has_ended(tmp_path: Path) -> None:
    assert report(tmp_path, node0__log=RAISED).verdict.state == "dead"


RAYLET = """\
(EngineCore pid=311) (raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. Lease ID: 00aa Worker ID: 00bb Node ID: 00cc Worker IP address: 192.0.2.26 Worker port: 10002 Worker PID: 4420 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.
(EngineCore pid=311) ERROR 03-29 12:59:53 [core.py:1099] EngineCore failed to start.
(EngineCore pid=311) ERROR 03-29 12:59:53 [core.py:1099] Traceback (most recent call last):
"""


def test_a_worker_of_which_only_its_raylet_speaks_is_named(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=RAYLET)
    assert causes(told) == {"ray-actor-died"}
    assert strong(told, "ray-actor-died")[0].pids == (4420,)


CRASHED = """\
free(): invalid pointer
!!!!!!! Segfault encountered !!!!!!!
  File "<unknown>", line 0, in _start

(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -11}
"""


def test_a_start_without_times_ended_by_a_crash_that_stands_before(tmp_path: Path) -> None:
    assert causes(report(tmp_path, node0__log=CRASHED)) == {"sigsegv"}


WAITS = "\n".join(
    f"INFO 04-01 02:4{m}:00 ray_utils.py:214] Waiting for creating a placement group of specs for {s} seconds. specs=[{{'GPU': 1.0}}, {{'GPU': 1.0}}]. Check `ray status`"
    for m, s in ((1, 10), (2, 70), (3, 130))
)


def test_a_start_that_waits_for_gpus_says_so(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=WAITS)
    assert told.verdict.state == "starting" and "2 min" in told.verdict.sentence


def test_an_engine_that_serves_waited_for_gpus_once(tmp_path: Path) -> None:
    line = "INFO 04-01 02:50:0{} metrics.py:345] Avg prompt throughput: 10.1 tokens/s, Avg generation throughput: 305.3 tokens/s, Running: 4 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 9.0%, CPU KV cache usage: 0.0%."
    told = report(tmp_path, node0__log="\n".join([WAITS, *(line.format(i) for i in range(3))]))
    assert told.verdict.state == "healthy"


def test_an_exception_with_which_the_log_ends_is_told_and_blamed_for_nothing(tmp_path: Path) -> None:
    told = report(
        tmp_path,
        node0__log="ERROR 03-21 05:31:41 multiproc_worker_utils.py:242] Exception in worker VllmWorkerProcess while processing method load.\n"
        "(VllmWorkerProcess pid=765) ERROR 03-21 05:31:41 multiproc_worker_utils.py:242] NotImplementedError: Method 'load' is not implemented.",
    )
    (found,) = [f for f in told.findings if f.id == "worker-exception-fatal"]
    assert found.grade.value == "possible" and told.root.finding is None


UNDATED = (
    "(EngineCore) INFO [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds. This typically happens when"
)


def test_a_wait_without_a_time_is_told_all_the_same(tmp_path: Path) -> None:
    assert strong(report(tmp_path, node0__log=UNDATED), "symptom-shm-broadcast-wait")


LOOP = """\
INFO 10-11 07:51:31 engine.py:292] Added request chat-1.
ERROR 10-11 07:51:31 engine.py:160] AssertionError('Error in model execution: ')
ERROR 10-11 07:51:31 engine.py:160] Traceback (most recent call last):
ERROR 10-11 07:51:31 engine.py:160]   File "/opt/vllm/worker/model_runner_base.py", line 116, in _wrapper
ERROR 10-11 07:51:31 engine.py:160] AssertionError: Error in model execution:
"""


def test_the_loop_of_v0_ends_with_the_exception_it_prints(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=LOOP)
    assert told.verdict.state == "dead" and "AssertionError" in told.verdict.sentence


CORES = "\n".join(
    f"2026-05-16T13:1{m}:16.645427617Z DEBUG 05-16 13:1{m}:16 [core_client.py:425] Waiting for 1 core engine proc(s) to start: {{0}}"
    for m in range(4)
)


def test_a_front_that_waits_for_its_core_is_starting(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=CORES)
    assert told.verdict.state == "starting" and "3 min" in told.verdict.sentence


READ_FAILED = (
    "(Worker_DP0_TP1_EP1 pid=7829) ERROR 03-31 02:50:30 [mooncake_connector.py:547] Mooncake transfer failed for request chatcmpl-ba31-8b8e"
)


def test_a_read_of_the_prefill_side_that_failed_is_told(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=READ_FAILED)
    assert "kv-sender-failed" in {f.id for f in told.findings} and told.root.finding is None


ASSERTED = (
    "(VllmWorker rank=1 pid=4115) ERROR 07-27 22:31:27 [multiproc_executor.py:522] RuntimeError: CUDA error: device-side assert triggered"
)


def test_an_assertion_in_a_kernel_is_the_root(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=ASSERTED)
    assert causes(told) == {"cuda-device-assert"} and strong(told, "cuda-device-assert")[0].ranks == (1,)


ZEROS = "\n".join(
    f"DEBUG 09-24 15:06:{s} [metrics.py:486] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, "
    "Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 5.3%, CPU KV cache usage: 0.0%."
    for s in (13, 23, 33, 43)
)


def test_half_a_minute_without_tokens_that_is_all_a_log_shows_may_be_one_long_prompt(tmp_path: Path) -> None:
    (found,) = strong(report(tmp_path, node0__log=ZEROS), "engine-stalled")
    assert found.grade.value == "supported"
