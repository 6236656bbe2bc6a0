"""Probes that fail while tokens flow, and supervisors that believe them."""

from __future__ import annotations

import time

import pytest

from tests.analysis.mechanisms.logs import T0, Log, told

LATE = (
    'Liveness probe failed: Get "http://192.0.2.9:8000/health": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
)


def event(at: float, text: str, reason: str = "Unhealthy", kind: str = "Warning") -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(T0 + at))} {kind} {reason} {text}"


def killed(until: int = 30, moving: bool = True, signal: bool = True, again: bool = True) -> Log:
    log = Log().flow(-200, until if moving else 1)
    if not moving:
        for at in range(10, until, 10):
            log.stats(at, 0.0, 4, 2, 12.0)
    if signal:
        log.core_says(until + 1, "Shutdown initiated (timeout=0)", "INFO")
    if again:
        log.line(until + 20, "APIServer", 7, "non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2}")
        log.core_says(until + 30, "Initializing a V1 LLM engine (v0.19.1) with config: model='/m', tensor_parallel_size=2", "INFO")
        log.core_says(until + 200, "init engine (profile, create kv cache, warmup model) took 88.10 seconds", "INFO")
        log.raw("(APIServer pid=7) INFO:     Application startup complete.").flow(until + 210, until + 300)
    return log


EVENTS = [event(5, LATE), event(15, LATE), event(26, "Container vllm failed liveness probe, will be restarted", "Killing", "Normal")]


def test_a_probe_without_an_answer_while_tokens_flow(tmp_path):
    t = told(tmp_path, node0=Log().flow(-200, 200), node0_events_txt="\n".join(EVENTS[:2]) + "\n")
    assert t.grade("health-probe-timeout-under-load") == "established" and t.state == "healthy"
    assert "healthy-engine-restarted" not in t.by_id


@pytest.mark.parametrize("signal", [True, False])
def test_an_engine_that_was_well_is_restarted_for_it(tmp_path, signal):
    t = told(tmp_path, node0=killed(signal=signal), node0_events_txt="\n".join(EVENTS) + "\n")
    (finding,) = [f for f in t.report.findings if f.id == "healthy-engine-restarted"]
    assert finding.grade.value == "established" and finding.role.value == "root" and finding.ranks == ()
    assert "engine-stalled" not in t.by_id and t.state == "healthy"


def test_the_log_ends_with_the_kill(tmp_path):
    t = told(tmp_path, node0=killed(signal=False, again=False), node0_events_txt="\n".join(EVENTS) + "\n")
    assert t.grade("healthy-engine-restarted") == "established"


def test_an_engine_that_stood_still_was_restarted_with_reason(tmp_path):
    t = told(tmp_path, node0=killed(until=120, moving=False), node0_events_txt="\n".join([event(60, LATE), event(110, LATE)]) + "\n")
    assert not {"healthy-engine-restarted", "health-probe-timeout-under-load"} & set(t.by_id)


def test_a_restart_without_a_failed_probe_is_somebody_s_wish(tmp_path):
    assert "healthy-engine-restarted" not in told(tmp_path, node0=killed()).by_id


def test_a_readiness_probe_restarts_nothing(tmp_path):
    events = "\n".join([event(5, LATE.replace("Liveness", "Readiness"))]) + "\n"
    assert "healthy-engine-restarted" not in told(tmp_path, node0=killed(), node0_events_txt=events).by_id
