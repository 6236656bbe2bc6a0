"""Compilers in the way of serving, told by stacks of a capture."""

from __future__ import annotations

import pytest

from tests.analysis.mechanisms.logs import Log, told
from tests.analysis.scene import API, CORE, IN_COLLECTIVE, T0, WORKER

TRITON = [
    "_jit_compile (triton/runtime/jit.py)",
    "make_cubin (triton/backends/nvidia/compiler.py)",
    "Worker.execute_model (vllm/v1/worker/gpu_worker.py)",
    "WorkerProc.worker_busy_loop (multiproc_executor.py)",
]
GRAMMAR = [
    "GrammarCompiler.compile_json_schema (xgrammar/compiler.py)",
    "XgrammarBackend.compile_grammar (vllm/v1/structured_output/backend_xgrammar.py)",
    "EngineCoreProc._process_input_queue (vllm/v1/engine/core.py)",
]


def test_a_worker_inside_a_compiler_while_its_engine_serves(scene, tell):
    s = scene()
    s.hang(1, TRITON)
    told = tell(s)
    finding = told.by_id["jit-compile-during-serving"]
    assert finding.grade.value == "established" and finding.pids == (WORKER + 1,) and finding.role.value == "amplifier"
    assert told.grade("engine-stalled") != "established", "it may go on when the kernel is there"


def test_the_same_worker_while_its_engine_starts(scene, tell):
    s = scene(served=False)
    s.log(-120, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2}")
    s.metrics = []
    s.health = None
    s.everywhere(WORKER + 1, TRITON)
    assert "jit-compile-during-serving" not in tell(s).by_id


@pytest.mark.parametrize(("frames", "grade"), [(GRAMMAR, "established"), (IN_COLLECTIVE, None)])
def test_a_grammar_compiled_in_the_main_thread_of_the_core(scene, tell, frames, grade):
    s = scene()
    s.still()
    s.everywhere(CORE, frames)
    assert tell(s).grade("grammar-compile-blocking") == grade


def test_one_look_at_a_grammar_being_compiled_is_only_a_look(scene, tell):
    s = scene()
    s.everywhere(CORE, GRAMMAR, samples=1)
    assert tell(s).grade("grammar-compile-blocking") in ("possible", None)


def test_the_moment_of_the_capture_is_known(scene, tell):
    s = scene()
    s.hang(1, TRITON)
    assert tell(s).by_id["jit-compile-during-serving"].since.earliest_ns >= T0


def test_a_grammar_that_a_helper_thread_compiles_while_all_wait_is_why_they_wait(tmp_path):
    frames = "    compile_json_schema (xgrammar/compiler.py:205)\n    compile_grammar (vllm/v1/structured_output/backend_xgrammar.py:90)\n"
    idle = "    get (queue.py:180)\n    _process_input_queue (vllm/v1/engine/core.py:1270)\n"
    spy = (
        "# captured_at 2026-07-01T10:0{}:30Z host node0\nProcess 310: VLLM::EngineCore\nPython v3.12.11 (/usr/bin/python3.12)\n\n"
        'Thread 310 (idle): "MainThread"\n' + idle + 'Thread 344 (active): "ThreadPoolExecutor-0_0"\n' + frames
    )
    log = Log().flow(-100, 1)
    for at in range(10, 200, 10):
        log.stats(at, 0.0, 0, 3, 0.0)
    looks = {"core_pyspy_1_txt": spy.format(1), "core_pyspy_2_txt": spy.format(2)}
    assert told(tmp_path, node0=log, **looks).grade("grammar-compile-blocking") == "established"
    (tmp_path / "served").mkdir()
    served = told(tmp_path / "served", node0=Log().flow(-100, 200), **looks)
    assert "grammar-compile-blocking" not in served.by_id  # beside a loop that serves it holds up nobody else
