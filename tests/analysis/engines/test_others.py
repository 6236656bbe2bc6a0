"""TGI, Dynamo, torchrun, Ray and old vLLM: a folder of their logs is an engine of its kind."""

from __future__ import annotations

import time

from tests.analysis.engines.folder import T0, rust


def ns(at_s: float) -> int:
    return int((T0 + at_s) * 1e9)


def tgi_started() -> list[str]:
    lines = [rust(-300, "INFO", 'text_generation_launcher: Args { model_id: "m", num_shard: Some(2), port: 80 }')]
    lines += [rust(-290, "INFO", f"shard-manager: text_generation_launcher: Starting shard rank={r}") for r in (0, 1)]
    lines += [rust(-280, "INFO", f"shard-manager: text_generation_launcher: Waiting for shard to be ready... rank={r}") for r in (0, 1)]
    lines += [rust(-250, "INFO", f"shard-manager: text_generation_launcher: Shard ready in 40.1s rank={r}") for r in (0, 1)]
    return [*lines, rust(-240, "INFO", "text_generation_router::server: router/src/server.rs:1511: Connected")]


def test_a_shard_of_tgi_is_killed(look) -> None:
    lines = [
        *tgi_started(),
        rust(7, "ERROR", "shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=1"),
        rust(7, "ERROR", "text_generation_launcher: Shard 1 crashed"),
        rust(7, "INFO", "text_generation_launcher: Terminating webserver"),
        rust(8, "INFO", "text_generation_launcher: Shutting down shards"),
    ]
    told = look(node0=lines)
    assert told.report.engines[0].kind == "tgi"
    assert told.state == "dead"
    assert told.root == ("worker-process-died", 1)
    assert "SIGKILL" in told.by_id["worker-process-died"].title
    assert told.report.first_event.at.earliest_ns // 10**9 == ns(7) // 10**9
    assert told.grade("host-oom-kill") is None


def test_a_tgi_that_is_stopped_with_all_its_shards(look) -> None:
    said = "shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 2 rank={}"
    lines = [
        *tgi_started(),
        *(rust(7, "ERROR", said.format(r)) for r in (0, 1)),
        rust(8, "INFO", "text_generation_launcher: Shutting down shards"),
    ]
    told = look(node0=lines)
    assert told.root == (None, None)
    assert told.grade("worker-process-died") is None


def test_a_tgi_that_starts(look) -> None:
    told = look(node0=tgi_started()[:-3])
    assert told.state == "starting"
    assert told.root == (None, None)


def test_a_shard_of_tgi_that_does_not_start(look) -> None:
    lines = [
        *tgi_started()[:-3],
        rust(-200, "ERROR", "shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 4 rank=0"),
        rust(-200, "ERROR", "text_generation_launcher: Shard 0 failed to start"),
        "Error: ShardCannotStart",
    ]
    told = look(node0=lines)
    assert told.root[1] in (0, None)
    assert told.state != "healthy"


def test_a_dynamo_worker_whose_engine_is_dead(look) -> None:
    lines = [
        rust(-300, "INFO", "trtllm.engine_monitor: TRT-LLM engine health monitor started."),
        rust(5, "ERROR", "trtllm.engine_monitor: TRT-LLM engine is unhealthy: RuntimeError('x')"),
        rust(6, "ERROR", "trtllm.engine_monitor: Forcing process exit after fatal TRT-LLM engine error."),
    ]
    told = look(worker__0=lines)
    assert told.report.engines[0].kind == "dynamo"
    assert told.state == "dead"
    assert told.grade("tool-self-kill") == "established"
    assert told.root == (None, None)


def torch_line(at_s: float, rank: int, message: str) -> str:
    stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(T0 + at_s))
    return f"[rank{rank}]:[E{stamp}.000000000 ProcessGroupNCCL.cpp:683] {message}"


def test_plain_torchrun_logs_are_an_engine(look) -> None:
    said = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    files = {f"rank{r}": [torch_line(600, r, said.format(r) + " ran for 600001 milliseconds before timing out.")] for r in range(2)}
    told = look(**files)
    assert [e.kind for e in told.report.engines] == ["torchrun"]
    assert told.report.engines[0].coverage.expected_ranks == (0, 1)
    assert told.root == (None, None)


def old_vllm(at_s: float, level: str, source: str, message: str) -> str:
    return f"{level} {time.strftime('%m-%d %H:%M:%S', time.gmtime(T0 + at_s))} {source}] {message}"


def test_old_vllm_without_any_pid(look) -> None:
    stats = "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: {} tokens/s, Running: 2 reqs, Waiting: 0 reqs, "
    lines = ["2026-09-01 09:50:00 start"]
    lines += [old_vllm(t, "INFO", "[loggers.py:116", stats.format("55.1") + "GPU KV cache usage: 3.1%") for t in range(-60, 1, 10)]
    told = look(decode__0=lines)
    assert [(e.kind, e.nodes) for e in told.report.engines] == [("vllm", ("decode-0",))]
    assert told.state == "healthy"


def test_an_engine_s_workers_of_ray_and_torch_are_not_engines_beside_it(look) -> None:
    lines = ["[2026-09-01 09:59:00] server_args=ServerArgs(model_path='/m', tp_size=2)"]
    lines += [f"[2026-09-01 10:00:0{n} TP0] Decode batch, #running-req: 3, gen throughput (token/s): 2.0, #queue-req: 0" for n in range(5)]
    ray = "A worker died or was killed while executing a task by an unexpected system error."
    told = look(node0=lines, raylet=["[2026-09-01 10:00:00,123 I 12 34] (raylet) node_manager.cc:1: " + ray])
    assert [e.kind for e in told.report.engines] == ["sglang"]


def test_a_web_server_of_something_else_is_no_vllm(look) -> None:
    lines = ["2026-09-01 10:00:00 INFO:     Application startup complete.", 'INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 200 OK']
    told = look(node0=lines)
    assert not [e for e in told.report.engines if e.kind == "vllm"]


def test_two_kinds_on_one_node_keep_their_lines_apart(look) -> None:
    sglang = [
        "[2026-09-01 09:59:00] server_args=ServerArgs(model_path='/m', tp_size=1)",
        "[2026-09-01 09:59:30] The server is fired up and ready to roll!",
    ]
    sglang += [
        f"[2026-09-01 10:00:{n:02}] Decode batch, #running-req: 3, gen throughput (token/s): 20.0, #queue-req: 0" for n in range(0, 50, 10)
    ]
    told = look(**{"node0-a": sglang, "node0-b": [*tgi_started(), rust(7, "ERROR", "text_generation_launcher: Shard 1 crashed")]})
    assert {e.kind: e.verdict.state for e in told.report.engines} == {"sglang": "healthy", "tgi": "dead"}
