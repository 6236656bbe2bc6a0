"""Rules that need native frames, the owner of the GIL, or the GPU's load beside the stacks."""

from __future__ import annotations

import json

import pytest

from forensics.analysis import analyze
from tests.analysis.scene import IN_COLLECTIVE, WORKER, WORKER_IDLES

RANK1 = WORKER + 1
STEP = ["Worker.execute_model (vllm/v1/worker/gpu_worker.py)", "WorkerProc.worker_busy_loop (multiproc_executor.py)"]
TAKES = ["pthread_cond_timedwait (libc.so.6)", "take_gil (libpython3.11.so.1.0)", *STEP]
HOLDS = ["ioctl (libc.so.6)", "transfer (librdma.so.1)", "push (engine/kv.py)", "Thread.run (threading.py)"]


def gil(s, waits: list[str] = TAKES):
    """A thread of rank 1 sits in native code with the GIL, and the main thread wants it."""
    s.hang(1, waits)
    s.everywhere(RANK1, waits)
    s.everywhere(RANK1, HOLDS, thread="pusher")
    s.gil[RANK1] = "pusher"
    return s


def test_a_gil_that_native_code_keeps_is_established_by_owner_and_waiter(scene, tell):
    told = tell(gil(scene()))
    found = told.by_id["gil-held"]
    assert found.grade.value == "established" and '"pusher"' in found.title and "push (engine/kv.py" in found.title
    assert told.root == ("gil-held", 1)


@pytest.mark.parametrize("change", ["nobody waits", "another owner in one sample", "the engine moves"])
def test_a_gil_without_waiter_or_with_a_moving_owner_is_ordinary(scene, tell, change):
    s = gil(scene(), waits=STEP) if change == "nobody waits" else gil(scene())
    if change == "another owner in one sample":
        s.stacks[RANK1, "pusher"] = [HOLDS, ["idle (engine/kv.py)", *HOLDS[3:]], HOLDS]
    if change == "the engine moves":
        s.metrics = [s._metrics(100), s._metrics(160), s._metrics(190)]
    told = tell(s)
    assert told.grade("gil-held") is None and told.rule("gil_held") == "CLEAR"


def test_without_stacks_nobody_can_tell_who_keeps_the_gil(scene, tell):
    s = gil(scene())
    s.denied["stacks"] = "DENIED"
    assert tell(s).rule("gil_held") == "INCONCLUSIVE"


ENQUEUE = ["pthread_mutex_lock (libc.so.6)", "ncclGroupEndInternal (libnccl.so.2)", *IN_COLLECTIVE]


def test_two_threads_in_nccl_s_launch_are_a_deadlock_of_the_host(scene, tell):
    s = scene()
    s.hang(1, ENQUEUE)
    s.everywhere(RANK1, ENQUEUE)
    s.everywhere(RANK1, [*ENQUEUE[:2], "push (engine/kv.py)", "Thread.run (threading.py)"], thread="pusher")
    told = tell(s)
    assert told.grade("nccl-host-enqueue-deadlock") == "supported"
    assert {f.ranks for f in told.report.findings if f.id == "nccl-host-enqueue-deadlock"} == {(1,)}


def test_a_launch_that_waits_for_a_rank_outside_is_a_victim(scene, tell):
    s = scene()
    s.hang(0, WORKER_IDLES)
    s.everywhere(RANK1, ENQUEUE)
    s.everywhere(RANK1, [*ENQUEUE[:2], "push (engine/kv.py)", "Thread.run (threading.py)"], thread="pusher")
    told = tell(s)
    assert told.root == ("rank-divergence-collective", 0)


@pytest.mark.parametrize("second", ["alone", "moves"])
def test_one_thread_in_nccl_s_launch_is_a_launch(scene, tell, second):
    s = scene()
    s.hang(1, ENQUEUE)
    s.everywhere(RANK1, ENQUEUE)
    if second == "moves":
        there = [*ENQUEUE[:2], "push (engine/kv.py)", "Thread.run (threading.py)"]
        s.stacks[RANK1, "pusher"] = [there, there[2:], ["pull (engine/kv.py)", *there[1:2], *there[3:]]]
    told = tell(s)
    assert "nccl-host-enqueue-deadlock" not in told.established


SYNC = ["Event.synchronize (torch/cuda/streams.py)", *STEP]


def gpu(s, pid: int, percent: float, watts: float):
    card = {"index": 0, "name": "GPU", "utilization_percent": percent, "power_mw": watts * 1000, "power_limit_mw": 700_000}
    s.extra.append(("gpu", "gpu/0.json", "nvml|" + json.dumps({**card, "processes": [{"pid": pid}]}), None))
    return s


def test_a_rank_that_waits_for_a_gpu_that_polls_is_supported_and_alone_the_root(scene, tell):
    s = gpu(scene(ranks=1), WORKER, 100, 140)
    s.hang(0, SYNC)
    told = tell(s)
    assert told.grade("gpu-kernel-not-terminating") == "supported"
    assert told.root == ("gpu-kernel-not-terminating", 0)


def test_of_several_ranks_none_is_named_for_it(scene, tell):
    s = gpu(scene(), RANK1, 100, 140)
    s.hang(1, SYNC)
    told = tell(s)
    assert told.grade("gpu-kernel-not-terminating") == "supported" and told.root == (None, None)


@pytest.mark.parametrize(("percent", "watts"), [(100, 600), (5, 90)], ids=["computes", "idles"])
def test_a_gpu_that_computes_or_idles_does_not_poll(scene, tell, percent, watts):
    s = gpu(scene(ranks=1), WORKER, percent, watts)
    s.hang(0, SYNC)
    assert tell(s).grade("gpu-kernel-not-terminating") is None


def test_idle_workers_are_no_case_for_any_of_them(scene, tell):
    s = scene()
    s.idle()
    s.everywhere(WORKER, WORKER_IDLES)
    told = tell(s)
    assert not {"gil-held", "nccl-host-enqueue-deadlock", "gpu-kernel-not-terminating"} & set(told.by_id)


def test_python_frames_alone_make_a_held_gil_possible_and_no_more(tmp_path):
    spy = (
        "# captured_at 2026-07-07T07:1{}:00Z host node0\nProcess 402: VLLM::Worker_TP1\nPython v3.12.11 (/usr/bin/python3.12)\n\n"
        'Thread 402 (idle): "MainThread"\n    record (tap/ring.py:20)\n    execute_model (vllm/v1/worker/gpu_worker.py:447)\n'
        "    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:680)\n"
        'Thread 477 (active+gil): "tap-writer"\n    search (re/__init__.py:177)\n    scrub (tap/scrub.py:52)\n    run (threading.py:1012)\n'
    )
    line = (
        "(APIServer pid=1) INFO 07-07 07:0{}:00 [loggers.py:248] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
        "{} tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
    )
    (tmp_path / "node0.log").write_text("\n".join([line.format(1, 40.0), line.format(2, 41.0), *(line.format(m, 0.0) for m in (3, 4, 5))]))
    for k in (1, 2):
        (tmp_path / f"node0.pid402.pyspy.{k}.txt").write_text(spy.format(k))
    found = {f.id: f for f in analyze([tmp_path]).findings}
    assert found["gil-held"].grade.value == "possible" and found["gil-held"].role.value == "context"
