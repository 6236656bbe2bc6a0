"""Starts that do not come together: who did not come, what hangs, what is taken, and what is no trouble at all."""

from __future__ import annotations

import pytest

from tests.analysis.collectives.lines import gave_up, glog, place, ready, serving, start, vllm

REMOTE = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {k}/{n} clients joined."


def failed_start(node_rank: int, world: int, each: int, joined: int, at: str = "12:10:01") -> list[str]:
    first = node_rank * each
    lines = [place(f"Worker_TP{r}", 100 + r, "12:00:00", r, world, r - first) for r in range(first, first + each)]
    who = (f"Worker_TP{first}", 100 + first)
    lines.append(vllm(*who, at, "WorkerProc failed to start.", "ERROR", "multiproc_executor.py:944"))
    lines.append(vllm(*who, at, REMOTE.format(k=joined, n=world), "ERROR", "multiproc_executor.py:944"))
    return lines


def missing_logs(told) -> set[str]:
    return {f.id for f in told.report.findings if f.id.startswith("evidence-missing:log/")}


@pytest.mark.parametrize(
    ("each", "nodes", "seen", "absent"), [(8, 2, (0,), {1}), (4, 3, (0, 1), {2}), (4, 3, (0,), {1, 2}), (2, 4, (0, 2), {1, 3})]
)
def test_the_nodes_whose_ranks_did_not_come_are_named_by_their_numbers(read, each, nodes, seen, absent):
    world = each * nodes
    told = read(**{f"node{n}": failed_start(n, world, each, each * len(seen)) for n in seen})
    assert told.grade("rendezvous-peer-missing") == "established"
    assert missing_logs(told) == {f"evidence-missing:log/node{n}" for n in absent}
    assert told.root[1] is None
    assert told.grade("startup-in-progress") != "established"
    worker = told.by_id.get("worker-start-failed")
    assert worker is None or worker.role.value == "cascade"


def test_nodes_numbered_from_one(read):
    told = read(node1=failed_start(0, 4, 2, 2))
    assert missing_logs(told) == {"evidence-missing:log/node2"}


def test_a_follower_s_log_alone_says_that_the_head_s_is_missing(read):
    told = read(
        node1=[
            *(place(f"Worker_TP{r}", 100 + r, "12:00:00", r, 4, r - 2) for r in (2, 3)),
            vllm("Worker_TP2", 102, "12:10:00", "WorkerProc failed to start.", "ERROR"),
            vllm("Worker_TP2", 102, "12:10:00", "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (192.0.2.1, 29501).", "ERROR"),
        ]
    )  # fmt: skip
    assert told.grade("rendezvous-peer-missing") == "supported"
    assert missing_logs(told) == {"evidence-missing:log/node0"}
    assert "192.0.2.1" in told.by_id["rendezvous-peer-missing"].title


def test_a_node_with_a_name_of_its_own_is_not_invented(read):
    told = read(alpha=failed_start(0, 4, 2, 2))
    assert missing_logs(told) == {"evidence-missing:log/unseen-node"}


def test_where_every_node_s_log_is_given_none_is_missing(read):
    told = read(node0=failed_start(0, 4, 2, 3), node1=[place(f"Worker_TP{r}", 100 + r, "12:00:00", r, 4, r - 2) for r in (2, 3)])
    assert told.grade("rendezvous-peer-missing") == "established"
    assert not missing_logs(told)


@pytest.mark.parametrize(
    ("line", "grade"),
    [
        ("torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//2//cpu//0/2", "supported"),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)", "established"),
        ("TimeoutError: The client socket has timed out after 900s while trying to connect to (node0, 29500).", "supported"),
        ("torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//1//cuda//0. This may indicate a possible application crash on rank 0 or a network set up issue.", "supported"),
        ("RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", "supported"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "supported"),
    ],
)  # fmt: skip
def test_every_way_to_wait_in_vain(read, line, grade):
    told = read(node0=["2026-03-14 12:10:00,123 ERROR launcher: giving up", line, glog(0, "12:10:01", "ending", "W")])
    assert told.grade("rendezvous-peer-missing") == grade
    assert told.root[1] is None


def test_a_client_that_still_tries_is_no_failure(read):
    told = read(
        node0=[
            *start("11:59:00"),
            *(glog(0, f"11:59:0{s}", "[c10d] The client socket has failed to connect to [node0]:29500 (errno: 111 - Connection refused).", "W", "socket.cpp:764") for s in range(1, 5)),
            *ready("12:00:00"), serving("12:00:10"), serving("12:00:20"), serving("12:00:30"),
        ]
    )  # fmt: skip
    assert told.grade("rendezvous-peer-missing") is None
    assert told.state == "healthy"


# ---- communicators


def nccl(rank: int, world: int, text: str, pid: int = 500, host: str = "node0", id: str = "0xabc1") -> str:
    return f"{host}:{pid + rank}:{pid + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x55703115d1f{rank} rank {rank} nranks {world} cudaDev {rank} nvmlDev {rank} busId {rank}1000 commId {id} - {text}"


def waiting(at: str, until: int, step: int = 10) -> list[str]:
    from tests.analysis.collectives.lines import clock

    return [
        vllm(
            "APIServer",
            1,
            f"{clock(at, s):%H:%M:%S}",
            "Waiting for 1 local, 0 remote core engine proc(s) to start.",
            "DEBUG",
            "utils.py:950",
        )
        for s in range(step, until, step)
    ]


def workers(world: int, at: str = "12:00:30") -> list[str]:
    return [place("Worker", 500 + r, at, r, world, r) for r in range(world)]


def test_ranks_that_began_a_communicator_and_never_completed_it(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            *(nccl(r, 4, "Init START") for r in range(4)), *waiting("12:00:40", 400),
        ]
    )  # fmt: skip
    found = told.by_id["comm-init-stuck"]
    assert found.grade.value == "established"
    assert found.ranks == (0, 1, 2, 3)
    assert told.root == ("comm-init-stuck", None)
    assert told.grade("startup-in-progress") != "established"


def test_those_that_completed_are_told_from_those_that_did_not(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            *(nccl(r, 4, "Init START") for r in range(4)), nccl(0, 4, "Init COMPLETE"), nccl(2, 4, "Init COMPLETE"), *waiting("12:00:40", 400),
        ]
    )  # fmt: skip
    assert told.by_id["comm-init-stuck"].ranks == (1, 3)


def test_a_rank_that_never_began_is_mentioned(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            *(nccl(r, 4, "Init START") for r in (0, 1, 3)), *waiting("12:00:40", 400),
        ]
    )  # fmt: skip
    assert "of rank 2 no beginning was read" in told.by_id["comm-init-stuck"].title


def test_a_communicator_in_the_making_is_no_hang(read):
    told = read(node0=[*start("12:00:00", 4), *workers(4), *(nccl(r, 4, "Init START") for r in range(4)), *waiting("12:00:40", 60)])
    assert told.grade("comm-init-stuck") is None


def test_a_slow_start_that_goes_on_after_its_communicator_is_no_hang(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            vllm("Worker", 500, "12:01:20", "Using FLASH_ATTN backend.", file="cuda.py:424"), *waiting("12:01:20", 600),
        ]
    )  # fmt: skip
    assert told.grade("comm-init-stuck") is None


def test_an_engine_that_serves_has_its_communicators_whatever_line_is_missing(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            *(nccl(r, 4, "Init START") for r in range(4)), *ready("12:03:00"), *(serving(f"12:0{m}:00") for m in range(4, 9)),
        ]
    )  # fmt: skip
    assert told.grade("comm-init-stuck") is None
    assert told.state == "healthy"


def test_silence_after_nccl_was_loaded_is_supported_without_a_stack(read):
    told = read(
        node0=[
            *start("12:00:00", 4), *workers(4), vllm("Worker", 500, "12:00:40", "vLLM is using nccl==2.28.9", file="pynccl.py:113"),
            *waiting("12:00:40", 400),
        ]
    )  # fmt: skip
    assert told.grade("comm-init-stuck") == "supported"


# ---- ports


def test_a_port_of_our_own_that_is_taken_ends_the_start(read):
    told = read(
        node0=[
            *start("12:00:00"), vllm("EngineCore", 41, "12:00:10", "EngineCore failed to start.", "ERROR"),
            vllm("EngineCore", 41, "12:00:10", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29501, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "ERROR"),
        ]
    )  # fmt: skip
    found = told.by_id["address-in-use"]
    assert found.grade.value == "established" and "29501" in found.title
    assert told.grade("nccl-ras-port-taken") is None


@pytest.mark.parametrize(
    "line",
    [
        "zmq.error.ZMQError: Address already in use (addr='tcp://192.0.2.4:5557')",
        "OSError: [Errno 98] Address already in use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    ],
)
def test_other_words_for_a_taken_port(read, line):
    told = read(node0=[*start("12:00:00"), vllm("APIServer", 1, "12:00:05", "binding", "INFO"), line])
    assert told.grade("address-in-use") == "established"


def test_a_port_that_was_tried_and_given_up_for_another_is_nothing(read):
    told = read(
        node0=[
            *start("12:00:00"), "zmq.error.ZMQError: Address already in use (addr='tcp://192.0.2.4:5557')", *ready("12:02:00"),
            serving("12:03:00"), serving("12:03:10"), serving("12:03:20"),
        ]
    )  # fmt: skip
    assert told.grade("address-in-use") is None
    assert told.state == "healthy"


def test_the_port_of_nccl_s_status_service_is_not_the_engine_s(read):
    told = read(
        node0=[
            *start("12:00:00"), "[2026-03-14 12:00:20] node0:77:77 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use",
            "node0:77:77 [0] NCCL INFO RAS failed to establish a client listening socket at localhost:28028",
            *ready("12:02:00"), serving("12:03:00"), serving("12:03:10"), serving("12:03:20"),
        ]
    )  # fmt: skip
    assert told.grade("nccl-ras-port-taken") == "established"
    assert told.grade("address-in-use") is None
    assert told.root == (None, None)


# ---- relaunches


def relaunch(fault: list[str]) -> list[str]:
    return [
        *start("10:00:00"), *ready("10:02:00"), serving("10:03:00"), serving("10:03:10"),
        vllm("EngineCore", 41, "11:00:00", "EngineCore encountered a fatal error.", "ERROR"),
        *start("11:01:00", pid=200), *fault,
        *start("11:20:00", pid=300), *ready("11:22:00", 300), serving("11:23:00", 300), serving("11:23:10", 300), serving("11:23:20", 300),
    ]  # fmt: skip


def test_a_first_relaunch_that_failed_and_a_second_that_worked(read):
    told = read(
        node0=relaunch(
            [
                vllm("Worker", 270, "11:11:01", "WorkerProc failed to start.", "ERROR"),
                vllm("Worker", 270, "11:11:01", REMOTE.format(k=1, n=2), "ERROR"),
            ]
        )
    )
    assert told.grade("rendezvous-race-on-relaunch") == "established"
    assert told.by_id["rendezvous-race-on-relaunch"].role.value == "context"
    assert told.state == "healthy"


def test_a_relaunch_that_failed_for_want_of_memory_is_no_race(read):
    told = read(
        node0=relaunch(
            [
                vllm("Worker", 270, "11:03:01", "WorkerProc failed to start.", "ERROR"),
                vllm("Worker", 270, "11:03:01", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "ERROR"),
            ]
        )
    )
    assert told.grade("rendezvous-race-on-relaunch") is None


def test_a_rank_of_the_run_before_that_still_prints(read):
    told = read(
        node0=[
            *start("10:00:00"), place("Worker_TP0", 70, "10:00:10", 0, 2, 0), place("Worker_TP1", 71, "10:00:10", 1, 2, 1), *ready("10:02:00"),
            serving("10:03:00"), vllm("EngineCore", 41, "11:00:00", "EngineCore encountered a fatal error.", "ERROR"),
            *start("11:01:00", pid=200), place("Worker_TP0", 270, "11:01:10", 0, 2, 0), place("Worker_TP1", 271, "11:01:10", 1, 2, 1),
            vllm("Worker_TP1", 71, "11:06:00", "No available shared memory broadcast block found in 60 seconds.", file="shm_broadcast.py:1"),
        ]
    )  # fmt: skip
    found = told.by_id["orphan-rank-from-previous-run"]
    assert found.grade.value == "established"
    assert found.ranks == (1,)


def test_a_timeout_at_work_is_not_a_rendezvous(read):
    told = read(node0=[gave_up(0, "12:10:00"), gave_up(1, "12:10:00")])
    assert told.grade("rendezvous-peer-missing") is None
    assert told.grade("comm-init-stuck") is None


def test_a_world_of_one_node_lacks_no_other_node(read):
    lines = [
        place("Worker_TP0", 100, "12:00:00", 0, 4, 0, "127.0.0.1:41615"),
        vllm("Worker_TP0", 100, "12:10:01", "WorkerProc failed to start.", "ERROR"),
        vllm("Worker_TP0", 100, "12:10:01", REMOTE.format(k=2, n=4), "ERROR"),
    ]
    told = read(node0=lines)
    assert told.grade("rendezvous-peer-missing") == "established"
    assert not missing_logs(told)


@pytest.mark.parametrize(
    ("file", "grade"),
    [
        ("ras/client_support.cc:160", "established"),
        ("ras/client_support.cc:160 (rasClientInitSocket)", "established"),
        ("misc/socket.cc:322", None),
    ],
)
def test_the_warning_alone_tells_by_its_file_whose_port_it_is(read, file, grade):
    line = f"[2026-03-14 12:00:20] node0:77:77 [0] {file} NCCL WARN Call to bind failed: Address already in use"
    told = read(node0=[*start("12:00:00"), line, *ready("12:02:00"), serving("12:03:00"), serving("12:03:10"), serving("12:03:20")])
    assert told.grade("nccl-ras-port-taken") == grade
    assert told.grade("address-in-use") is None


def test_a_world_of_thousands_is_not_written_out(read):
    lines = [
        place("Worker_TP0", 100, "12:00:00", 0, 60000, 0),
        vllm("Worker_TP0", 100, "12:10:01", "WorkerProc failed to start.", "ERROR"),
        vllm("Worker_TP0", 100, "12:10:01", REMOTE.format(k=1, n=60000), "ERROR"),
    ]
    assert len(missing_logs(read(node0=lines))) <= 1
