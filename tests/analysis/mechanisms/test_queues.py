"""Requests that wait while nothing runs, and the many healthy logs that read alike."""

from __future__ import annotations

import pytest

from tests.analysis.mechanisms.logs import T0, Log, sglang, told

KV = "GPU KV cache size: {:,} tokens"
ASK = "Received request {}: params: SamplingParams(n=1, max_tokens=64), prompt_token_ids_len: {}, lora_request: None."


def stuck(prompt: int = 90_500, size: int = 65_536, lines: int = 8, kv: float = 0.0, config: str = "") -> Log:
    log = Log(config=config)
    log.core_says(-701, KV.format(size), "INFO")
    log.flow(-200, 0)
    log.line(2, "APIServer", 7, ASK.format("chatcmpl-huge", prompt))
    for i in range(lines):
        log.stats(10 + 10 * i, 0.0, 0, 1 + i // 3, kv)
    return log


def test_a_prompt_that_needs_more_than_the_whole_cache_is_told_with_both_numbers(tmp_path):
    t = told(tmp_path, node0=stuck())
    finding = t.by_id["scheduler-head-of-line-unschedulable"]
    assert finding.grade.value == "established" and "90,500" in finding.title and "65,536" in finding.title
    assert finding.until is None and finding.since.earliest_ns == (T0 + 10) * 10**9
    assert t.grade("engine-alive-not-progressing") == "established"
    assert t.root == ("scheduler-head-of-line-unschedulable", None)
    assert not {"engine-stalled", "healthy-serving", "idle-healthy"} & set(t.by_id)


def test_it_is_over_when_the_request_is_aborted(tmp_path):
    log = stuck()
    log.line(95, "APIServer", 7, "Request chatcmpl-huge aborted.")
    log.flow(110, 200)
    t = told(tmp_path, node0=log)
    finding = t.by_id["scheduler-head-of-line-unschedulable"]
    assert finding.until is not None and any("aborted" in r.quote for r in finding.because)
    assert t.state == "healthy" and t.grade("healthy-serving") == "established"


@pytest.mark.parametrize("kw", [{"prompt": 60_000}, {"size": 400_000}])
def test_a_long_prompt_that_fits_is_not_blamed(tmp_path, kw):
    t = told(tmp_path, node0=stuck(**kw))
    assert t.grade("scheduler-head-of-line-unschedulable") is None
    assert t.grade("engine-alive-not-progressing") == "established"


def test_a_prompt_refused_long_before_is_not_blamed(tmp_path):
    log = Log()
    log.core_says(-701, KV.format(65_536), "INFO")
    log.line(-400, "APIServer", 7, ASK.format("chatcmpl-old", 90_500))
    log.flow(-390, 0)
    for at in range(10, 80, 10):
        log.stats(at, 0.0, 0, 2, 0.0)
    assert told(tmp_path, node0=log).grade("scheduler-head-of-line-unschedulable") is None


def test_blocks_in_use_leave_another_reading(tmp_path):
    assert told(tmp_path, node0=stuck(kv=40.0)).grade("scheduler-head-of-line-unschedulable") == "supported"


def test_one_line_and_silence_is_weaker_than_lines_that_repeat(tmp_path):
    log = stuck(lines=1)
    log.line(400, "APIServer", 7, "Route: /x")
    log.core_says(400, "KV cache is written", "INFO")
    t = told(tmp_path, node0=log)
    assert t.grade("engine-alive-not-progressing") in ("supported", None)


def test_requests_that_wait_behind_others_are_no_standstill(tmp_path):
    log = Log().flow(-300, 0, gen=900.0, running=64, waiting=30, kv=97.0)
    t = told(tmp_path, node0=log)
    assert t.grade("queue-waiting-behind-capacity") == "possible"
    assert t.state == "healthy"
    assert not {"engine-alive-not-progressing", "scheduler-head-of-line-unschedulable", "slow-progress"} & set(t.by_id)


def test_a_burst_that_is_let_in_at_once_is_not_even_a_queue(tmp_path):
    log = Log().flow(-300, -20).stats(-20, 10.0, 0, 3).flow(-10, 60)
    t = told(tmp_path, node0=log)
    assert not {"engine-alive-not-progressing", "queue-waiting-behind-capacity", "transient-stall-recovered"} & set(t.by_id)


def test_an_idle_log_says_nothing(tmp_path):
    log = Log().flow(-100, 0)
    for at in range(0, 90, 10):
        log.stats(at, 0.0, 0, 0, 0.0)
    t = told(tmp_path, node0=log)
    assert not {"engine-alive-not-progressing", "transient-stall-recovered", "engine-stalled", "slow-progress", "long-prefill"} & set(
        t.by_id
    )
    assert t.state == "healthy"


def test_slow_with_a_queue_behind_it_moves_all_the_same(tmp_path):
    log = Log(start=False)
    for i in range(30):
        log.stats(10 * i, 3.1, 1, 22, 60.0 + 0.1 * i)
    t = told(tmp_path, node0=log)
    assert t.grade("slow-progress") == "established" and t.grade("queue-waiting-behind-capacity") == "possible"
    assert not {"engine-stalled", "engine-alive-not-progressing"} & set(t.by_id)


@pytest.mark.parametrize(
    "line",
    [
        {"gen": 3.0, "running": 2, "waiting": 1, "prompt": 6000.0},  # computes prompts for others
        {"gen": 17.0, "running": 1, "waiting": 0},  # one request on a small machine
        {"gen": 6.0, "running": 1, "waiting": 0},
        {"gen": 1500.0, "running": 256, "waiting": 90},  # a large batch
    ],
)
def test_what_is_not_slow(tmp_path, line):
    log = Log()
    for i in range(30):
        log.stats(10 * i, kv=20.0, **line)
    assert told(tmp_path, node0=log).grade("slow-progress") is None


def prefill(lines: int, rise: float = 2.0, prompt: float = 1900.0) -> Log:
    log = Log().flow(-100, 0, running=1, kv=4.0)
    for i in range(lines):
        log.stats(10 + 10 * i, 0.0, 1, 0, 6.0 + rise * i, prompt=prompt if i else 0.0)
    return log


def test_a_long_prompt_is_computed(tmp_path):
    t = told(tmp_path, node0=prefill(12))
    assert t.grade("long-prefill") == "established" and t.by_id["long-prefill"].until is None
    assert t.state == "healthy" and "engine-stalled" not in t.by_id


def test_a_long_prompt_was_computed(tmp_path):
    t = told(tmp_path, node0=prefill(12).flow(130, 200, running=1, kv=31.0))
    assert t.by_id["long-prefill"].until is not None
    assert t.grade("healthy-serving") == "established" and "transient-stall-recovered" not in t.by_id


def test_an_engine_that_only_computes_prompts_has_no_long_one(tmp_path):
    log = Log()
    for i in range(30):
        log.stats(10 * i, 0.0, 3, 0, 20.0 + (i % 3), prompt=5200.0)
    assert told(tmp_path, node0=log).grade("long-prefill") is None


def test_a_prompt_that_is_too_long_waits_behind_those_that_still_run(tmp_path):
    """It came under load: the others drain for minutes, and only then the queue stands still."""
    log = Log()
    log.core_says(-701, KV.format(65_536), "INFO")
    log.flow(-200, 0)
    log.line(2, "APIServer", 7, ASK.format("chatcmpl-huge", 90_500))
    for i in range(20):
        log.stats(10 + 10 * i, 90.0, 6 - i // 4, 1 + i // 5, 30.0)
    for i in range(6):
        log.stats(210 + 10 * i, 0.0, 0, 5, 0.0)
    assert told(tmp_path, node0=log).grade("scheduler-head-of-line-unschedulable") == "established"


def test_a_replica_that_lets_nobody_in_beside_one_that_serves(tmp_path):
    log = Log(config="data_parallel_size=2, ")
    for i in range(20):
        log.stats(10 * i, 90.0, 6, 0, 30.0)
        one = Log(start=False).stats(10 * i, 0.0, 0, 3, 0.0).lines[0].replace("Engine 000", "Engine 001")
        log.raw(one)
    t = told(tmp_path, node0=log)
    assert "replica 1" in t.by_id["engine-alive-not-progressing"].title


def test_an_engine_that_was_put_to_sleep_lets_nobody_in_on_purpose(tmp_path):
    log = Log().flow(-100, 0).core_says(1, "It took 3.20 seconds to fall asleep.", "INFO")
    for i in range(9):
        log.stats(10 + 10 * i, 0.0, 0, 2, 0.0)
    assert "engine-alive-not-progressing" not in told(tmp_path, node0=log).by_id


SCRAPE = """# sampled_at {}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} {}
vllm:num_requests_waiting{{engine="0"}} {}
vllm:generation_tokens_total{{engine="0"}} {}
vllm:iteration_tokens_total_count{{engine="0"}} 52110.0
"""


@pytest.mark.parametrize(("waiting", "tokens", "grade"), [(4.0, 0, "established"), (0.0, 0, None), (4.0, 70, None)])
def test_scrapes_tell_of_a_queue_without_anybody_running(tmp_path, waiting, tokens, grade):
    times = ("2026-07-01T10:00:00Z", "2026-07-01T10:00:30Z", "2026-07-01T10:01:00Z")
    text = "".join(SCRAPE.format(at, 0.0, waiting, 901233.0 + tokens * i) for i, at in enumerate(times))
    log = Log().flow(-300, -10)
    t = told(tmp_path, node0=log, node0_metrics_txt=text)
    assert t.grade("engine-alive-not-progressing") == grade


def test_single_questions_with_pauses_between_are_not_slow(tmp_path):
    """An engine that prints its rate with a step spreads the tokens of a short answer over the pause before it."""
    lines = [
        sglang(-900, "server_args=ServerArgs(model_path='/m', tp_size=1)", None),
        sglang(-890, "The server is fired up and ready to roll!", None),
    ]
    for i in range(20):
        text = "Decode batch, #running-req: 1, #token: 90, token usage: 0.01, cuda graph: True, gen throughput (token/s): {}, #queue-req: 0"
        lines.append(sglang(70 * i, text.format(0.6)))
    assert "slow-progress" not in told(tmp_path, node0=lines).by_id


PREFILL = "Prefill batch, #new-seq: {}, #new-token: 8192, #cached-token: 0, token usage: {:.2f}, #running-req: {}, #queue-req: {}, cuda graph: False, input throughput (token/s): 2100.0"


def sglang_start() -> list[str]:
    return [
        sglang(-900, "server_args=ServerArgs(model_path='/m', tp_size=1)", None),
        sglang(-890, "The server is fired up and ready to roll!", None),
    ]


def test_a_long_prompt_in_sglang(tmp_path):
    lines = [*sglang_start(), *(sglang(4 * i, PREFILL.format(1, 0.05 + 0.02 * i, 0, 0)) for i in range(25))]
    t = told(tmp_path, node0=lines)
    assert t.grade("long-prefill") == "established" and "engine-stalled" not in t.by_id


@pytest.mark.parametrize("step_s", [0.2, 4.0])
def test_many_prompts_in_a_row_in_sglang_are_not_one(tmp_path, step_s):
    lines = [*sglang_start(), *(sglang(step_s * i, PREFILL.format(4, 0.05 + 0.02 * i, 4 * i, 60 - i)) for i in range(25))]
    assert "long-prefill" not in told(tmp_path, node0=lines).by_id


def test_the_long_one_is_found_among_hundreds_of_requests(tmp_path):
    log = Log()
    log.core_says(-701, KV.format(65_536), "INFO")
    for i in range(300):
        log.line(-650 + i, "APIServer", 7, ASK.format(f"chatcmpl-{i}", 12_000 + 37 * i))
    log.flow(-600, 0)
    log.line(2, "APIServer", 7, ASK.format("chatcmpl-huge", 90_500))
    for i in range(120):
        log.line(3 + i, "APIServer", 7, ASK.format(f"chatcmpl-late-{i}", 12_000 + 37 * i))
        if i % 10 == 7:
            log.stats(3 + i, 0.0, 0, 1 + i, 0.0)
    finding = told(tmp_path, node0=log).by_id["scheduler-head-of-line-unschedulable"]
    assert finding.grade.value == "established" and "chatcmpl-huge" in finding.title
