"""Standstills that ended, and holes in logs that were none."""

from __future__ import annotations

import pytest

from tests.analysis.mechanisms.logs import T0, Log, told

RING = "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging"
JIT = "{} JIT compilation during inference: {}. This causes a latency spike; consider extending warmup to cover this shape/config."


def hole(log: Log, at: float, seconds: float = 90.0, zero: bool = True, ring: bool = True, kv: float = 12.0) -> Log:
    if zero:
        log.stats(at + 10, 0.0, 4, 0, kv)
    if ring:
        log.core_says(at + 65, RING, "INFO")
    return log.flow(at + seconds + 10, at + seconds + 70)


def test_both_edges_are_told_and_the_verdict_is_the_present(tmp_path):
    t = told(tmp_path, node0=hole(Log().flow(-100, 1), 0))
    finding = t.by_id["transient-stall-recovered"]
    assert finding.grade.value == "established"
    assert finding.since.earliest_ns >= T0 * 10**9 and finding.until.latest_ns >= finding.since.latest_ns
    assert t.state == "healthy" and t.grade("engine-stalled") != "established"


def test_each_of_two_is_told(tmp_path):
    t = told(tmp_path, node0=hole(hole(Log().flow(-100, 1), 0), 150))
    found = [f for f in t.report.findings if f.id == "transient-stall-recovered"]
    assert len(found) == 2 and all(f.until for f in found)
    assert found[0].since.before(found[1].since) and t.state == "healthy"


def test_a_wait_inside_a_hole_without_a_line_is_no_more_than_supported(tmp_path):
    assert told(tmp_path, node0=hole(Log().flow(-100, 1), 0, zero=False)).grade("transient-stall-recovered") == "supported"


def test_a_hole_that_nothing_speaks_of_may_be_a_cut(tmp_path):
    log = Log().flow(-100, 1).flow(400, 500)
    assert told(tmp_path, node0=log).grade("transient-stall-recovered") is None


def test_an_engine_that_went_idle_prints_nothing_and_stood_not_still(tmp_path):
    log = Log().flow(-100, 1).stats(10, 0.0, 0, 0, 0.0).flow(900, 1000)
    t = told(tmp_path, node0=log)
    assert "transient-stall-recovered" not in t.by_id and t.state == "healthy"


def test_a_slow_step_is_no_stall(tmp_path):
    log = Log().flow(-100, 1).stats(10, 0.0, 4, 0, 12.0).flow(20, 100)
    assert "transient-stall-recovered" not in told(tmp_path, node0=log).by_id


def test_a_prompt_that_filled_the_cache_meanwhile_leaves_another_reading(tmp_path):
    log = Log().flow(-100, 1).stats(10, 0.0, 1, 0, 12.0).stats(100, 15.0, 1, 0, 41.0, prompt=9000.0).flow(110, 160)
    assert told(tmp_path, node0=log).grade("transient-stall-recovered") in (None, "possible")


def test_a_stall_that_lasts_is_not_called_recovered(tmp_path):
    log = Log().flow(-100, 1)
    for at in range(10, 90, 10):
        log.stats(at, 0.0, 4, 0, 12.0)
    t = told(tmp_path, node0=log)
    assert t.grade("engine-stalled") == "established" and "transient-stall-recovered" not in t.by_id


@pytest.mark.parametrize(
    ("compiler", "kernel"), [("Triton kernel", "_topk_topp_kernel"), ("TileLang", "mhc_pre_fuse"), ("CuTeDSL", "W4A16FusedMoe")]
)
def test_a_kernel_compiled_while_serving_is_an_amplifier_of_the_hole_that_it_opens(tmp_path, compiler, kernel):
    log = Log().flow(-100, 1).line(4, "Worker_TP1", 431, JIT.format(compiler, kernel), "WARNING", "jit_monitor.py:141")
    t = told(tmp_path, node0=hole(log, 0))
    finding = t.by_id["jit-compile-during-serving"]
    assert finding.grade.value == "established" and kernel in finding.title and finding.role.value == "amplifier" and finding.until
    assert t.root[1] is None and t.by_id["transient-stall-recovered"].since.earliest_ns == (T0 + 4) * 10**9


def test_a_kernel_compiled_in_passing_is_a_circumstance(tmp_path):
    log = Log().flow(-100, 1).line(4, "Worker_TP1", 431, JIT.format("Triton kernel", "k"), "WARNING").flow(10, 100)
    t = told(tmp_path, node0=log)
    assert t.by_id["jit-compile-during-serving"].role.value == "context" and t.state == "healthy" and t.root == (None, None)


def test_kernels_compiled_at_start_up_are_not_told(tmp_path):
    log = Log(start=False)
    log.core_says(-900, "Initializing a V1 LLM engine (v0.19.1) with config: model='/m', tensor_parallel_size=2", "INFO")
    log.line(-800, "Worker_TP0", 430, JIT.format("Triton kernel", "k"), "WARNING")
    log.core_says(-700, "init engine (profile, create kv cache, warmup model) took 88.10 seconds", "INFO")
    log.raw("(APIServer pid=7) INFO:     Application startup complete.").flow(-100, 1)
    assert "jit-compile-during-serving" not in told(tmp_path, node0=log).by_id


def test_a_rotated_log_knows_serving_by_the_tokens_that_flowed(tmp_path):
    log = Log(start=False).flow(-100, 1).line(4, "Worker_TP1", 431, JIT.format("Triton kernel", "k"), "WARNING").flow(10, 100)
    assert told(tmp_path, node0=log).grade("jit-compile-during-serving") == "established"


def test_a_compiled_kernel_is_not_made_the_root_of_an_engine_that_never_came_back(tmp_path):
    log = Log().flow(-100, 1).line(4, "Worker_TP1", 431, JIT.format("Triton kernel", "k"), "WARNING")
    for at in range(10, 90, 10):
        log.stats(at, 0.0, 4, 0, 12.0)
    t = told(tmp_path, node0=log)
    assert t.state == "stalled" and t.root[0] != "jit-compile-during-serving"
