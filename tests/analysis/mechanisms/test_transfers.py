"""KV blocks between a prefill and a decode engine: NIXL, Mooncake, SGLang; who failed, who waited, and what is ordinary."""

from __future__ import annotations

import pytest

from tests.analysis.mechanisms.logs import T0, Log, sglang, told

OLD = "Releasing expired KV blocks for request {} which were retrieved by {} decode worker(s) within 480 seconds."
NEW = "Releasing expired KV blocks for request {} which were retrieved by {} remote worker(s) before lease expired."
MOONCAKE = "Request {} timed out after 480 seconds without being sent. Freeing its blocks on the producer side."


def waiting(at: float = 10, lines: int = 12, kv: float = 33.0, **kw) -> Log:
    log = Log(**kw).flow(-200, 1)
    for i in range(lines):
        log.stats(at + 10 * i, 0.0, 0, 9, kv)
    return log


@pytest.mark.parametrize(("line", "limit"), [(OLD, 480), (NEW, 0), (MOONCAKE, 480)])
def test_blocks_that_nobody_fetched_and_requests_that_wait_for_them(tmp_path, line, limit):
    prefill = Log(core=900).flow(-200, 0, gen=4.0, running=0)
    for i in range(30):
        prefill.core_says(490 + i // 10, line.format(f"cmpl-{i:04}-0", 0))
    t = told(tmp_path, prefill__0=prefill, decode__0=waiting(lines=55))
    finding = t.by_id["kv-transfer-not-retrieved"]
    assert finding.grade.value == "established" and "30" in finding.title and finding.nodes == ("prefill-0",)
    assert finding.since.earliest_ns == (T0 + 490 - limit) * 10**9
    assert t.grade("scheduler-parked-on-kv-load") == "supported"
    assert t.grade("engine-alive-not-progressing") == "established"
    assert t.root[1] is None


def test_blocks_that_were_fetched_by_some_are_not_told(tmp_path):
    log = Log().flow(-200, 0)
    for i in range(5):
        log.core_says(-5, NEW.format(f"cmpl-{i}", 1))
    t = told(tmp_path, prefill__0=log.flow(1, 100))
    assert "kv-transfer-not-retrieved" not in t.by_id and t.state == "healthy"


def test_a_client_that_gave_up_leaves_blocks_that_nobody_fetches(tmp_path):
    log = Log().flow(-200, 0)
    log.line(-100, "APIServer", 7, "Request cmpl-77 aborted.")
    log.core_says(5, NEW.format("cmpl-77-0", 0))
    assert "kv-transfer-not-retrieved" not in told(tmp_path, prefill__0=log.flow(10, 100)).by_id


def test_a_few_in_traffic_that_moves_are_a_circumstance(tmp_path):
    log = Log().flow(-600, 0)
    log.core_says(5, OLD.format("cmpl-1-0", 0)).core_says(5, OLD.format("cmpl-2-0", 0))
    t = told(tmp_path, prefill__0=log.flow(10, 200), decode__0=Log(core=55).flow(-600, 200))
    assert t.by_id["kv-transfer-not-retrieved"].role.value == "context"
    assert t.state == "healthy" and t.root == (None, None)


def test_waiting_for_blocks_without_a_line_of_the_connector_is_possible(tmp_path):
    assert told(tmp_path, decode__0=waiting()).grade("scheduler-parked-on-kv-load") == "possible"


def test_waiting_with_an_empty_cache_is_not_waiting_for_blocks(tmp_path):
    assert told(tmp_path, decode__0=waiting(kv=0.0)).grade("scheduler-parked-on-kv-load") is None


def test_a_disconnect_says_that_the_peer_is_lost_and_not_why(tmp_path):
    log = Log().flow(-200, 1)
    for rank in (1, 5):
        for text in ("WorkerProc hit an exception.", "Traceback (most recent call last):",
                     '  File "/x/gpu_worker.py", line 1, in execute_model', "nixl_cu12._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT"):  # fmt: skip
            log.line(9, f"Worker_TP{rank}", 430 + rank, text, "ERROR")
    log.core_says(9, "EngineCore encountered a fatal error.", "ERROR")
    t = told(tmp_path, decode__0=log)
    assert t.grade("kv-transfer-peer-gone") == "supported" and t.state == "dead"
    assert "worker-exception" not in (t.root[0] or "") and t.root[1] is None


@pytest.mark.parametrize("failure", ["handshake_setup_failed", "transfer_exception"])
def test_a_failed_transfer_alone_is_possible(tmp_path, failure):
    log = Log().flow(-200, 1).line(5, "Worker_TP0", 430, f"NIXL transfer failure: {failure} | Context: {{'remote_port': 5600}}", "ERROR")
    assert told(tmp_path, decode__0=log).grade("kv-transfer-peer-gone") == "possible"


def test_lines_after_the_end_are_teardown(tmp_path):
    log = Log().flow(-200, 1).core_says(3, "EngineCore encountered a fatal error.", "ERROR")
    log.line(4, "Worker_TP0", 430, "NIXL transfer failure: transfer_failed | Context: {}", "ERROR")
    assert told(tmp_path, decode__0=log).by_id["kv-transfer-peer-gone"].role.value == "teardown"


DECODE = "Decode transfer failed for request rank={} decode_req.req.rid='63b1' decode_req.req.bootstrap_room=659 with exception KVTransferError(bootstrap_room=659): {}"
PREFILL = "Prefill transfer failed for request rank={} req.rid='ca27' req.bootstrap_room=659 with exception KVTransferError(bootstrap_room=659): {}"
BOOT = "Prefill bootstrap failed for request rank={} req.rid='ca27' req.bootstrap_room=659 with exception KVTransferError(bootstrap_room=659): {}"


@pytest.mark.parametrize(
    ("message", "id", "grade"),
    [
        (DECODE.format(0, "Failed to get kvcache from prefill instance, it might be dead"), "kv-sender-failed", "supported"),
        (DECODE.format(0, "Request 659 timed out after 300.1s in KVPoll.WaitingForInput"), "kv-receiver-waits-forever", "established"),
        (BOOT.format(0, "Request 659 timed out after 120.0s in KVPoll.Bootstrapping"), "kv-transfer-not-retrieved", "established"),
        (PREFILL.format(0, "Failed to send kv chunk of 659 to 192.0.2.4:33137"), "kv-sender-failed", "established"),
        (PREFILL.format(0, "Decode instance could be dead, remote mooncake session 192.0.2.9:1529 is not alive"), "kv-transfer-peer-gone", "possible"),
        ("Losing connection with prefill instance (bootstrap_addr: 192.0.2.9:8998), affected 3 requests", "kv-transfer-peer-gone", "supported"),
        ("RuntimeError: Transfer thread failed because of bad address. Prefill instance with bootstrap_port=8998 is dead.", "kv-sender-failed", "established"),
        ("Request 4711 waiting_timeout", "kv-receiver-waits-forever", "established"),
    ],
)  # fmt: skip
def test_what_sglang_says_of_a_transfer(tmp_path, message, id, grade):
    lines = [
        sglang(-300, "server_args=ServerArgs(model_path='/m', tp_size=2, disaggregation_mode='decode')", None),
        sglang(-200, "The server is fired up and ready to roll!", None),
        sglang(0, message),
    ]
    t = told(tmp_path, decode__0=lines)
    assert t.grade(id) == grade
    others = {"kv-sender-failed", "kv-receiver-waits-forever", "kv-transfer-not-retrieved", "kv-transfer-peer-gone"} - {id}
    assert not others & set(t.by_id)


@pytest.mark.parametrize("form", [DECODE, PREFILL, BOOT])
def test_an_aborted_request_is_nobody_s_fault(tmp_path, form):
    t = told(
        tmp_path,
        decode__0=[sglang(-200, "The server is fired up and ready to roll!", None), sglang(0, form.format(0, "Aborted by AbortReq."))],
    )
    assert not [f.id for f in t.report.findings if f.id.startswith("kv-")]


def test_blocks_that_never_come_back(tmp_path):
    log = Log().flow(-2000, -1000)
    log.line(-1000, "APIServer", 7, "Request cmpl-9 aborted.")
    for at in range(-990, 0, 10):
        log.stats(at, 0.0, 0, 0, 21.5)
    t = told(tmp_path, node0=log)
    assert t.grade("kv-blocks-not-freed-after-abort") == "supported"


def test_blocks_that_wait_to_be_fetched_are_not_lost(tmp_path):
    log = Log().flow(-600, -300)
    for at in range(-290, -50, 10):
        log.stats(at, 0.0, 0, 0, 21.5)
    assert told(tmp_path, prefill__0=log.stats(-50, 0.0, 0, 0, 0.0)).grade("kv-blocks-not-freed-after-abort") is None


@pytest.mark.parametrize(("extra", "config", "grade"), [
    ("Deferred: 9 reqs, ", "kv_transfer_config=KVTransferConfig(kv_connector='NixlConnector', kv_role='kv_consumer'), ", "supported"),
    ("Deferred: 9 reqs, ", "", "possible"),
    ("", "", None),
])  # fmt: skip
def test_the_engine_s_own_count_of_what_it_put_off(tmp_path, extra, config, grade):
    """A cache that is nearly empty says nothing; the count of deferred requests does."""
    log = Log(config=config).flow(-100, 1)
    for i in range(12):
        log.stats(10 + 10 * i, 0.0, 0, 9, 0.3, extra=extra)
    assert told(tmp_path, decode__0=log).grade("scheduler-parked-on-kv-load") == grade


def test_a_transfer_that_raised_on_the_sending_side(tmp_path):
    lines = [
        sglang(-200, "The server is fired up and ready to roll!", None),
        sglang(0, "Unexpected transfer worker error for room 178838"),
        "Traceback (most recent call last):",
        '  File "/x/conn.py", line 1153, in transfer_worker',
        "RuntimeError: PD Disaggregation does NOT support PD different TP sizes",
    ]
    assert told(tmp_path, prefill__0=lines).grade("kv-sender-failed") == "established"


def test_requests_that_were_put_off_and_hold_nothing_wait_for_something_else(tmp_path):
    """A grammar that is being compiled is put off in the same count, and holds no block."""
    log = Log(config="kv_transfer_config=KVTransferConfig(kv_connector='NixlConnector'), ").flow(-100, 1)
    for i in range(12):
        log.stats(10 + 10 * i, 0.0, 0, 2, 0.0, extra="Deferred: 2 reqs, ")
    assert "scheduler-parked-on-kv-load" not in told(tmp_path, decode__0=log).by_id
