"""What is done to a server of two ranks, and what must then be said of it. Each function asserts and returns what was seen."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from judge import (
    CONSEQUENCES,
    STRONG,
    Seen,
    analyze,
    assert_installed_as_packaged,
    assert_no_wrong_established,
    assert_nothing_broke,
    assert_root,
    look,
)
from real_server import Server, eventually, process_state

PY_SPY = str(Path(sys.executable).parent / "py-spy")
CULPRIT = "VLLM::Worker_TP1"
STALL = {*CONSEQUENCES, "rank-not-responding", "rank-divergence-collective"}
"""True of a rank that stands while the other waits for it in a collective."""
REFUTED_OR_SILENT = ("", "refuted", "not assessable")


def idle(server: Server) -> Seen:
    server.wait_idle()
    seen = look(server, name="idle")
    assert_nothing_broke(seen)
    assert seen.grade("idle-healthy") in STRONG
    assert seen.grade("engine-stalled") in REFUTED_OR_SILENT
    assert_no_wrong_established(seen, {"idle-healthy", "idle-cpu-spin"})
    assert seen.ranks == [0, 1]
    return seen


def normal_traffic(server: Server) -> Seen:
    load = server.loaded(4, 500)
    seen = look(server, name="normal")
    assert seen.grade("execution-mode") == "established"
    assert load.going_on, "the load ended before the capture did: nothing is proven"
    assert_nothing_broke(seen)
    assert seen.grade("healthy-serving") == "established"
    assert seen.grade("engine-stalled") in REFUTED_OR_SILENT
    assert_installed_as_packaged(seen)
    assert_no_wrong_established(seen, {"healthy-serving", "busy-spin"})
    assert load.all_answered(), load.events
    return seen


GAP_ROUNDS = 5


def token_gaps(server: Server) -> Seen:
    """How much longer the slowest gap between two tokens gets by a capture, beside what plain py-spy dumps of the same processes cost.

    Printed; asserted is that every request is answered. Measured in turn after a warm-up; the median of the rounds is what is compared.
    """
    seen = None
    assert server.load(2, 300).all_answered()
    slowest: dict[str, list[float]] = {"quiet": [], "py-spy": [], "capture": []}
    for _ in range(GAP_ROUNDS):
        for phase, gaps in slowest.items():
            load = server.load(2, 1000)
            server.wait_step(3)
            if phase == "py-spy":
                for pid in server.processes() * 2:
                    subprocess.run([PY_SPY, "dump", "--json", "--pid", str(pid)], capture_output=True, check=False)
            if phase == "capture":
                seen = look(server, name="gaps")
            assert load.all_answered(), load.events
            gaps.append(max(load.slowest_gaps) * 1000)
    quiet, dumped, captured = (statistics.median(gaps) for gaps in slowest.values())
    print(
        f"\ntoken gaps: slowest {quiet:.0f} ms undisturbed, {dumped:.0f} ms beside py-spy dumps, {captured:.0f} ms beside a capture; {slowest}"
    )
    assert seen
    return seen


def slow_steps(server: Server) -> Seen:
    """Three seconds a step on rank 1 is slow and is no stall; every request is answered."""
    server.fire("slow 1 3")
    try:
        load = server.load(2, 24)
        eventually(lambda: server.metric("num_requests_running") >= 1, "a running request")
        server.wait_step(2)
        seen = look(server, name="slow")
        assert load.going_on, "the load ended before the capture did: nothing is proven"
        assert seen.root["finding"] is None and seen.root["rank"] is None, seen.root
        assert seen.state in ("healthy", "degraded"), seen.report["verdict"]
        assert seen.grade("slow-progress") in STRONG
        assert seen.grade("engine-stalled") in REFUTED_OR_SILENT
        assert_no_wrong_established(seen, {"slow-progress", "healthy-serving", "busy-spin"})
        assert load.all_answered(), load.events
    finally:
        server.fire("")
    return seen


def stopped_under_load(server: Server) -> Seen:
    load = server.loaded(8, 1500)
    culprit = server.find(CULPRIT)
    server.pause(culprit)
    try:
        server.wait_frozen()
        seen = look(server, name="stopped")
        assert_root(seen, "process-stopped", 1, pid=culprit)
        assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
        assert_no_wrong_established(seen, {*STALL, "process-stopped"})
        assert process_state(culprit) == "T"
    finally:
        server.resume(culprit)
    assert load.all_answered(), load.events
    return seen


def stopped_while_idle(server: Server) -> Seen:
    """No metric ever moves or shows a request: work is visible only in stacks and sockets."""
    server.wait_idle()
    culprit = server.find(CULPRIT)
    server.pause(culprit)
    try:
        load = server.load(4, 50)
        server.wait_frozen()
        assert server.metric("num_requests_running") == 0 and load.going_on
        seen = look(server, name="stopped-idle")
        assert_root(seen, "process-stopped", 1, pid=culprit)
        assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
        assert_no_wrong_established(seen, {*STALL, "process-stopped"})
    finally:
        server.resume(culprit)
    assert load.all_answered(), load.events
    return seen


def exception_that_nobody_is_told(server: Server) -> Seen:
    """The server is lost afterwards: what rank 1 has missed of the collective cannot be made good."""
    server.loaded(4, 1500)
    server.fire("exc 1")
    eventually(lambda: "WorkerProc hit an exception" in server.text, "the worker's exception")
    server.wait_frozen()
    seen = look(server, name="exception")
    assert_root(seen, "worker-exception-swallowed", 1, pid=server.find(CULPRIT))
    assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
    assert_no_wrong_established(seen, {*STALL, "worker-exception-swallowed"})
    return seen


def lock_deadlock(server: Server) -> Seen:
    """Plain locks store no owner: who holds them is told by frames inside their with blocks."""
    load = server.loaded(4, 1500)
    server.fire("deadlock 1")
    try:
        server.wait_frozen()
        seen = look(server, name="deadlock")
        deadlocked(seen, server.find(CULPRIT), grades=STRONG)
    finally:
        server.fire("")
    assert load.all_answered(), load.events
    return seen


def reentrant_deadlock(server: Server) -> Seen:
    """Re-entrant locks know their owner; nobody can let go of them from outside, so the server is lost."""
    server.loaded(4, 1500)
    server.fire("rdeadlock 1")
    server.wait_frozen()
    seen = look(server, name="rdeadlock")
    deadlocked(seen, server.find(CULPRIT), grades=("established",))
    return seen


def deadlocked(seen: Seen, culprit: int, grades: tuple[str, ...]) -> None:
    assert seen.root["finding"] == "lock-deadlock" and seen.root["rank"] == 1 and seen.root["pid"] == culprit, seen.root
    assert seen.grade("lock-deadlock") in grades and seen.grade("circular-wait") in grades
    assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
    story = seen.report["waits_sentence"]
    assert "rank 0 waits in all_reduce for rank 1" in story and story.count(": a cycle") == 1, story
    assert "the lock table_lock" in story and 'that thread "kv-transfer-writer" holds' in story, story
    assert "the lock buffer_lock" in story and "that rank 1 holds" in story, story
    assert_no_wrong_established(seen, {*STALL, "lock-deadlock", "circular-wait"})


def queue_blocked(server: Server) -> Seen:
    """A put on a full queue, whose consumer waits for an event that nobody sets."""
    load = server.loaded(4, 1500)
    server.fire("qblock 1")
    try:
        server.wait_frozen()
        seen = look(server, name="qblock")
        assert_root(seen, "queue-at-capacity", 1, pid=server.find(CULPRIT))
        assert seen.state == "stalled" and seen.grade("engine-stalled") == "established"
        depths = [re.search(r"is full \((\d+) of (\d+)\)", f["title"]) for f in seen.report["findings"] if f["id"] == "queue-at-capacity"]
        assert depths and all(m and m[1] == m[2] == "4" for m in depths), depths
        story = seen.report["waits_sentence"]
        assert 'rank 1 waits for thread "ple-offload-copier"' in story and "ReadyEvent._event" in story, story
        assert_no_wrong_established(seen, {*STALL, "queue-at-capacity"})
    finally:
        server.fire("")
    assert load.all_answered(), load.events
    return seen


def failure_behind_a_result(server: Server) -> Seen:
    """Asynchronous scheduling: one step's output is never copied, and the next step raises on the rank that answers."""
    server.loaded(4, 1500)
    server.fire("copyblock 0")
    eventually(lambda: "WorkerProc hit an exception" in server.text, "the worker's exception")
    server.wait_frozen()
    seen = look(server, name="copyblock")
    assert seen.root["finding"] == "worker-exception-swallowed" and seen.root["rank"] == 0, seen.root
    assert seen.grade("failure-head-of-line-blocked") == "established"
    (title,) = [f["title"] for f in seen.report["findings"] if f["id"] == "failure-head-of-line-blocked"]
    failed, waiting = (isoformat(m) for m in re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", title)[:2])
    assert failed < waiting + 1 and "ReadyEvent.synchronize" in title and "has not learned of it yet" in title, title
    assert_no_wrong_established(seen, {*STALL, "worker-exception-swallowed", "failure-head-of-line-blocked"})
    return seen


def isoformat(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def queue_full(server: Server) -> Seen:
    server.loaded(4, 1500)
    server.fire("qfull 0")
    eventually(lambda: "queue.Full" in server.text, "the exception", every=0.05)
    seen = look_at_the_dying(server, "queue-full")
    assert_root(seen, "bounded-queue-overflow", 0)
    assert seen.grade("engine-died") in STRONG and seen.state == "dead"
    assert_no_wrong_established(seen, {*CONSEQUENCES, "bounded-queue-overflow", "engine-died", "worker-process-died"})
    assert seen.grade("memory-exhaustion") not in STRONG, "more memory would not have helped"
    return seen


def killed_under_load(server: Server) -> Seen:
    server.loaded(4, 1500)
    os.kill(server.find(CULPRIT), signal.SIGKILL)
    seen = look_at_the_dying(server, "killed")
    assert_root(seen, "worker-process-died", 1)
    assert seen.state in ("dead", "stalled")
    assert_no_wrong_established(seen, {*STALL, "worker-process-died", "engine-died"})
    assert seen.grade("host-oom-kill") not in STRONG, "a SIGKILL is not an out-of-memory kill"
    return seen


def look_at_the_dying(server: Server, name: str) -> Seen:
    """Capture while processes vanish; when none is left to capture, what remains is the log."""
    try:
        return look(server, name=name)
    except AssertionError:
        if server.processes():
            raise
        return analyze(server.log)


REVERSIBLE = (idle, normal_traffic, token_gaps, slow_steps, stopped_under_load, stopped_while_idle, queue_blocked, lock_deadlock)
"""The server serves as before afterwards."""
FATAL = (exception_that_nobody_is_told, reentrant_deadlock, queue_full, killed_under_load)
