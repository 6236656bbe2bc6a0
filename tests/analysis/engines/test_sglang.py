"""Folders of SGLang logs: no pid in any line, ranks in the prefix."""

from __future__ import annotations

import pytest

from tests.analysis.engines.folder import DIED, T0, decode, raised, sglang, started

WATCHDOG = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
FORBIDDEN = {"host-oom-kill", "fabric-fault", "worker-exception-swallowed", "lock-deadlock"}
"""What none of these folders shows."""


def ns(at_s: float) -> int:
    return int((T0 + at_s) * 1e9)


def stalled(place: str = "TP0", line: str = WATCHDOG, at_s: float = 300.0) -> list[str]:
    lines = [*started(), *(decode(t) for t in range(-60, 1, 10))]
    lines.append(sglang(at_s, "Scheduler debug info:", place))
    lines.append(sglang(at_s, line, place))
    return lines


def test_a_stalled_scheduler_is_dated_by_the_watchdog_s_limit(look) -> None:
    told = look(node0=[*stalled(), sglang(305, DIED)])
    assert told.report.engines[0].kind == "sglang"
    assert told.state == "dead"
    assert told.grade("engine-stalled") == told.grade("tool-self-kill") == "established"
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)
    assert "150 s" in told.by_id["engine-stalled"].does_not_show or "2 min 30 s" in told.by_id["engine-stalled"].does_not_show
    assert told.root == (None, None), "the watchdog's rank is a victim"
    assert told.report.first_event.at.earliest_ns == ns(0)
    assert not FORBIDDEN & set(told.by_id)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_every_rank_s_watchdog_tells_of_one_stall(look, ranks: int) -> None:
    lines = [*started(ranks), decode(0)]
    lines += [sglang(300 + r // 5, "Watchdog timeout (self.watchdog_timeout=300)", f"TP{r}") for r in range(ranks)]
    lines.append(sglang(305, "Received sigquit from a child proces. It usually means the child failed."))
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)
    assert told.root == (None, None)
    assert told.report.engines[0].coverage.expected_ranks == tuple(range(ranks))


def test_a_watchdog_that_only_reports_leaves_the_engine_standing(look) -> None:
    told = look(node0=stalled(line="Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)"))
    assert told.state == "stalled"
    assert told.grade("tool-self-kill") is None


def test_a_watchdog_that_only_reports_and_an_engine_that_goes_on(look) -> None:
    lines = stalled(line="Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)")
    told = look(node0=[*lines, *(decode(t) for t in range(320, 600, 10))])
    assert told.state == "healthy"
    assert ns(0) <= told.by_id["transient-stall-recovered"].since.earliest_ns < ns(1)
    assert told.grade("engine-stalled") is None


def test_the_limit_is_the_one_that_the_line_states(look) -> None:
    told = look(node0=[*stalled(line=WATCHDOG.replace("300", "1200"), at_s=1200), sglang(1205, DIED)])
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)


def test_a_watchdog_that_counted_idle_time_proves_less(look) -> None:
    told = look(node0=[*started(), decode(0), decode(280), sglang(300, WATCHDOG, "TP0"), sglang(305, DIED)])
    assert told.grade("engine-stalled") == "supported"
    assert told.by_id["engine-stalled"].since.earliest_ns >= ns(280)
    assert told.state == "dead"


def test_one_replica_stands_while_another_serves(look) -> None:
    other = [decode(t, place="DP1 TP0") for t in range(-60, 300, 10)]
    lines = [*started(), *(decode(t, place="DP0 TP0") for t in range(-60, 1, 10)), *other]
    told = look(node0=[*lines, sglang(300, WATCHDOG, "DP0 TP0"), sglang(305, DIED)])
    assert told.grade("engine-stalled") == "established"
    assert told.by_id["engine-stalled"].since.earliest_ns == ns(0)


def test_one_rank_raises_and_the_others_lose_it(look) -> None:
    lines = [*started(4), *(decode(t) for t in range(-60, 1, 10))]
    lines += raised(sglang(7, "Scheduler hit an exception: ", "TP2"), "RuntimeError: CUDA error: an illegal memory access was encountered")
    lines += raised(
        sglang(9, "Scheduler hit an exception: ", "TP1"), "torch.distributed.DistBackendError: Connection closed by peer [192.0.2.9]"
    )
    lines += [sglang(9, "Subprocess scheduler_2 (pid=4202) crashed with exit code -3. Triggering SIGQUIT for cleanup..."), sglang(9, DIED)]
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.root == ("cuda-illegal-access", 2)
    assert told.report.first_event.at.earliest_ns == ns(7)
    assert told.grade("engine-died") == "established"
    assert told.grade("worker-process-died") is None, "exit code -3 is the rank's own signal"
    assert not FORBIDDEN & set(told.by_id)


def test_a_failure_of_all_ranks_at_once_names_none(look) -> None:
    lines = [*started(4), decode(0)]
    for rank in range(4):
        lines += raised(sglang(7, "Scheduler hit an exception: ", f"TP{rank}"), "ValueError: bad shape")
    told = look(node0=[*lines, sglang(7, DIED)])
    assert told.state == "dead"
    assert told.root[1] is None


def test_the_exception_is_enough_where_the_end_was_cut_off(look) -> None:
    lines = [*started(2), decode(0), *raised(sglang(7, "Scheduler hit an exception: ", "TP1"), "ValueError: bad shape")]
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.root == ("worker-exception-fatal", 1)


def test_a_scheduler_that_is_killed_from_outside(look) -> None:
    lines = [*started(2), decode(0)]
    lines += [sglang(7, "Subprocess scheduler_1 (pid=4201) crashed with exit code -9. Triggering SIGQUIT for cleanup..."), sglang(7, DIED)]
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.root == ("worker-process-died", 1)
    assert "SIGKILL" in told.by_id["worker-process-died"].title
    assert not FORBIDDEN & set(told.by_id)


def test_an_orderly_stop_is_no_crash(look) -> None:
    lines = [*started(1), decode(0, place="")]
    lines += [
        sglang(7, "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."),
        sglang(7, "Subprocess scheduler_0 (pid=4200) crashed with exit code -15. Triggering SIGQUIT for cleanup..."),
        sglang(7, DIED),
    ]
    told = look(node0=lines)
    assert told.state == "stopped"
    assert told.grade("engine-died") is None and told.grade("worker-process-died") is None
    assert told.root == (None, None)


def test_a_healthy_server(look) -> None:
    prefill = "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, #running-req: 2, #queue-req: 0, "
    lines = started()
    for t in range(-60, 1, 10):
        lines += [sglang(t - 2, prefill, "TP0"), decode(t)]
    lines.insert(-3, sglang(-30, "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.09 -> 0.34", "TP0"))
    told = look(node0=lines)
    assert told.state == "healthy"
    assert told.grade("healthy-serving") == told.grade("startup-completed") == "established"
    assert not [f.id for f in told.report.findings if f.severity.value == "critical"]
    assert told.report.engines[0].coverage.complete


def test_a_start_under_way(look) -> None:
    told = look(node0=started()[:-2])
    assert told.state == "starting"
    assert told.root == (None, None)


def test_a_rank_that_fails_in_the_start(look) -> None:
    lines = started()[:-2]
    lines += raised(
        sglang(-400, "Scheduler hit an exception: ", "TP1"), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 34.00 MiB."
    )
    lines += [
        sglang(-399, "Rank 0 scheduler is dead. Please check if there are relevant logs."),
        sglang(-399, "Exit code: -3"),
        sglang(-399, "Received sigquit from a child process. It usually means the child failed."),
    ]
    told = look(node0=lines)
    assert told.state == "dead"
    assert told.by_id["worker-start-failed"].ranks == (1,)
    assert told.root[1] == 1
    assert told.grade("worker-exception-fatal") is None
    assert "worker-process-died" not in told.established


def test_ranks_that_fail_alike_in_the_start_are_not_told_apart(look) -> None:
    lines = started()[:-2]
    for rank in (0, 1):
        lines += raised(sglang(-400, "Scheduler hit an exception: ", f"TP{rank}"), "ValueError: unsupported quantization")
    told = look(node0=[*lines, sglang(-399, DIED)])
    assert told.grade("worker-start-failed") == "established"
    assert told.root[1] is None


def test_two_nodes_are_one_engine_by_the_address_that_both_state(look) -> None:
    more = "dist_init_addr='192.0.2.1:5000', nnodes=2, node_rank={}, "
    head = [*started(4, more=more.format(0), ranks=range(2)), *(decode(t) for t in range(-60, 1, 10))]
    follower = started(4, more=more.format(1), ranks=range(2, 4))[:-2]
    follower += raised(
        sglang(5, "Scheduler hit an exception: ", "TP3"), "RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    told = look(node0=[*head, sglang(300, WATCHDOG, "TP0"), sglang(305, DIED)], node1=follower)
    assert [e.nodes for e in told.report.engines] == [("node0", "node1")]
    assert told.report.engines[0].coverage.expected_ranks == (0, 1, 2, 3)
    assert told.root == ("cuda-illegal-access", 3)
    assert told.report.root.node == "node1"
    assert told.report.first_event.at.earliest_ns in (ns(0), ns(5))


def test_a_node_that_nobody_brought_is_missed(look) -> None:
    head = started(4, more="dist_init_addr='192.0.2.1:5000', nnodes=2, node_rank=0, ", ranks=range(2))
    told = look(node0=[*head, *(decode(t) for t in range(-60, 1, 10))])
    assert told.report.engines[0].coverage.unseen_node_count == 1
    assert not told.report.engines[0].coverage.complete


def test_two_servers_that_share_nothing_are_two_engines(look) -> None:
    lines = [*started(1), *(decode(t, place="") for t in range(-60, 1, 10))]
    told = look(prefill__0=lines, decode__0=[*lines, *raised(sglang(9, "Scheduler hit an exception: "), "ValueError: x"), sglang(9, DIED)])
    assert sorted(e.nodes for e in told.report.engines) == [("decode-0",), ("prefill-0",)]
    assert {e.nodes[0]: e.verdict.state for e in told.report.engines} == {"decode-0": "dead", "prefill-0": "healthy"}
    assert told.report.root.node == "decode-0"


def test_a_second_life_after_a_crash(look) -> None:
    first = [*started(2, at_s=-5000), decode(-4800), *raised(sglang(-4700, "Scheduler hit an exception: ", "TP1"), "ValueError: x")]
    told = look(node0=[*first, sglang(-4700, DIED), *started(2), *(decode(t) for t in range(-60, 1, 10))])
    assert told.state == "healthy"
    assert told.by_id["engine-died"].until is not None


def test_failed_health_checks_alone_are_no_proof(look) -> None:
    said = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: {} last_heartbeat time: {}"
    one = said.format("10:00:10.", "09:59:59")
    told = look(node0=[*started(), *(decode(t) for t in range(-60, 1, 10)), sglang(30, one)])
    assert told.grade("engine-stalled") in (None, "possible")
    many = [sglang(30 * n, one) for n in range(1, 9)]
    told = look(node0=[*started(), *(decode(t) for t in range(-60, 1, 10)), *many])
    assert told.grade("engine-stalled") == "supported"
    assert told.state == "stalled"
    told = look(node0=[*started(), *(decode(t) for t in range(-60, 1, 10)), *many, *(decode(t) for t in range(260, 400, 10))])
    assert told.state == "healthy"


def test_source_lines_and_advice_are_no_events(look) -> None:
    lines = [*started(), *(decode(t) for t in range(-60, 1, 10))]
    lines += [
        sglang(2, "Traceback (most recent call last):", "TP0"),
        '  File "/opt/sglang/srt/managers/scheduler.py", line 3, in run_scheduler_process',
        '    logger.error(f"Scheduler hit an exception: {traceback}")',
        "ValueError: x",
        sglang(3, "If you see 'Watchdog timeout', raise --watchdog-timeout"),
        decode(10),
    ]
    told = look(node0=lines)
    assert told.state == "healthy"
    assert told.root == (None, None)
