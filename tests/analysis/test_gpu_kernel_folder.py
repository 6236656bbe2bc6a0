"""A core that computes itself, from a folder: two stacks, two scrapes, a CSV of its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze

LOG = """\
(APIServer pid=9) INFO 02-11 11:00:00 [api_server.py:1890] vLLM API server version 0.25.1
(APIServer pid=9) INFO 02-11 11:00:00 [utils.py:233] non-default args: {'model_tag': '/m'}
(EngineCore pid=61) INFO 02-11 11:00:12 [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: model='/m', max_seq_len=131072
(EngineCore pid=61) INFO 02-11 11:02:12 [core.py:281] init engine (profile, create kv cache, warmup model) took 84.20 s
(APIServer pid=9) INFO:     Application startup complete.
(APIServer pid=9) INFO 02-11 13:30:00 [loggers.py:310] Engine 000: Avg prompt throughput: 12.0 tokens/s, \
Avg generation throughput: 90.1 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.1%, Prefix cache hit rate: 0.0%
(APIServer pid=9) INFO 02-11 13:30:10 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, \
Avg generation throughput: 0.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.1%, Prefix cache hit rate: 0.0%
"""
STACK = """\
# captured_at 2026-02-11T13:3{minute}:30Z host node7
Process 61: VLLM::EngineCore
Python v3.12.3 (/usr/bin/python3.12)

Thread 61 ({how}): "MainThread"
    {top}
    get_output (vllm/v1/worker/gpu_model_runner.py:301)
    result (vllm/v1/executor/uniproc_executor.py:38)
    step (vllm/v1/engine/core.py:595)
    _process_engine_step (vllm/v1/engine/core.py:1209)
    run_busy_loop (vllm/v1/engine/core.py:1170)
"""
SYNC = "synchronize (torch/cuda/streams.py:254)"
SCRAPE = """\
# sampled_at 2026-02-11T13:3{minute}:00Z
vllm:num_requests_running{{engine="0"}} 3.0
vllm:generation_tokens_total{{engine="0"}} {tokens}
vllm:iteration_tokens_total_count{{engine="0"}} {steps}
"""
HEAD = "timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W], temperature.gpu, clocks.sm [MHz]\n"


def folder(path: Path, watts: tuple[str, str, str], *, top: str = SYNC, moves: bool = False, gpus: int = 1) -> Path:
    path.mkdir()
    (path / "node7.log").write_text(LOG)
    for n in (1, 2):
        (path / f"core.pyspy.{n}.txt").write_text(STACK.format(minute=n, how="idle", top=top))
    (path / "metrics.txt").write_text("".join(SCRAPE.format(minute=n, tokens=5000.0 + moves * n, steps=70.0 + moves * n) for n in (1, 2)))
    times = ("13:29:55", "13:31:00", "13:32:00")
    lines = [f"2026/02/11 {t}.000, {g}, 97 %, 0 %, {w}, 60, 2418 MHz\n" for t, w in zip(times, watts, strict=True) for g in range(gpus)]
    (path / "node7.gpu.csv").write_text(HEAD + "".join(lines))
    return path


def found(path: Path) -> dict[str, str]:
    return {f.id: f.grade.value for f in analyze([path]).findings}


def test_busy_at_a_third_of_the_power_it_drew_is_a_kernel_that_does_not_end(tmp_path):
    report = analyze([folder(tmp_path / "x", ("52.00 W", "17.00 W", "16.50 W"))])
    assert {f.id: f.grade.value for f in report.findings}["gpu-kernel-not-terminating"] == "supported"
    assert (report.root.finding, report.root.rank, report.root.node) == ("gpu-kernel-not-terminating", 0, "node7")
    assert report.verdict.state == "stalled"


@pytest.mark.parametrize(
    "watts, options",
    [
        (("52.00 W", "50.00 W", "51.00 W"), {}),
        (("52.00 W", "17.00 W", "16.50 W"), {"top": "forward (vllm/model_executor/models/m.py:10)"}),
        (("52.00 W", "17.00 W", "16.50 W"), {"moves": True}),
        (("52.00 W", "17.00 W", "16.50 W"), {"gpus": 2}),
        (("[N/A]", "[N/A]", "[N/A]"), {}),
    ],
    ids=["it computes", "it is not in a synchronisation", "it advances", "which GPU is its own is not known", "no power is told"],
)
def test_what_merely_looks_like_it_is_not_claimed(tmp_path, watts, options):
    assert "gpu-kernel-not-terminating" not in found(folder(tmp_path / "x", watts, **options))
