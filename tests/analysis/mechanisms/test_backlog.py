"""How long requests had been waiting before the trouble began: by replica, before any kind of trouble, and not where it was a burst."""

from __future__ import annotations

from tests.analysis.mechanisms.logs import Log, told


def stands(log: Log, at: float, running: int = 6) -> Log:
    for i in range(6):
        log.stats(at + 10 * i, 0.0, running, 20, 80.0)
    return log


def test_a_queue_of_minutes_before_a_standstill(tmp_path):
    t = told(tmp_path, node0=stands(Log().flow(-900, -600).flow(-600, 0, waiting=12), 10))
    finding = t.by_id["backlog-before-onset"]
    assert finding.grade.value == "established" and finding.role.value == "context" and "10 min" in finding.title


def test_a_queue_before_nobody_was_let_in(tmp_path):
    t = told(tmp_path, node0=stands(Log().flow(-600, 0, waiting=12), 10, running=0))
    assert t.grade("backlog-before-onset") == "established" and t.grade("engine-alive-not-progressing") == "established"


def test_a_queue_of_one_replica_is_not_broken_by_another_that_has_none(tmp_path):
    log = Log(config="data_parallel_size=2, ")
    for i in range(40):
        log.stats(-400 + 10 * i, 90.0, 6, 0, 30.0)
        log.raw(Log(start=False).stats(-400 + 10 * i, 90.0, 6, 9, 30.0).lines[0].replace("Engine 000", "Engine 001"))
    assert told(tmp_path, node0=stands(log, 10)).grade("backlog-before-onset") == "established"


def test_a_queue_that_was_empty_in_between_is_none(tmp_path):
    log = Log().flow(-600, -60, waiting=12).stats(-60, 100.0, 6, 0, 20.0).flow(-50, 0, waiting=3)
    assert "backlog-before-onset" not in told(tmp_path, node0=stands(log, 10)).by_id


def test_without_trouble_a_queue_is_only_a_queue(tmp_path):
    t = told(tmp_path, node0=Log().flow(-600, 0, waiting=12))
    assert "backlog-before-onset" not in t.by_id and t.grade("queue-waiting-behind-capacity") == "possible"
