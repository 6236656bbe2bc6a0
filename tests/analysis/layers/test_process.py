"""Shared memory, descriptors, IPC objects, native crashes, containers, interposed libraries."""

from __future__ import annotations

import pytest

from tests.analysis.layers.folder import Node, kernel

ENOSPC = [
    "n1:501:905 [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab12 (size 33030528), error: No space left on device (28)",
    "RuntimeError: unable to write to file </torch_501_2473652340_0>: No space left on device (28)",
    "OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_501_0'",
    "OSError: [Errno 28] No space left on device: '/psm_21467_46075'",
]
DF = "Filesystem      Size  Used Avail Use% Mounted on\ntmpfs           4.0G  {used}  {free} {share} /dev/shm\n"
LS = "total 4.0G\n" + "".join(f"-rw------- 1 root root {{size}} {{day}} 0{i}:12 nccl-x{i}\n" for i in range(1, 9))
POD = "restartCount: {n}\nstartedAt: 2026-04-07T08:59:40Z\npodCreated: 2026-04-01T04:20:00Z\n"


def failing(line: str, at: float = 30) -> Node:
    node = Node()
    node.lines = node.lines[:-2]  # never ready
    node.say(at, "Worker_TP0", 501, "ERROR", "WorkerProc failed to start.", "multiproc_executor.py:600")
    node.lines.insert(-1, line)
    return node


@pytest.mark.parametrize("line", ENOSPC)
def test_shared_memory_that_is_full(told, line):
    t = told(n1__log=failing(line))
    assert t.grade("shm-exhausted") == "established"
    assert not {"gpu-oom", "host-oom-kill", "shm-leak-across-restarts"} & set(t.by_id)


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: '/root/.cache/vllm/torch_compile_cache/x.py'",
        "OSError: [Errno 28] No space left on device",
        "n1:501:905 [0] NCCL INFO Allocated 33030528 bytes of shared memory in /dev/shm/nccl-Ab12",
    ],
)
def test_a_full_disk_is_not_shared_memory(told, line):
    assert "shm-exhausted" not in told(n1__log=failing(line)).by_id


def test_leftovers_of_earlier_starts_are_the_root(told):
    t = told(
        n1__log=failing(ENOSPC[0]),
        n1__df_txt=DF.format(used="4.0G", free="0", share="100%"),
        n1__devshm_txt=LS.format(size="400M", day="Apr  3"),
        n1__pod_txt=POD.format(n=12),
    )
    assert t.grade("shm-exhausted") == "established"
    assert t.grade("shm-leak-across-restarts") == "established"
    assert t.report.root.finding == "shm-leak-across-restarts" and t.report.root.node == "n1"
    assert t.grade("container-restarted") == "established"
    assert t.report.first_event is not None and t.report.first_event.at.earliest_ns < t.by_id["shm-exhausted"].since.earliest_ns


def test_segments_of_the_present_start_are_no_leak(told):
    t = told(
        n1__log=failing(ENOSPC[0]),
        n1__df_txt=DF.format(used="4.0G", free="0", share="100%"),
        n1__devshm_txt=LS.format(size="400M", day="Apr  7").replace(" 01:12", " 09:01").replace("0", "0"),
        n1__pod_txt=POD.format(n=0),
    )
    assert t.grade("shm-exhausted") == "established"
    assert "shm-leak-across-restarts" not in t.by_id


def test_small_leftovers_did_not_fill_it(told):
    node = Node()
    node.stats(70, 900)
    t = told(
        n1__log=node,
        n1__df_txt=DF.format(used="0.1G", free="3.9G", share="2%"),
        n1__devshm_txt=LS.format(size="1M", day="Apr  3"),
        n1__pod_txt=POD.format(n=2),
    )
    assert "shm-exhausted" not in t.by_id
    assert t.by_id["shm-leak-across-restarts"].role.value == "context"
    assert t.report.root.finding is None and t.state == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "zmq.error.ZMQError: Too many open files",
        "OSError: [Errno 24] Too many open files",
        "RuntimeError: unable to open shared memory object </torch_2210_11> in read-write mode: Too many open files (24)",
    ],
)
def test_descriptors_that_ran_out(told, line):
    node = Node()
    node.stats(70, 600)
    node.say(605, "EngineCore", 500, "ERROR", line)
    node.fatal(605)
    t = told(n1__log=node)
    assert t.grade("fd-exhausted") == "established"
    assert "shm-exhausted" not in t.by_id


def test_a_warning_about_a_low_limit_is_no_exhaustion(told):
    node = Node()
    advice = "Found ulimit of 1024 and failed to automatically increase with error cannot set. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n"
    node.say(2, "APIServer", 1, "WARNING", advice)
    node.stats(70, 600)
    assert "fd-exhausted" not in told(n1__log=node).by_id


SEMLOCK = """Traceback (most recent call last):
  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/usr/lib/python3.12/multiprocessing/synchronize.py", line 115, in __setstate__
    self._semlock = _multiprocessing.SemLock._rebuild(*state)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
FileNotFoundError: [Errno 2] No such file or directory"""


def test_semaphores_that_were_removed(told):
    t = told(n1__log=failing(SEMLOCK))
    assert t.grade("ipc-objects-removed") == "established"
    assert "logind" in t.by_id["ipc-objects-removed"].does_not_show


def test_a_missing_file_is_no_missing_semaphore(told):
    t = told(n1__log=failing(SEMLOCK.replace("_multiprocessing.SemLock._rebuild(*state)", "open(path)").replace("synchronize", "config")))
    assert "ipc-objects-removed" not in t.by_id


@pytest.mark.parametrize(
    ("line", "status", "id"),
    [
        ("!!!!!!! Segfault encountered !!!!!!!", "-11", "sigsegv"),
        ("Fatal Python error: Segmentation fault", "None", "sigsegv"),
        ("", "-11", "sigsegv"),
        ("Fatal Python error: Bus error", "-7", "native-crash"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "-6", "native-crash"),
    ],
)
def test_crashes_in_machine_code(told, line, status, id):
    node = Node()
    node.stats(70, 600)
    if line:
        node.raw(line)
    node.worker_died(605, 3, status)
    t = told(n1__log=node)
    assert t.grade(id) == "established"
    assert t.report.root.rank == 3
    assert "host-oom-kill" not in t.by_id


def test_a_segfault_in_the_kernel_log_names_rank_and_library(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(606, 2)
    line = "VLLM::Worker_TP[503]: segfault at 10 ip 00007f2a4c0d1b2c sp 00007ffc9a0d1b20 error 4 in libtorch_cuda.so[7f2a40000000+2d000000]"
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (605, line)))
    assert t.root == ("sigsegv", 2)
    assert "libtorch_cuda.so" in t.by_id["sigsegv"].title


def test_a_segfault_of_another_program_is_not_ours(told):
    node = Node()
    node.stats(70, 1500)
    line = "node_exporter[8812]: segfault at 10 ip 00007f2a4c0d1b2c sp 00007ffc9a0d1b20 error 4 in node_exporter[400000+1000]"
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (605, line)))
    assert "sigsegv" not in t.by_id and t.state == "healthy"


def test_the_abort_of_a_watchdog_is_a_consequence(told):
    node = Node()
    node.stats(70, 600)
    text = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
    node.raw(f"[rank1]:[E407 09:20:02.656957424 ProcessGroupNCCL.cpp:607] {text}")
    node.raw("terminate called after throwing an instance of 'c10::DistBackendError'")
    node.worker_died(1205, 1, "-6")
    t = told(n1__log=node)
    assert t.by_id["native-crash"].role.value in ("teardown", "cascade")
    assert t.report.root.finding != "native-crash"


def gdb(library: str, call: str = "cuMemCreate") -> str:
    return (
        "# captured_at 2026-04-07T09:03:00Z host n1\n"
        'Thread 1 (LWP 501) "python3":\n'
        "#0  __lll_lock_wait () from libc.so.6\n"
        "#1  pthread_mutex_lock () from libc.so.6\n"
        f"#2  {call} () from {library}\n"
        "#3  ncclCuMemHostEnable() () from libnccl.so.2\n"
        "#4  ncclCommInitRank () from libnccl.so.2\n"
    )


def starting() -> Node:
    node = Node()
    node.lines = node.lines[:-2]
    node.say(20, "Worker_TP0", 501, "INFO", "vLLM is using nccl==2.27.3", "pynccl.py:113")
    for at in range(30, 400, 10):
        node.say(at, "APIServer", 1, "DEBUG", "Waiting for 1 local, 0 remote core engine proc(s) to start.", "utils.py:950")
    return node


@pytest.mark.parametrize("library", ["/usr/local/vgpu/libvgpu.so", "/opt/share/libcuda_share.so"])
def test_a_library_between_nccl_and_the_driver(told, library):
    t = told(
        n1__log=starting(),
        pid501__gdb_txt=gdb(library),
        n1__maps_txt=f"7f00-7f01 r-xp 00000000 08:01 99 {library}\n7f02-7f03 r-xp 00000000 08:01 98 /usr/lib/libnccl.so.2\n",
        n1__env_txt=f"LD_PRELOAD={library}\nHOME=/root\n",
    )
    assert t.grade("interposed-cuda-library") == "established"
    assert t.grade("interposer-deadlock") == "supported"
    assert t.report.root.rank is None
    assert "fabric-fault" not in t.by_id


def test_an_allocator_that_is_preloaded_is_no_interposer(told):
    node = Node()
    node.stats(70, 600)
    t = told(
        n1__log=node,
        n1__maps_txt="7f00-7f01 r-xp 00000000 08:01 99 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2\n7f02-7f03 r-xp 00000000 08:01 98 /usr/lib/libcuda.so.1\n",
        n1__env_txt="LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2\nHOME=/root\n",
    )
    assert not {"interposed-cuda-library", "interposer-deadlock"} & set(t.by_id)


def test_a_thread_in_the_driver_itself_is_no_interposer(told):
    t = told(
        n1__log=starting(),
        pid501__gdb_txt=gdb("/usr/lib/libcuda.so.1"),
        n1__maps_txt="7f00-7f01 r-xp 00000000 08:01 99 /usr/lib/libcuda.so.1\n",
    )
    assert not {"interposed-cuda-library", "interposer-deadlock"} & set(t.by_id)


def test_an_interposer_in_a_healthy_engine_is_a_circumstance(told):
    node = Node()
    node.stats(70, 900)
    t = told(
        n1__log=node,
        n1__maps_txt="7f00-7f01 r-xp 00000000 08:01 99 /usr/local/vgpu/libvgpu.so\n",
        n1__env_txt="LD_PRELOAD=/usr/local/vgpu/libvgpu.so\nHOME=/root\n",
    )
    assert t.by_id["interposed-cuda-library"].role.value == "context"
    assert t.report.root.finding is None and t.state == "healthy"


def test_a_container_that_was_killed_for_memory(told):
    pod = """Name:         n1
Containers:
  vllm:
    State:          Running
      Started:      Tue, 07 Apr 2026 09:20:00 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Tue, 07 Apr 2026 09:00:00 +0000
      Finished:     Tue, 07 Apr 2026 09:15:02 +0000
    Restart Count:  1
"""
    node = Node()
    node.stats(70, 900)
    node.start(1200)
    node.stats(1270, 1500)
    t = told(n1__log=node, n1__pod_txt=pod)
    assert t.grade("host-oom-kill") == "supported"
    assert t.grade("container-restarted") == "established"
    assert t.state == "healthy"


@pytest.mark.parametrize(
    ("line", "who", "id"),
    [
        (
            "traps: VLLM::Worker_TP[503] general protection fault ip:7f2a4c0d1b2c sp:7ffc9a0d1b20 error:0 in libc.so.6[7f2a4c000000+195000]",
            "kernel",
            "sigsegv",
        ),
        (
            "traps: VLLM::Worker_TP[503] trap invalid opcode ip:7f2a4c0d1b2c sp:7ffc9a0d1b20 error:0 in libnccl.so.2[7f2a40000000+9000000]",
            "kernel",
            "native-crash",
        ),
        (
            'audit: type=1701 audit(1756720800.123:91): auid=4294967295 uid=0 gid=0 ses=4294967295 pid=503 comm="VLLM::Worker_TP" exe="/usr/bin/python3.12" sig=6 res=1',
            "kernel",
            "native-crash",
        ),
        (
            'audit: type=1701 audit(1756720800.123:91): auid=4294967295 uid=0 gid=0 ses=4294967295 pid=503 comm="VLLM::Worker_TP" exe="/usr/bin/python3.12" sig=11 res=1',
            "kernel",
            "sigsegv",
        ),
        ("Process 503 (VLLM::Worker_TP) of user 0 dumped core.", "systemd-coredump[9120]", "native-crash"),
    ],
)
def test_what_the_machine_says_of_a_crash(told, line, who, id):
    node = Node()
    node.stats(70, 600)
    node.worker_died(606, 2)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (0, "eth0: renamed")) + kernel("n1", (605, line), who=who))
    assert t.root == (id, 2)
    assert t.grade(id) == "established"
    assert not ({"sigsegv", "native-crash"} - {id}) & set(t.by_id), "one crash has one name"


def test_the_core_of_a_segfault_is_told_with_it(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(606, 2, "-11")
    fault = (
        "VLLM::Worker_TP[503]: segfault at 10 ip 00007f2a4c0d1b2c sp 00007ffc9a0d1b20 error 4 in libtorch_cuda.so[7f2a40000000+2d000000]"
    )
    core = kernel("n1", (606, "Process 503 (VLLM::Worker_TP) of user 0 dumped core."), who="systemd-coredump[9120]")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (605, fault)) + core)
    assert t.root == ("sigsegv", 2) and "native-crash" not in t.by_id
