"""Engines that are well, as logs and metrics tell of them: with everything around that frightens. One function is one folder of files."""

from __future__ import annotations

from collections.abc import Callable

from tests.analysis.engines import folder as engines
from tests.analysis.layers.folder import Node, iso, kernel, stamp

Files = dict[str, str]
SET: dict[str, Callable[[], Files]] = {}
STOPS: set[str] = set()
"""Inputs at whose end the engine was stopped by somebody."""


def healthy(make: Callable[[], Files]) -> Callable[[], Files]:
    SET[make.__name__] = make
    return make


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def stats(engine: int, at: float, gen: float, running: int, waiting: int = 0, prompt: float = 100.0, kv: float = 5.0) -> str:
    rates = f"Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {gen} tokens/s"
    load = f"Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv}%, Prefix cache hit rate: 0.0%"
    return f"(APIServer pid=1) INFO {stamp(at)} [loggers.py:310] Engine {engine:03d}: {rates}, {load}"


def scrape(steps: float, tokens: float, running: int, waiting: int = 0, prompt: float = 0.0) -> str:
    return (
        f'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine="0"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}\nvllm:generation_tokens_total{{engine="0"}} {tokens}\n'
        f'vllm:prompt_tokens_total{{engine="0"}} {prompt}\nvllm:iteration_tokens_total_count{{engine="0"}} {steps}\n'
    )


def served(until: float = 600.0, ranks: int = 2) -> Node:
    node = Node(ranks=ranks)
    node.stats(70, until)
    return node


# ---- vLLM


@healthy
def normal_traffic() -> Files:
    return {"n1.log": served().text}


@healthy
def a_burst_that_queues_and_drains() -> Files:
    node = served(300)
    for at in range(310, 400, 10):
        node.lines.append(stats(0, at, 900.0, 256, waiting=max(0, 400 - at) * 5, kv=99.5))
    node.stats(400, 500)
    return {"n1.log": node.text}


@healthy
def idle_after_traffic() -> Files:
    node = served(300)
    node.lines.append(stats(0, 310, 0.0, 0, prompt=0.0, kv=0.0))
    node.lines += [f'(APIServer pid=1) INFO:     192.0.2.9:5{n:04d} - "GET /health HTTP/1.1" 200 OK' for n in range(30)]
    return {"n1.log": node.text, "n1.metrics.1.txt": scrape(900, 9000, 0), "n1.metrics.2.txt": scrape(900, 9000, 0)}


@healthy
def idle_since_the_start() -> Files:
    return {"n1.log": Node(ranks=2).text}


@healthy
def a_long_prefill() -> Files:
    node = served(100)
    for at in range(110, 180, 10):
        node.lines.append(stats(0, at, 0.0, 1, prompt=12000.0, kv=4.0 + at / 10))
    node.lines.append(stats(0, 180, 40.0, 1, prompt=0.0, kv=22.0))
    return {"n1.log": node.text, "n1.metrics.1.txt": scrape(50, 400, 1, prompt=1e4), "n1.metrics.2.txt": scrape(70, 400, 1, prompt=9e4)}


@healthy
def slow_steps() -> Files:
    node = served(100)
    for at in range(110, 300, 10):
        node.lines.append(stats(0, at, 0.3, 2, prompt=0.0))
    return {"n1.log": node.text, "n1.metrics.1.txt": scrape(50, 400, 2), "n1.metrics.2.txt": scrape(53, 406, 2)}


@healthy
def a_start_that_compiles() -> Files:
    node = Node(ranks=2)
    node.lines = node.lines[:-2]
    for at, who, pid, words in (
        (20, "Worker_TP0", 501, "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:12<00:12,  6.2s/it]"),
        (40, "Worker_TP0", 501, "Using cache directory: /root/.cache/vllm/torch_compile_cache for vLLM's torch.compile"),
        (
            100,
            "EngineCore",
            500,
            "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes",
        ),
        (
            160,
            "EngineCore",
            500,
            "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes",
        ),
        (200, "Worker_TP0", 501, "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|####      | 27/67"),
    ):
        more = (
            " are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
            if "No avail" in words
            else ""
        )
        node.say(at, who, pid, "INFO", words + more, "shm_broadcast.py:871")
    return {"n1.log": node.text}


@healthy
def an_orderly_stop() -> Files:
    node = served(300)
    node.lines.append("(APIServer pid=1) INFO:     Shutting down")
    node.lines.append("(APIServer pid=1) INFO:     Waiting for application shutdown.")
    node.say(301, "APIServer", 1, "INFO", "Shutting down FastAPI HTTP server.", "launcher.py:57")
    for rank in (0, 1):
        node.say(302, f"Worker_TP{rank}", 501 + rank, "INFO", "Parent process exited, terminating worker", "multiproc_executor.py:600")
        node.say(302, f"Worker_TP{rank}", 501 + rank, "WARNING", "WorkerProc was terminated", "multiproc_executor.py:640")
    node.lines.append("(APIServer pid=1) INFO:     Application shutdown complete.")
    node.lines.append("(APIServer pid=1) INFO:     Finished server process [1]")
    return {"n1.log": node.text}


STOPS.add("an_orderly_stop")


@healthy
def a_deploy_restarts_the_container() -> Files:
    """The old container is asked to stop, the new one comes up and serves: both in one file, as a log shipper joins them."""
    old = an_orderly_stop()["n1.log"]
    new = Node(ranks=2, began=400)
    new.stats(470, 900)
    return {"n1.log": old + new.text}


@healthy
def a_rolling_upgrade_of_two_replicas() -> Files:
    first = an_orderly_stop()["n1.log"]
    again = Node(ranks=2, began=420)
    again.stats(490, 900)
    return {"n1.log": first + again.text, "n2.log": served(900).text}


@healthy
def scary_warnings_of_every_start() -> Files:
    node = Node(ranks=2)
    node.lines[1:1] = [
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid"
        " deadlocks...",
        "[rank0]:[W407 09:00:20.656957424 ProcessGroupNCCL.cpp:5188] Guessing device ID based on global rank. This can cause a hang if rank to"
        " GPU mapping is heterogeneous. You can specify device_id in init_process_group()",
        "n1:501:501 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use",
        "n1:501:501 [0] NCCL INFO RAS failed to establish a client listening socket at localhost:28028",
        "[W407 09:00:21.1 socket.cpp:759] [c10d] The client socket has failed to connect to [localhost]:29501 (errno: 99 - Cannot assign"
        " requested address).",
    ]
    node.say(50, "Worker_TP0", 501, "WARNING", "Custom allreduce is disabled because your platform lacks GPU P2P capability", "custom.py:1")
    node.say(52, "EngineCore", 500, "WARNING", "Your GPU does not have native support for FP4 computation", "marlin.py:60")
    node.say(80, "APIServer", 1, "WARNING", "Failed to load generation config, falling back: fatal: no such file", "config.py:9")
    node.stats(70, 600)
    return {"n1.log": node.text}


@healthy
def a_prompt_that_quotes_a_crash() -> Files:
    node = served(300)
    said = "EngineCore encountered a fatal error. RPC call to execute_model timed out. NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."
    node.say(305, "APIServer", 1, "INFO", f"Received request cmpl-1: prompt: '{said}', params: SamplingParams(n=1)", "logger.py:40")
    node.say(
        306, "APIServer", 1, "INFO", f"Generated response cmpl-1: output: 'Out of memory: Killed process 501 (VLLM) {said}'", "logger.py:70"
    )
    node.stats(310, 600)
    return {"n1.log": node.text}


@healthy
def bad_requests_with_tracebacks() -> Files:
    node = served(300)
    for line in (
        "Error in preprocessing prompt inputs",
        "Traceback (most recent call last):",
        '  File "/opt/vllm/entrypoints/openai/serving_chat.py", line 200, in create_chat_completion',
        "    await self._preprocess_chat(request)",
        "ValueError: This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.",
    ):
        node.say(305, "APIServer", 1, "ERROR", line, "serving_chat.py:200")
    node.lines.append('(APIServer pid=1) INFO:     192.0.2.9:51000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request')
    node.stats(310, 600)
    return {"n1.log": node.text}


@healthy
def a_benchmark_with_aborts() -> Files:
    node = served(300)
    for n in range(40):
        node.say(305 + n, "APIServer", 1, "INFO", f"Request cmpl-{n} was aborted: client disconnected", "async_llm.py:500")
        node.lines.append(f'(APIServer pid=1) INFO:     192.0.2.9:5{n:04d} - "POST /v1/completions HTTP/1.1" 200 OK')
    node.lines.append(stats(0, 350, 0.0, 0, prompt=0.0, kv=0.0))
    node.stats(360, 600)
    return {"n1.log": node.text}


@healthy
def one_slow_client_at_the_end() -> Files:
    node = served(300)
    for at in range(310, 600, 10):
        node.lines.append(stats(0, at, 1.1, 1, prompt=0.0, kv=0.3))
    return {"n1.log": node.text}


@healthy
def a_rotated_log() -> Files:
    node = served(900)
    half = len(node.lines) // 2
    return {"n1.log.1": text(node.lines[:half]), "n1.log": text(node.lines[half:])}


@healthy
def a_log_cut_to_its_tail() -> Files:
    return {"n1.log": text(served(900).lines[-40:])}


@healthy
def two_engines_on_one_node() -> Files:
    other = Node(ranks=2, pids=800)
    other.lines = [line.replace("pid=1)", "pid=2)") for line in other.lines]
    for at in range(70, 600, 10):
        other.lines.append(stats(0, at, 55.0, 3).replace("pid=1)", "pid=2)"))
    return {"n1.a.log": served().text, "n1.b.log": text(other.lines)}


@healthy
def two_replicas_of_which_one_is_idle() -> Files:
    lines = [
        f"(APIServer pid=1) INFO {stamp(0)} [utils.py:233] non-default args: {{'model_tag': '/m', 'data_parallel_size': 2}}",
        f"(EngineCore_DP0 pid=500) INFO {stamp(5)} [core.py:112] Initializing a V1 LLM engine (v0.30.0) with config: tensor_parallel_size=1",
        f"(EngineCore_DP1 pid=600) INFO {stamp(5)} [core.py:112] Initializing a V1 LLM engine (v0.30.0) with config: tensor_parallel_size=1",
        f"(EngineCore_DP0 pid=500) INFO {stamp(60)} [core.py:281] init engine (profile, create kv cache, warmup model) took 40.00 s",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]
    for at in range(70, 600, 10):
        lines.append(stats(0, at, 300.0, 8))
        if at < 100:
            lines.append(stats(1, at, 0.0, 0, prompt=0.0, kv=0.0))
    return {"n1.log": text(lines)}


@healthy
def an_old_vllm() -> Files:
    """0.6: no process in the prefix, one engine process."""
    lines = [
        f"INFO {stamp(0)} api_server.py:585] vLLM API server version 0.6.3",
        f"INFO {stamp(1)} llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='/m', tensor_parallel_size=1",
        f"INFO {stamp(50)} gpu_executor.py:122] # GPU blocks: 27895, # CPU blocks: 2048",
        f"INFO {stamp(60)} launcher.py:19] Available routes are:",
        "INFO:     Application startup complete.",
    ]
    for at in range(70, 500, 5):
        lines.append(
            f"INFO {stamp(at)} metrics.py:349] Avg prompt throughput: 20.1 tokens/s, Avg generation throughput: 180.2 tokens/s, Running: 5 reqs, "
            "Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 3.2%, CPU KV cache usage: 0.0%."
        )
    return {"n1.log": text(lines)}


@healthy
def a_newer_vllm_with_expert_parallel() -> Files:
    node = served(600, ranks=4)
    return {
        "n1.log": node.text.replace("v0.25.1", "v0.32.0")
        .replace("Worker_TP", "Worker_DP0_TP")
        .replace("server version 0.25.1", "server version 0.32.0")
    }


@healthy
def a_clock_that_is_set_back_while_it_serves() -> Files:
    node = served(300)
    for at in range(280, 600, 10):  # thirty seconds are told twice
        node.lines.append(stats(0, at, 300.0, 8))
    return {"n1.log": node.text}


@healthy
def a_clock_that_jumps_ahead_while_it_serves() -> Files:
    node = served(300)
    for at in range(4000, 4300, 10):
        node.lines.append(stats(0, at, 300.0, 8))
    return {"n1.log": node.text}


@healthy
def a_machine_with_a_noisy_kernel() -> Files:
    noise = [
        (5.0, "nvidia-nvlink: Nvlink Core is being initialized, major device number 511"),
        (50.0, "mlx5_core 0000:17:00.0: Port module event: module 0, Cable plugged"),
        (100.0, "pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0"),
        (120.0, "perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate to 79500"),
        (
            200.0,
            "Memory cgroup out of memory: Killed process 99123 (apt-check) total-vm:500kB, anon-rss:400kB, file-rss:0kB, shmem-rss:0kB, UID:0",
        ),
        (300.0, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
        (400.0, "docker0: port 2(veth9) entered disabled state"),
    ]
    return {"n1.log": served().text, "n1.kernel.log": kernel("n1", *noise)}


@healthy
def gpus_at_their_power_limit() -> Files:
    head = "timestamp, index, utilization.gpu [%], power.draw [W], power.limit [W], temperature.gpu, clocks.sm [MHz], clocks_event_reasons.active\n"
    rows = [
        f"{iso(300 + t).replace('-', '/').replace('T', ' ').rstrip('Z')}.000, {i}, 99 %, 698.10 W, 700.00 W, 68, 1410 MHz, 0x0000000000000004\n"
        for t in range(0, 60, 10)
        for i in range(4)
    ]
    return {"n1.log": served(ranks=4).text, "n1.gpu.csv": head + "".join(rows)}


@healthy
def a_clean_up_signal_of_the_driver() -> Files:
    """Xid 45 after a deploy: the driver cleans up behind a process that was asked to stop."""
    files = a_deploy_restarts_the_container()
    xid = (303.0, "NVRM: Xid (PCI:0000:17:00): 45, pid=501, name=VLLM::Worker_TP, Ch 00000010")
    return {**files, "n1.kernel.log": kernel("n1", (1.0, "audit: start"), xid, (800.0, "audit: end"))}


# ---- other engines


@healthy
def sglang_serves() -> Files:
    return {"node0.log": text([*engines.started(), *(engines.decode(t) for t in range(-400, 0, 10))])}


@healthy
def sglang_retracts_and_flushes() -> Files:
    lines = [*engines.started(), *(engines.decode(t) for t in range(-400, -200, 10))]
    lines += [
        engines.sglang(-199, "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.70 -> 0.95", "TP0"),
        engines.sglang(-190, "Cache flushed successfully!", "TP0"),
        engines.sglang(-189, 'INFO:     192.0.2.9:51000 - "GET /health HTTP/1.1" 200 OK'),
    ]
    return {"node0.log": text([*lines, *(engines.decode(t, waiting=2) for t in range(-180, 0, 10))])}


@healthy
def sglang_is_asked_to_stop() -> Files:
    lines = [*engines.started(), *(engines.decode(t) for t in range(-400, -20, 10))]
    lines += [
        engines.sglang(-15, "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."),
        engines.sglang(-10, "Gracefully exiting... Remaining number of requests 2. Remaining requests ['a', 'b']."),
        engines.sglang(-5, "Gracefully exiting... Remaining number of requests 0. Remaining requests []."),
    ]
    return {"node0.log": text(lines)}


STOPS.add("sglang_is_asked_to_stop")


@healthy
def trtllm_iterates() -> Files:
    lines = [engines.trtllm(-600, "TensorRT-LLM version: 1.2.0", rank=None)]
    for n in range(0, 300, 2):
        states = "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 3}"
        said = f"iter = {5000 + n}, global_rank = 0, rank = 0, currank_total_requests = 0/0, host_step_time = 50.5ms, num_scheduled_requests: 3, "
        lines.append(engines.trtllm(-400 + n, said + states))
    return {"node0.log": text(lines)}


@healthy
def ray_workers_come_and_go() -> Files:
    def actor(at: float, pid: int, words: str) -> str:
        return f"(RayWorkerWrapper pid={pid}, ip=192.0.2.3) INFO {stamp(at)} [x.py:1] {words}"

    node = served(600)
    node.lines.insert(3, "2026-04-07 09:00:03,120\tINFO worker.py:1942 -- Connecting to existing Ray cluster at address: 192.0.2.1:6379...")
    node.lines.insert(8, actor(12, 4001, "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0, EP rank 0"))
    node.lines.append("(autoscaler +12m) Tip: use `ray status` to view detailed cluster status.")
    node.lines.append("(raylet) WARNING: 8 PYTHON worker processes have been started on node: abc with address: 192.0.2.1.")
    node.stats(610, 700)
    return {"n1.log": node.text}


@healthy
def a_router_in_front_that_loses_a_client() -> Files:
    lines = [
        engines.rust(-500, "INFO", 'dynamo_llm::http::service: Starting HTTP service on: 0.0.0.0:8000 address="0.0.0.0:8000"'),
        engines.rust(-300, "WARN", "dynamo_llm::http::service::openai: connection closed by client; request cancelled"),
        engines.rust(-100, "INFO", "dynamo_llm::discovery: added model m"),
    ]
    return {"frontend.log": text(lines), "n1.log": served().text}


# ---- what stands around an engine


@healthy
def a_service_that_systemd_restarts_for_a_deploy() -> Files:
    files = a_deploy_restarts_the_container()
    journal = [
        (300.0, "Stopping vllm.service - vLLM server..."),
        (303.0, "vllm.service: Deactivated successfully."),
        (303.0, "Stopped vllm.service - vLLM server."),
        (303.0, "vllm.service: Consumed 1h 12min 3.123s CPU time."),
        (400.0, "Started vllm.service - vLLM server."),
    ]
    return {**files, "n1.journal.log": kernel("n1", *journal, who="systemd[1]")}


@healthy
def a_deploy_that_runs_out_of_grace() -> Files:
    """It drains longer than the service may: systemd kills what is left, and starts the new one."""
    old = served(300)
    old.say(301, "APIServer", 1, "INFO", "Shutting down FastAPI HTTP server.", "launcher.py:57")
    new = Node(ranks=2, began=400)
    new.stats(470, 900)
    journal = [
        (300.0, "Stopping vllm.service - vLLM server..."),
        (390.0, "vllm.service: State 'stop-sigterm' timed out. Killing."),
        (390.0, "vllm.service: Killing process 500 (VLLM::EngineCor) with signal SIGKILL."),
        (391.0, "vllm.service: Main process exited, code=killed, status=9/KILL"),
        (391.0, "vllm.service: Failed with result 'timeout'."),
        (400.0, "Started vllm.service - vLLM server."),
    ]
    return {"n1.log": old.text + new.text, "n1.journal.log": kernel("n1", *journal, who="systemd[1]")}


@healthy
def counters_that_start_again_after_a_deploy() -> Files:
    return {
        **a_deploy_restarts_the_container(),
        "n1.metrics.1.txt": scrape(9000, 90_000, 8),
        "n1.metrics.2.txt": scrape(20, 200, 4),
        "n1.metrics.3.txt": scrape(90, 900, 6),
    }


@healthy
def two_scrapes_of_one_moment() -> Files:
    """Whoever took them did not wait in between, and nobody wrote down when."""
    return {"n1.log": served().text, "n1.metrics.1.txt": scrape(900, 9000, 8), "n1.metrics.2.txt": scrape(900, 9000, 8)}


@healthy
def a_client_that_complains() -> Files:
    client = [
        f"{iso(400)} ERROR bench.client request 17 failed: ConnectionResetError: [Errno 104] Connection reset by peer",
        f"{iso(401)} WARNING bench.client request 18 timed out after 30.0 s, trying again",
        f"{iso(402)} ERROR bench.client TimeoutError: timed out",
    ]
    return {"n1.log": served(900).text, "bench.client.log": text(client)}


@healthy
def zeros_between_two_requests() -> Files:
    node = served(300)
    for at in range(310, 400, 10):
        node.lines.append(stats(0, at, 0.0, 0, prompt=0.0, kv=0.0))
    node.stats(400, 500)
    return {"n1.log": node.text}


@healthy
def a_prefill_that_is_counted_when_it_ends() -> Files:
    """Versions that count a prompt's tokens when it is through print zeros with a request running, and then a jump."""
    node = served(300)
    for at in range(310, 350, 10):
        node.lines.append(stats(0, at, 0.0, 1, prompt=0.0, kv=7.0))
    node.lines.append(stats(0, 350, 2.1, 1, prompt=9000.0, kv=9.0))
    node.stats(360, 500)
    return {"n1.log": node.text}


@healthy
def an_old_fault_of_another_program() -> Files:
    old = (
        -864000.0,
        "NVRM: Xid (PCI:0000:17:00): 31, pid=77, name=train.py, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0",
    )
    return {"n1.log": served().text, "n1.kernel.log": kernel("n1", old, (1.0, "audit: start"), (590.0, "audit: end"))}


@healthy
def an_engine_that_spins_while_idle() -> Files:
    node = served(300)
    node.lines.append(stats(0, 310, 0.0, 0, prompt=0.0, kv=0.0))
    top = (
        "top - 09:10:02 up 3 days,  1:02,  1 user,  load average: 2.10, 2.00, 1.90\n"
        "Tasks: 300 total,   3 running, 297 sleeping,   0 stopped,   0 zombie\n"
        "%Cpu(s):  3.1 us,  0.4 sy,  0.0 ni, 96.3 id,  0.0 wa,  0.0 hi,  0.2 si,  0.0 st\n\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
        "    501 root      20   0   40.1g   3.1g   1.1g R 100.0   0.3   1:00.00 VLLM::Worker_TP0\n"
        "    502 root      20   0   40.1g   3.1g   1.1g R 100.0   0.3   1:00.00 VLLM::Worker_TP1\n"
        "    500 root      20   0   30.1g   2.1g   0.1g S   2.0   0.3   1:00.00 VLLM::EngineCore\n"
    )
    return {"n1.log": node.text, "n1.top.txt": top}


@healthy
def a_follower_that_is_silent() -> Files:
    """The head of two nodes prints, the other has had nothing to say since the start."""
    head = Node(ranks=2)
    head.lines = [line for line in head.lines if "Worker_TP1" not in line]
    head.lines[1] = head.lines[1].replace("'tensor_parallel_size': 2", "'tensor_parallel_size': 2, 'nnodes': 2, 'node_rank': 0")
    head.stats(70, 4000)
    follower = [line for line in Node(ranks=2).lines if "Worker_TP1" in line]
    return {"n1.log": head.text, "n2.log": text(follower)}


@healthy
def a_probe_that_fails_while_it_loads() -> Files:
    node = Node(ranks=2)
    kubelet = [
        (
            20.0 + 10 * n,
            'prober.go:107] "Probe failed" probeType="Readiness" pod="ns/vllm-0" containerName="vllm" probeResult="failure"'
            ' output="Get \\"http://10.0.0.9:8000/health\\": dial tcp 10.0.0.9:8000: connect: connection refused"',
        )
        for n in range(4)
    ]
    node.stats(70, 600)
    return {"n1.log": node.text, "n1.kubelet.log": kernel("n1", *kubelet, who="kubelet[901]")}


@healthy
def kv_transfers_that_expire_for_aborted_requests() -> Files:
    node = served(300)
    node.say(301, "EngineCore", 500, "INFO", "Aborted request(s) cmpl-1.", "async_llm.py:500")
    node.say(
        305,
        "Worker_TP0",
        501,
        "WARNING",
        "Releasing expired KV blocks for request cmpl-1 which were retrieved by 0 decode worker(s) within 480 seconds.",
        "nixl_connector.py:1200",
    )
    node.stats(310, 600)
    return {"n1.log": node.text}


@healthy
def a_kernel_compiled_while_serving() -> Files:
    node = served(300)
    node.say(
        305,
        "Worker_TP0",
        501,
        "WARNING",
        "Triton kernel JIT compilation during inference: _fwd_kernel. This causes a latency spike; "
        "consider extending warmup to cover this shape/config.",
        "jit_monitor.py:30",
    )
    node.stats(310, 600)
    return {"n1.log": node.text}


@healthy
def a_worker_in_a_shell_that_says_killed() -> Files:
    """Somebody ended a script of his own in the terminal that the engine prints to."""
    node = served(300)
    node.lines += ["./bench.sh: line 12:  9912 Killed                  python3 client.py", "Terminated"]
    node.stats(310, 600)
    return {"n1.log": node.text}


@healthy
def an_ib_port_that_came_back_before_the_start() -> Files:
    flap = [
        (-3000.0, "mlx5_core 0000:17:00.0 ib0: Link down"),
        (-2990.0, "mlx5_core 0000:17:00.0 ib0: Link up"),
        (590.0, "audit: end"),
    ]
    return {"n1.log": served().text, "n1.kernel.log": kernel("n1", *flap)}


@healthy
def a_journal_of_everything() -> Files:
    rows = served(400).lines
    wrapped = "".join(f"Apr 07 09:{10 + n // 60:02}:{n % 60:02} n1 vllm[1]: {line}\n" for n, line in enumerate(rows))
    return {"n1.syslog.log": wrapped + kernel("n1", (700.0, "eth0: Link up"), (701.0, 'audit: type=1400 apparmor="STATUS"'))}


@healthy
def an_engine_in_docker_compose() -> Files:
    lines = [f"vllm-1  | {line}" for line in served(400).lines]
    lines += [
        "nginx-1 | 2026/04/07 09:06:40 [error] 31#31: *7 upstream prematurely closed connection while reading upstream",
        "vllm-1 exited with code 0",
    ]
    return {"n1.log": text(lines[:-1])}
