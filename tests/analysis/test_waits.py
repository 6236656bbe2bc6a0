"""The wait-for graph of a captured engine: edges from evidence alone, cycles, and what the rules make of them."""

from __future__ import annotations

import pytest

from forensics.report.waitwords import story
from tests.analysis.scene import CORE, CORE_WAITS, IN_COLLECTIVE, WORKER, WORKER_IDLES

RANK1 = WORKER + 1
WRITER = RANK1 + 1000
IN_TAKE = [
    "take (engine/tables.py)",
    "Worker.execute_model (vllm/v1/worker/gpu_worker.py)",
    "WorkerProc.worker_busy_loop (multiproc_executor.py)",
]
IN_WRITE = ["write_back (engine/tables.py)", "Thread.run (threading.py)"]
IN_PUT = ["Condition.wait (threading.py)", "Queue.put (queue.py)", *IN_TAKE[1:]]
IN_EVENT = [
    "Condition.wait (threading.py)",
    "Event.wait (threading.py)",
    "Ready.synchronize (engine/tables.py)",
    "Thread.run (threading.py)",
]


def lock(address: int, place: str, waiters: list[int], **known):
    return {"address": address, "kind": "RLock", "place": place, "waiters": waiters} | known


def deadlock(s, kind: str = "owner"):
    """Rank 1's main thread and its writer each hold what the other wants."""
    s.hang(1, IN_TAKE)
    s.everywhere(RANK1, IN_TAKE)
    s.everywhere(RANK1, IN_WRITE, thread="writer")
    held = {
        "owner": lambda tid: {"owner": tid, "inside": [tid]},
        "inside": lambda tid: {"inside": [tid]},
        "id": lambda tid: {"owner": tid},
    }[kind]
    a = lock(0x1000, "table_lock (tables.py:10)", [RANK1], **held(WRITER))
    b = lock(0x2000, "buffer_lock (tables.py:20)", [WRITER], **held(RANK1))
    s.objects[RANK1] = {"locks": [a, b]}
    return s


@pytest.mark.parametrize("kind", ["owner", "inside"])
def test_a_lock_deadlock_read_in_memory_is_a_cycle_and_established(scene, tell, kind):
    told = tell(deadlock(scene(), kind))
    assert told.grade("lock-deadlock") == told.grade("circular-wait") == "established"
    assert told.root == ("lock-deadlock", 1)
    assert story(told.report.waits, told.report.waits_whole) == (
        "core waits for rank 0's answer; rank 0 waits in all_reduce for rank 1; "
        'rank 1 waits for the lock table_lock (tables.py:10) that thread "writer" holds; '
        'thread "writer" waits for the lock buffer_lock (tables.py:20) that rank 1 holds: a cycle. '
        "Nothing else waits for a cause of its own."
    )


def test_a_holder_that_nothing_names_leaves_the_deadlock_possible(scene, tell):
    s = deadlock(scene())
    for one in s.objects[RANK1]["locks"]:
        one.update(owner=None, inside=[])
    told = tell(s)
    assert told.grade("lock-deadlock") == "possible"
    assert told.grade("circular-wait") is None
    assert told.root == ("rank-divergence-collective", 1)


def test_an_owner_that_stands_in_no_block_of_the_lock_may_be_a_thread_that_got_the_id_of_a_dead_one(scene, tell):
    told = tell(deadlock(scene(), "id"))
    assert told.grade("lock-deadlock") == told.grade("circular-wait") == "supported"


def test_two_threads_inside_one_plain_lock_are_a_misreading_and_name_no_holder(scene, tell):
    s = deadlock(scene(), "inside")
    s.objects[RANK1]["locks"][0]["inside"] = [WRITER, 77]
    told = tell(s)
    assert told.grade("circular-wait") is None and "lock-deadlock" not in told.established


def test_a_holder_that_moves_is_no_more_than_supported(scene, tell):
    s = deadlock(scene())
    s.stacks[RANK1, "writer"] = [IN_WRITE, ["other (engine/tables.py)", *IN_WRITE], IN_WRITE]
    told = tell(s)
    assert "circular-wait" not in told.established and "lock-deadlock" not in told.established


def test_locks_in_an_engine_that_moves_claim_nothing(scene, tell):
    s = deadlock(scene())
    s.metrics = [s._metrics(100), s._metrics(160), s._metrics(190)]
    told = tell(s)
    assert not told.report.waits and not told.established & {"circular-wait", "lock-deadlock"}
    assert told.root == (None, None)


def queue(**known):
    return {"address": 0x3000, "kind": "queue.Queue", "place": "pending (tables.py:9)", "depth": 4, "maxsize": 4} | known


def test_a_put_into_a_full_queue_waits_for_its_consumer_which_waits_for_an_event(scene, tell):
    s = scene()
    s.hang(1, IN_PUT)
    s.everywhere(RANK1, IN_PUT)
    s.everywhere(RANK1, IN_EVENT, thread="copier")
    event = {"tid": WRITER, "kind": "threading.Event", "place": "Ready._event (tables.py:31)", "flag": False}
    s.objects[RANK1] = {"queues": [queue(putting=[RANK1], takers=[WRITER])], "waits": [event]}
    told = tell(s)
    assert told.grade("queue-at-capacity") == "established"
    assert "4 of 4" in told.by_id["queue-at-capacity"].title
    assert told.root == ("queue-at-capacity", 1)
    assert story(told.report.waits, told.report.waits_whole).endswith(
        'rank 1 waits for thread "copier" (pending (tables.py:9), 4 of 4); thread "copier" waits for whoever sets Ready._event (tables.py:31). '
        "Nothing else waits for a cause of its own."
    )


def test_a_queue_that_is_not_full_in_every_look_is_back_pressure(scene, tell):
    s = scene()
    s.hang(1, IN_PUT)
    s.objects[RANK1] = {"queues": [queue(depth=3, putting=[RANK1])]}
    told = tell(s)
    assert told.grade("queue-at-capacity") is None and told.rule("queue_capacity") == "CLEAR"


def test_a_refused_item_is_told_with_the_queue_s_capacity(scene, tell):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.traceback(-20, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "queue.Full", code="self.pending.put_nowait(x)")
    s.objects[WORKER] = {"queues": [queue()]}
    told = tell(s)
    found = told.by_id["bounded-queue-overflow"]
    assert found.grade.value == "established" and "pending (tables.py:9) holds 4 of 4" in found.title
    assert "capacity" not in found.does_not_show


def test_calls_that_one_rank_leaves_in_the_ring_are_that_rank_s(scene, tell):
    s = scene(ranks=2)
    s.hang(1, ["read (engine/plugin.py)", *IN_TAKE[1:]])
    s.everywhere(RANK1, ["take (engine/plugin.py)", *IN_TAKE[1:]])
    s.ring = [["111", "111", "110", "110", "000"]] * 3
    told = tell(s)
    assert told.grade("rank-not-responding") == "established"
    assert told.by_id["rank-not-responding"].ranks == (1,) and told.root[1] == 1
    assert "has not taken 2 call(s) (execute_model)" in told.by_id["rank-not-responding"].title


@pytest.mark.parametrize("frames", [[], ["Event.synchronize (torch/cuda/streams.py)", *IN_TAKE[1:]]], ids=["unseen", "waits for its GPU"])
def test_a_rank_that_may_be_behind_because_of_a_peer_is_not_named_for_it(scene, tell, frames):
    s = scene(ranks=2)
    s.hang(1, frames)
    s.everywhere(WORKER, WORKER_IDLES)
    s.ring = [["111", "111", "110", "110", "000"]] * 3
    told = tell(s)
    assert "rank-not-responding" not in told.established and told.root[0] != "rank-not-responding"


def test_a_rank_that_moves_while_calls_wait_is_in_a_long_step(scene, tell):
    s = scene(ranks=2)
    s.hang(1, IN_TAKE)
    s.stacks[RANK1, "MainThread"] = [IN_TAKE, ["other (engine/tables.py)", *IN_TAKE], ["third (engine/tables.py)", *IN_TAKE]]
    s.ring = [["110", "110"]] * 3
    told = tell(s)
    assert "rank-not-responding" not in told.by_id and told.root == (None, None)


@pytest.mark.parametrize(
    "looks",
    [[["111", "110"], ["111", "111"], ["110", "111"]], [["100", "100"]] * 3, [["111", "110"]] * 2],
    ids=["turns", "both", "two looks"],
)
def test_unread_slots_that_change_or_that_all_leave_name_nobody(scene, tell, looks):
    s = scene()
    s.still()
    s.everywhere(CORE, CORE_WAITS)
    s.ring = looks
    told = tell(s)
    assert told.grade("rank-not-responding") is None


def delivery(s, depth: int = 1):
    """Rank 0's delivery thread stands inside a result, and its next step has raised."""
    s.hang(0, WORKER_IDLES)
    s.everywhere(WORKER, WORKER_IDLES)
    s.everywhere(WORKER, IN_EVENT, thread="WorkerAsyncOutputCopy")
    s.traceback(-20, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "RuntimeError: lookup failed")
    values = [{"name": "async_output_queue", "expr": "x", "type": "int", "value": depth}]
    s.objects[WORKER] = {"values": [*values, {"name": "async_scheduling", "expr": "y", "type": "bool", "value": True}]}
    return s


def test_a_failure_behind_an_unfinished_result_is_shown_by_the_delivery_thread(scene, tell):
    told = tell(delivery(scene()))
    found = told.by_id["failure-head-of-line-blocked"]
    assert found.grade.value == "established" and found.ranks == (0,)
    assert "2026-09-01T09:59:40" in found.title and "has not learned of it yet" in found.title
    mode = told.by_id["execution-mode"]
    assert mode.grade.value == "established" and "Asynchronous scheduling is on" in mode.title


def test_with_nothing_queued_behind_the_result_no_failure_waits_there(scene, tell):
    assert tell(delivery(scene(), depth=0)).grade("failure-head-of-line-blocked") is None


def test_the_mode_in_force_outdoes_the_command_line_and_contradictions_are_not_established(scene, tell):
    s = scene()
    s.objects[CORE] = {"values": [{"name": "async_scheduling", "expr": "y", "type": "bool", "value": False}]}
    mode = tell(s).by_id["execution-mode"]
    assert mode.grade.value == "established" and "Asynchronous scheduling is off" in mode.title


def test_a_core_and_a_worker_that_disagree_leave_the_mode_open(scene, tell):
    s = delivery(scene())
    s.objects[CORE] = {"values": [{"name": "async_scheduling", "expr": "y", "type": "bool", "value": False}]}
    assert tell(s).grade("execution-mode") == "possible"


def test_a_single_slot_is_incompatible_only_where_an_overlapping_pass_failed_at_it(scene, tell):
    s = delivery(scene())
    single = queue(depth=1, maxsize=1)
    s.objects[WORKER]["queues"] = [single]
    assert tell(s).grade("execution-mode-incompatible") is None


@pytest.mark.parametrize(
    ("code", "mode", "grade"),
    [
        ("self.pending.put_nowait(step)", True, "established"),
        ("self.other.put_nowait(step)", True, "supported"),  # which queue refused was not seen
        ("self.pending.put_nowait(step)", False, None),  # one pass at a time
        ("self.pending.put_nowait(step)", None, None),  # nothing says in which mode it runs
    ],
)
def test_a_pass_refused_by_a_single_slot_under_overlapping_passes_is_established(scene, tell, code, mode, grade):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.traceback(-20, "Worker_TP0", WORKER, "WorkerProc hit an exception.", "queue.Full", code=code)
    if mode:  # its threads tell the mode, too
        s.everywhere(WORKER, WORKER_IDLES)
        s.everywhere(WORKER, ["Queue.get (queue.py)"], thread="WorkerAsyncOutputCopy")
    s.unread = {WORKER, WORKER + 1} if mode is None else set()
    values = [] if mode is None else [{"name": "async_scheduling", "expr": "y", "type": "bool", "value": mode}]
    s.objects[WORKER] = {"values": values, "queues": [queue(depth=1, maxsize=1)]}
    told = tell(s)
    assert told.grade("execution-mode-incompatible") == grade
    if grade:
        found = told.by_id["execution-mode-incompatible"]
        assert {r.source.partition("/")[0] for r in found.because} == {"objects", "rpclogs", "stacks"}
        assert any("async_scheduling" in r.quote for r in found.because) and any('"maxsize": 1' in r.quote for r in found.because)


def test_an_overlapping_pass_that_waits_at_a_single_slot_is_supported(scene, tell):
    s = scene()
    s.hang(1, IN_PUT)
    s.everywhere(RANK1, IN_PUT)
    s.everywhere(RANK1, ["Queue.get (queue.py)"], thread="WorkerAsyncOutputCopy")
    s.everywhere(WORKER, IN_COLLECTIVE)
    s.everywhere(WORKER, ["Queue.get (queue.py)"], thread="WorkerAsyncOutputCopy")
    s.objects[RANK1] = {"queues": [queue(depth=1, maxsize=1, putting=[RANK1])]}
    told = tell(s)
    assert told.grade("execution-mode-incompatible") == "supported"
    assert told.root == ("queue-at-capacity", 1)


def test_ranks_in_different_collectives_wait_for_each_other(scene, tell):
    s = scene()
    s.hang(1, [f.replace("all_reduce", "all_gather") for f in IN_COLLECTIVE])
    told = tell(s)
    assert {(w.waiter_rank, w.target_rank, w.detail) for w in told.report.waits if w.via == "collective"} == {
        (0, 1, "all_reduce"),
        (1, 0, "all_gather"),
    }
    # two groups of which each rank is in one would look the same
    assert "circular-wait" not in told.established


def test_a_rank_that_is_behind_because_it_waits_in_a_collective_is_not_named(scene, tell):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.ring = [["111", "101"]] * 3
    told = tell(s)
    assert all(f.ranks != (1,) for f in told.report.findings if f.id == "rank-not-responding")


def test_the_rank_whose_delivery_thread_stands_inside_a_result_is_the_root(scene, tell):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.everywhere(RANK1, WORKER_IDLES)
    s.everywhere(WORKER, IN_EVENT, thread="WorkerAsyncOutputCopy")
    told = tell(s)
    assert told.root == ("rank-not-responding", 0) and told.grade("rank-not-responding") == "supported"
    assert "Ready.synchronize (engine/tables.py" in told.by_id["rank-not-responding"].title


def test_a_rank_that_waits_for_a_peer_is_not_named_for_an_answer_that_is_late(scene, tell):
    s = scene()
    s.hang(1, ["transfer (engine/kv.py)", *IN_COLLECTIVE[1:]])
    s.everywhere(WORKER, IN_EVENT, thread="WorkerAsyncOutputCopy")
    told = tell(s)
    assert all(f.ranks != (0,) for f in told.report.findings if f.id == "rank-not-responding")
    assert told.root[1] != 0


def test_a_delivery_thread_that_waits_for_its_gpu_may_wait_for_a_peer(scene, tell):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.everywhere(RANK1, WORKER_IDLES)
    s.everywhere(WORKER, ["Event.synchronize (torch/cuda/streams.py)", "Output.get_output (runner.py)"], thread="WorkerAsyncOutputCopy")
    assert tell(s).root == (None, None)


# ---- what may not be said


def test_threads_of_one_name_are_not_one_thread(scene, tell):
    s = deadlock(scene())
    loop = ["loop (engine/kv.py)", "Thread.run (threading.py)"]
    s.others[RANK1] = [(9001, "writer", [loop] * 3), (9002, "writer", [["read (io.py)", *loop]] * 3)]
    s.objects[RANK1] = {"locks": [lock(1, "a", [RANK1], inside=[9001]), lock(2, "b", [9001], inside=[9002])]}
    told = tell(s)
    assert told.grade("circular-wait") is None and "lock-deadlock" not in told.established
    assert any('thread "writer" (tid 9002)' in w.waits_for for w in told.report.waits)


def test_a_second_thread_called_mainthread_is_not_the_main_thread(scene, tell):
    s = deadlock(scene())
    s.others[RANK1] = [(9001, "MainThread", [["read (io.py)", "Thread.run (threading.py)"]] * 3)]
    s.objects[RANK1] = {"locks": [lock(1, "a", [RANK1], inside=[9001])]}
    told = tell(s)
    assert told.grade("circular-wait") is None


def test_a_lock_that_the_newest_look_no_longer_shows_is_no_wait(scene, tell):
    s = deadlock(scene())
    s.objects_in = {1, 2}
    told = tell(s)
    assert "lock-deadlock" not in told.established and not any(w.detail.startswith("table_lock") for w in told.report.waits)


def test_a_full_queue_whose_consumer_moves_is_back_pressure(scene, tell):
    s = scene()
    s.hang(1, IN_PUT)
    s.everywhere(RANK1, IN_PUT)
    s.stacks[RANK1, "writer"] = [["write (d.py)", "Thread.run (threading.py)"], ["fsync (d.py)"], ["seek (d.py)"]]
    s.objects[RANK1] = {"queues": [queue(putting=[RANK1], takers=[WRITER])]}
    assert tell(s).grade("queue-at-capacity") is None


def test_a_rank_whose_stack_was_not_read_is_possibly_waited_for(scene, tell):
    s = scene(ranks=3)
    s.hang(1, ["read (engine/plugin.py)", *IN_TAKE[1:]])
    s.unread = {WORKER + 2}
    told = tell(s)
    grades = {w.target_rank: w.grade.value for w in told.report.waits if w.via == "collective" and w.waiter_rank == 0}
    assert grades[2] == "possible" and grades[1] in ("established", "supported")


def test_one_collective_in_two_spellings_is_one(scene, tell):
    s = scene()
    s.hang(1, [f.replace("all_reduce", "allreduce") for f in IN_COLLECTIVE])
    told = tell(s)
    assert told.grade("rank-divergence-collective") is None and told.grade("circular-wait") is None


def test_a_traceback_that_was_handled_is_no_failure_behind_a_result(scene, tell):
    s = delivery(scene())
    s.lines = [line for line in s.lines if "WorkerProc hit" not in line and "Traceback" not in line and "lookup failed" not in line]
    s.traceback(-20, "Worker_TP0", WORKER, "Retrying the transfer", "ConnectionError: reset")
    assert "failure-head-of-line-blocked" not in tell(s).established


def test_many_ranks_in_two_collectives_make_a_bounded_graph(scene, tell):
    s = scene(ranks=64)
    s.still()
    s.everywhere(CORE, CORE_WAITS)
    for rank in range(64):
        s.everywhere(WORKER + rank, IN_COLLECTIVE if rank % 2 else [f.replace("all_reduce", "all_gather") for f in IN_COLLECTIVE])
    told = tell(s)
    assert 64 < len(told.report.waits) <= 64 * 9 + 1
    assert "24 more ranks of its group" in {w.waits_for for w in told.report.waits}
