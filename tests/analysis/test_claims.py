"""Claims that fit the evidence, beside another reading that fits it as well: what is not decided is not established."""

from __future__ import annotations

from tests.analysis.layers.conftest import told as told  # noqa: PLC0414 a fixture
from tests.analysis.layers.folder import Node, iso, kernel
from tests.analysis.layers.test_network import counters

LATE = (
    'Liveness probe failed: Get "http://192.0.2.9:8000/health": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
)


def restarted(fatal: bool = True) -> Node:
    node = Node()
    node.stats(70, 600)
    if fatal:
        node.fatal(700)
    node.start(800)
    node.stats(870, 990)
    return node


def test_a_life_that_broke_before_the_present_one_was_a_crash(told):
    t = told(n1__log=restarted())
    assert t.by_id["engine-died"].until is not None
    assert "no-crash-found" not in t.by_id


def test_a_crash_elsewhere_is_as_certain_as_the_crash(told):
    well, lost = Node(), Node()
    well.stats(70, 600)
    lost.stats(70, 300)
    front = "(APIServer pid=1) ERROR " + "04-07 09:05:05 [async_llm.py:480] AsyncLLM output_handler failed."
    lost.raw(front)
    lost.raw(front + " vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")
    t = told(n1__log=well, n2__log=lost)
    assert t.grade("engine-died") == t.grade("crash-on-other-node") == "supported"


def test_a_kernel_log_that_begins_after_the_trouble_gives_no_all_clear(told):
    node = Node()
    node.stats(70, 600)
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (2000, "audit: backlog"), (2600, "audit: backlog")))
    assert t.grade("host-stable") != "established"


def test_a_kernel_log_over_the_whole_time_does(told):
    node = Node()
    node.stats(70, 600)
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (10, "audit: backlog"), (2600, "audit: backlog")))
    assert t.grade("host-stable") == "established"


def test_a_stop_after_a_failed_probe_may_be_somebody_s_wish(told):
    node = Node()
    node.stats(70, 600)
    node.say(605, "EngineCore", 500, "INFO", "Shutdown initiated (timeout=0)", "core.py:9")
    node.start(700)
    node.stats(770, 900)
    t = told(n1__log=node, n1__events_txt=f"{iso(300)} Warning Unhealthy {LATE}\n")
    assert t.grade("healthy-engine-restarted") == "supported"


def test_a_relaunch_that_failed_for_a_reason_of_its_own_races_with_nobody(told):
    node = Node()
    node.stats(70, 600)
    node.fatal(700)
    lines = len(node.lines)
    node.start(800)
    del node.lines[lines + 7 :]
    node.say(830, "Worker_TP0", 501, "ERROR", "WorkerProc failed to start.", "multiproc_executor.py:944")
    node.say(830, "Worker_TP0", 501, "ERROR", "Traceback (most recent call last):", "multiproc_executor.py:944")
    node.say(830, "Worker_TP0", 501, "ERROR", '  File "/opt/vllm/a.py", line 9, in load', "multiproc_executor.py:944")
    node.say(
        830,
        "Worker_TP0",
        501,
        "ERROR",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.",
        "multiproc_executor.py:944",
    )
    node.raw(
        "[rank1]:[W407 09:13:51.000000000 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=78, addr=[localhost]:42386, remote=[localhost]:49557): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
    )
    node.start(1000)
    node.stats(1070, 1100)
    t = told(n1__log=node)
    assert t.grade("gpu-oom") == "established"
    assert "rendezvous-race-on-relaunch" not in t.by_id


def test_a_lease_that_an_earlier_life_lost_explains_nothing_of_the_present_one(told):
    node = restarted(fatal=False)
    said = "dynamo_runtime::transports::etcd::lease: Unable to maintain lease. Check etcd server status error=Unable to refresh lease"
    lost = f"2026-04-07T09:10:30.168234Z ERROR {said} - deadline exceeded"
    first = next(i for i, line in enumerate(node.lines) if "09:13:20" in line)
    node.lines.insert(first, lost)
    t = told(n1__log=node)
    assert t.by_id["control-plane-lease-lost"].until is not None  # told of the life that lost it, not of this one
    assert t.state == "healthy"


def test_memory_that_was_read_after_the_end_refutes_nothing(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(606, 2)
    meminfo = "2026-04-07 10:30:00\nMemTotal: 527000000 kB\nMemFree: 400000000 kB\nMemAvailable: 500000000 kB\n"
    t = told(n1__log=node, n1__meminfo_txt=meminfo)
    assert t.grade("memory-exhaustion") != "refuted"


def test_several_processes_that_wait_are_not_one(told):
    node = Node()
    node.stats(70, 600)
    for rank in range(4):
        text = "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
        node.say(660, f"Worker_TP{rank}", 501 + rank, "INFO", text, "shm_broadcast.py:466")
    t = told(n1__log=node)
    assert t.by_id["symptom-shm-broadcast-wait"].title.startswith("4 processes")


def test_two_looks_at_the_creation_of_a_communicator_within_seconds_are_those_of_every_start(scene, tell):
    s = scene(served=False)
    s.log(-30, "APIServer", 5100, "INFO", "non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2}")
    s.log(-20, "EngineCore", 5200, "INFO", "Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size=2")
    for rank in (0, 1):
        s.everywhere(5300 + rank, ["ncclCommInitRank (libnccl.so.2)", "PyNcclCommunicator.__init__ (pynccl.py)"])
    assert tell(s).grade("comm-init-stuck") not in ("established", "supported")


def test_error_counters_that_are_not_zero_and_were_first_read_in_the_trouble_refute_nothing(told):
    node = Node()
    node.stats(70, 600)
    node.stall(600)
    t = told(n1__log=node, n1__rdma_1_txt=counters(11, symbol_error=812), n1__rdma_2_txt=counters(12, symbol_error=812))
    assert t.grade("fabric-fault") != "refuted"
    assert t.rule("fabric") == "INCONCLUSIVE"
