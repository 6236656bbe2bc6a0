"""Cores of data-parallel replicas wait for each other in a collective of their own: who stands elsewhere keeps the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze

AGREES = "    all_reduce (torch/distributed/distributed_c10d.py:2898)\n    has_unfinished_dp (vllm/config/parallel.py:402)\n"
ELSEWHERE = "    tokenize (plug/in.py:88)\n    preprocess_add_request (vllm/v1/engine/core.py:640)\n"
LOOP = "    run_busy_loop (vllm/v1/engine/core.py:1205)\n    run_engine_core (vllm/v1/engine/core.py:811)\n"


def stats(engine: int, second: int, rate: float) -> str:
    return (
        f"(APIServer pid=1) INFO 05-03 11:00:{second:02d} [loggers.py:248] Engine {engine:03d}: Avg prompt throughput: 0.0 tokens/s, "
        f"Avg generation throughput: {rate} tokens/s, Running: 6 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
    )


def folder(tmp_path: Path, outside: set[int], minutes: tuple[int, ...]) -> Path:
    lines = [
        f"(EngineCore_DP{r} pid={700 + r}) INFO 05-03 10:00:00 [core.py:112] Initializing a V1 LLM engine (v0.11.0) with config: model='/m', "
        "tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=3"
        for r in range(3)
    ]
    lines += ["(APIServer pid=1) INFO:     Application startup complete."]
    lines += [stats(r, s, 88.0 if s < 40 else 0.0) for s in (10, 20, 30, 40) for r in range(3)]
    (tmp_path / "node0.log").write_text("\n".join(lines) + "\n")
    for r in range(3):
        for k, minute in enumerate(minutes, 1):
            frames = (ELSEWHERE if r in outside else AGREES) + LOOP
            head = f"# captured_at 2026-05-03T11:{minute:02d}:00Z host node0\nProcess {700 + r}: VLLM::EngineCore_DP{r}\nPython v3.12.11 (/p)\n\n"
            (tmp_path / f"node0.pid{700 + r}.pyspy.{k}.txt").write_text(f'{head}Thread {700 + r} (active): "MainThread"\n{frames}')
    return tmp_path


@pytest.mark.parametrize(
    ("outside", "minutes", "grade"), [({1}, (4, 5), "established"), ({1}, (4,), None), (set(), (4, 5), None), ({0, 1}, (4, 5), None)]
)
def test_the_replica_that_never_came(tmp_path: Path, outside: set[int], minutes: tuple[int, ...], grade: str | None) -> None:
    found = {f.id: f for f in analyze([folder(tmp_path, outside, minutes)]).findings}
    missing = found.get("dp-peer-missing-from-collective")
    assert (missing.grade.value if missing else None) == grade and (missing is None or "engine 1 " in missing.title)
