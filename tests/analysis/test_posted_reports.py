"""Logs as people post them: cut, without times, torn, of a plain job. What may be said of them, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.model import FindingRole, Report

WATCHDOG = (
    "[rank{r}]:[E901 10:30:00.1{r}0000000 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=900000) ran for 900020 milliseconds before timing out.\n"
)
ABORTS = "[rank1]:[E901 10:30:01.100000000 ProcessGroupNCCL.cpp:627] [Rank 1] To avoid data inconsistency, we are taking the entire process down.\n"
AGENT = "E0901 10:30:05.000000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 2 (pid: 91) of binary: /usr/bin/python3\n"
SUMMARY = "Root Cause (first observed failure):\n[0]:\n  rank      : 10 (local_rank: 2)\n  exitcode  : {code} (pid: 91)\n"


def told_in(folder: Path) -> Callable[..., Report]:
    def read(**files: str) -> Report:
        for name, text in files.items():
            (folder / f"{name.replace('_kernel', '.kernel')}.log").write_text(text)
        return analyze([folder])

    return read


@pytest.fixture
def told(tmp_path):
    return told_in(tmp_path)


def ids(report: Report) -> dict[str, FindingRole]:
    return {f.id: f.role for f in report.findings}


def test_a_collective_of_a_plain_job_that_did_not_end_is_a_standstill(told):
    report = told(node0="".join(WATCHDOG.format(r=r) for r in (1, 3)))
    assert report.verdict.state == "stalled"
    assert report.root.finding is None  # whom a watchdog names waits for another


def test_a_rank_that_its_watchdog_took_down_is_dead(told):
    report = told(node0=WATCHDOG.format(r=1) + ABORTS)
    assert report.verdict.state == "dead" and "no-crash-found" not in ids(report)
    assert report.root.finding is None


def test_a_heartbeat_that_was_only_missed_has_ended_nothing_yet(told):
    line = (
        "[rank4]:[E901 10:30:00.100000000 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 4] ProcessGroupNCCL's watchdog "
        "got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API hang\n"
    )
    title = next(f.title for f in told(node0=line).findings if f.id == "heartbeat-monitor-abort")
    assert "was ended" not in title


@pytest.mark.parametrize(("code", "before", "rooted"), [("-9", "", True), ("1", "", False), ("-6", WATCHDOG.format(r=2), False)])
def test_what_the_agent_saw_end_first_is_the_root_only_where_nothing_explains_it(told, code, before, rooted):
    report = told(node0=before + AGENT.format(code=code) + SUMMARY.format(code=code))
    assert report.verdict.state == "dead"
    assert (report.root.finding == "worker-process-died" and report.root.rank == 10) is rooted


def test_out_of_memory_of_a_plain_job_is_told_with_its_rank(told):
    line = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.11 GiB of which 1.20 GiB is free.\n"
    report = told(node0=line)
    assert (report.root.finding, report.root.rank) == ("gpu-oom", 5)
    assert "went on" not in report.findings[0].title


def test_a_prefix_without_its_time_still_tells_the_rank_and_the_end(told):
    report = told(
        node0="[TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "scheduler.py", line 4, in run\n    raise ValueError("x")\nValueError: no such page\n\n'
        "[TP0] Received sigquit from a child process. It usually means the child failed.\n"
    )
    assert report.verdict.state == "dead" and report.root.rank == 3
    assert not any("None" in f.title for f in report.findings)


def test_an_error_of_reading_from_a_peer_is_a_loss_of_the_peer(told):
    report = told(
        node0="[2026-09-01 10:00:00 TP6] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "common.py", line 1, in broadcast_pyobj\n    work.wait()\n'
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [192.0.2.9]:4711: Connection timed out\n"
    )
    assert report.root.finding is None and "symptom-peer-loss" in ids(report)


@pytest.mark.parametrize(("status", "lost"), [(12, True), (4, False), (10, False)])
def test_a_failed_completion_is_a_lost_peer_only_where_it_says_so(told, status, lost):
    line = f"n7:11:12 [1] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 192.0.2.9<1> with status={status} opcode=0 len=0 vendor err 1 (Send)\n"
    title = next(f.title for f in told(node0=line).findings if f.id == "symptom-nccl-remote-error")
    assert ("lost a remote peer" in title) is lost


def test_a_segment_that_cuda_refused_does_not_fill_shared_memory(told):
    text = "[1] misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'\n\n[1] misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab (size 9637888)\n"
    assert "shm-exhausted" not in ids(told(node0=text))


def test_an_error_of_the_c_runtime_and_mpi_abort_end_the_engine(told):
    text = (
        "[TensorRT-LLM][ERROR] Encountered an error in forward function: [TensorRT-LLM][ERROR] CUDA runtime error in cudaStreamSynchronize(s): "
        "an illegal memory access was encountered (cudaStream.h:1)\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    )
    report = told(node0=text)
    assert report.verdict.state == "dead" and report.root.finding == "cuda-illegal-access"


class TestKernel:
    def test_a_task_that_waits_in_the_kernel_is_told_and_the_host_not_called_stable(self, told):
        stack = "[  +0.000049] task:python3         state:D stack:    0 pid:77 ppid:7 flags:0x2\n[  +0.000001] Call Trace:\n[  +0.000001]  uvm_ioctl+0x1/0x2 [nvidia_uvm]\n"
        found = ids(told(node0_kernel=stack))
        assert found["kernel-task-blocked"] is FindingRole.AMPLIFIER and "host-stable" not in found

    def test_lines_torn_by_the_copy_are_put_together(self, told):
        torn = "kernel: Memory cgroup out of memory:\n  Killed process 77 (python3) total-vm:1kB, anon-rss:2kB\nNVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]\n(0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359\n"
        found = ids(told(node0_kernel=torn))
        assert {"driver-alloc-failure", "memory-exhaustion"} & found.keys() >= {"driver-alloc-failure"}

    def test_a_fault_without_a_time_is_not_the_root_of_an_engine_of_another_time(self, told):
        kernel = "[93297.027938] NVRM: Xid (PCI:0000:43:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x1=0x2\n"
        engine = '[2026-09-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File "a.py", line 1, in b\nKeyError: 3\n'
        report = told(node0=engine, node0_kernel=kernel)
        assert report.root.finding == "worker-exception-fatal" and ids(report)["gpu-xid"] is FindingRole.CONTEXT

    def test_a_fault_of_a_desktop_is_no_root(self, told):
        line = "Sep 01 10:00:00 node0 kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=plasmashell, channel 0x2, MMU Fault: ENGINE GRAPHICS faulted @ 0x0\n"
        assert told(node0_kernel=line).root.finding is None

    def test_what_the_driver_says_of_a_fault_before_is_heard(self, told):
        line = "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=77, name=python3, Ch 00000001 caused by previous Xid 149\n"
        assert told(node0_kernel=line).root.finding == "gpu-nvlink-fault"

    def test_a_fault_whose_address_was_blackened_is_a_fault(self, told):
        assert "host-stable" not in ids(told(node0_kernel="kernel: NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)\n"))

    def test_messages_to_all_terminals_and_indented_blocks(self, told):
        text = "Message from syslogd@n at Dec 10 05:25:44 ...\n kernel:[55716.328117] watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [node:1984]\n"
        assert "kernel-lockup" in ids(told(node0_kernel=text))
        report = told(node0_kernel="        [ 5300.237965] Kernel panic - not syncing: softlockup: hung tasks\n")
        assert report.root.finding == "kernel-panic"


def test_actors_that_several_raylets_miss_at_once_or_that_a_program_ended_are_no_root(told):
    died = (
        "2026-05-31 02:32:02,23{n}\tWARNING worker.py:1 -- A worker died or was killed while executing a task by an unexpected system error. "
        "RayTask ID: a Worker ID: b Node ID: c Worker IP address: 192.0.2.{n} Worker port: 1 Worker PID: 34{n} Worker exit type: SYSTEM_ERROR x\n"
    )
    report = told(node0="".join(died.format(n=n) for n in (1, 2)))
    assert "ray-actor-died" in ids(report) and report.root.finding is None
    killed = "(H pid=9) ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n(H pid=9)     pid: 7\n(H pid=9)     ip: 192.0.2.3\n(H pid=9) The actor is dead because it was killed by `ray.kill`.\n"
    assert told(node0=killed).root.finding is None


def test_a_worker_that_ended_before_it_was_ready_did_not_end_while_the_engine_was_up(told):
    text = (
        "2026-07-18T10:12:20.1Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0\n"
        "2026-07-18T10:12:35.0Z ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 4 rank=0\n"
        "2026-07-18T10:12:35.1Z ERROR text_generation_launcher: Shard 0 failed to start\n"
    )
    report = told(node0=text)
    assert report.root.rank == 0 and not any("while the engine was up" in f.title for f in report.findings)


def test_what_the_platform_did_is_told_where_no_engine_was_heard(told):
    evicted = "4m11s       Warning   Evicted               pod/llm-0    The node was low on resource: memory.\n"
    unwell = (
        "  Warning  Unhealthy   25m (x3 over 25m)  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404\n"
        "  Normal   Killing     25m                kubelet  Container llm failed liveness probe, will be restarted\n"
    )
    assert ids(told(events=evicted))["pod-evicted"] is FindingRole.CONTEXT
    assert "container-restarted" in ids(told(events=unwell))


@pytest.mark.parametrize(
    ("reason", "heard"), [("Failed due to an unknown reason from another rank", True), ("Aborted by AbortReq.", False)]
)
def test_a_request_without_its_blocks_is_mentioned_and_nobody_blamed(told, reason, heard):
    line = f"[2026-09-01 10:00:0{{n}} TP1] Decode transfer failed for request rank=1 rid='a' room=7 with exception KVTransferError(bootstrap_room=7): {reason}\n"
    report = told(decode0=line.format(n=1) + line.format(n=2))
    assert any(f.id == "kv-transfer-peer-gone" for f in report.findings) is heard and report.root.finding is None


def test_what_ranks_said_below_an_answer_of_ras_is_read_too(told):
    ras = (
        "NCCL version 2.26.2 compiled with CUDA 12.4\nCUDA runtime version 12040, driver version 12040\n\nJob summary\n===========\n\n"
        "Communicators... (0.01s)\n=============\n\n    0         1         2         4         8         8   RUNNING      OK\n\nErrors\n======\n\n"
    )
    assert told(node0=ras + WATCHDOG.format(r=6)).verdict.state == "stalled"


def test_no_crash_is_not_told_of_a_log_that_ends_in_exhausted_memory(told):
    line = "2026-09-01 10:00:00 [rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.11 GiB of which 1.20 GiB is free.\n"
    assert "no-crash-found" not in ids(told(node0=line))
