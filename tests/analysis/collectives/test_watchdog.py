"""torch's watchdogs: when the wait began, that the one who reports is a victim, and who is behind."""

from __future__ import annotations

import pytest

from tests.analysis.collectives.lines import clock, dump_signal, gave_up, glog, place, serving, start, status, vllm


def seconds(ns: int) -> float:
    """Of the day: lines without a year are put near today."""
    return ns / 1e9 % 86400


def at(text: str) -> float:
    when = clock(text)
    return when.hour * 3600 + when.minute * 60 + when.second


def test_a_watchdog_timeout_began_when_the_operation_did_and_names_no_culprit(read):
    told = read(node0=["2026-03-14 10:00:00,000 INFO trainer: start", gave_up(1, "12:10:00"), gave_up(3, "12:10:00")])
    found = told.by_id["nccl-watchdog-timeout"]
    assert found.grade.value == "established" and found.role.value == "cascade"
    assert abs(seconds(found.since.earliest_ns) - at("12:00:00")) < 2
    assert found.ranks == (1, 3)
    assert "waits for another" in found.does_not_show
    assert told.root[1] is None


@pytest.mark.parametrize(
    "line",
    [
        "[E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64088, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800251 milliseconds before timing out.",
        "[rank2]:[E314 12:10:00.118859045 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=8, NumelOut=64, Timeout(ms)=600000) ran for 600071 milliseconds before timing out.",
        "(Worker_TP1 pid=77) [rank1]:[E314 12:10:00.118859045 ProcessGroupNCCL.cpp:682] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.",
        "what():  [PG ID 2 PG GUID 3 Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=RECV, NumelIn=8, NumelOut=8, Timeout(ms)=300000) ran for 300091 milliseconds before timing out.",
    ],
)
def test_every_version_of_the_line_is_known(read, line):
    told = read(node0=["2026-03-14 10:00:00 INFO start", line])
    assert told.grade("nccl-watchdog-timeout") == "established"
    assert told.grade("rank-behind-in-collective") is None


def test_the_rank_that_had_enqueued_less_is_behind_and_the_first_to_report_is_not(read):
    told = read(
        node0=[
            gave_up(2, "12:10:00"), status(2, "12:10:00"), gave_up(0, "12:10:01"), status(0, "12:10:01"),
            gave_up(3, "12:10:01"), status(3, "12:10:01"), dump_signal(1, "12:10:02", 2, 40, 40),
        ]
    )  # fmt: skip
    found = told.by_id["rank-behind-in-collective"]
    assert found.ranks == (1,)
    assert found.grade.value == "supported", "whether there are more than four ranks is not known"
    assert abs(seconds(found.since.earliest_ns) - at("12:00:00")) < 3
    assert told.root == ("rank-behind-in-collective", 1)


def test_with_every_rank_of_the_world_counted_it_is_established(read):
    places = [place(f"Worker_TP{r}", 70 + r, "11:00:00", r, 3, r) for r in range(3)]
    lines = [t for r in (0, 2) for t in (gave_up(r, "12:10:00"), status(r, "12:10:00"))]
    told = read(node0=[*places, *lines, dump_signal(1, "12:10:01", 0, 40, 40)])
    assert told.grade("rank-behind-in-collective") == "established"
    assert told.root == ("rank-behind-in-collective", 1)


def test_ranks_that_stand_level_name_nobody(read):
    lines = [t for r in range(4) for t in (gave_up(r, "12:10:00"), status(r, "12:10:00"))]
    told = read(node0=lines)
    assert told.grade("nccl-watchdog-timeout") == "established"
    assert told.grade("rank-behind-in-collective") is None
    assert told.grade("rank-divergence-collective") is None
    assert told.root == (None, None)


def test_counts_of_a_group_with_send_and_receive_say_nothing(read):
    lines = []
    for rank, count in ((0, 12), (1, 24), (2, 24), (3, 11)):
        lines += [gave_up(rank, "12:10:00", seq=count, op="RECV"), status(rank, "12:10:00", seq=count, enqueued=count, completed=count - 1)]
    told = read(node0=lines)
    assert told.grade("rank-behind-in-collective") is None


def test_the_monitor_s_counts_of_another_group_are_not_compared(read):
    told = read(
        node0=[
            gave_up(0, "12:10:00"), status(0, "12:10:00", group="PG ID 2 PG GUID 7"),
            gave_up(2, "12:10:00"), status(2, "12:10:00", group="PG ID 2 PG GUID 7"),
            dump_signal(1, "12:10:01", 0, 3, 3), dump_signal(3, "12:10:01", 0, 3, 3),
        ]
    )  # fmt: skip
    assert told.grade("rank-behind-in-collective") is None


def test_the_one_that_alone_says_nothing_is_possible_at_most(read):
    lines = [glog(r, "11:00:00", "something of its own", "W") for r in range(4)]
    told = read(node0=[*lines, *(gave_up(r, "12:10:00") for r in (0, 1, 3))])
    assert told.grade("rank-behind-in-collective") in (None, "possible")
    assert told.root == (None, None)


def test_different_operations_of_one_number_in_one_group_are_a_divergence(read):
    told = read(
        node0=[
            gave_up(0, "12:10:00", op="BROADCAST"), status(0, "12:10:00"),
            gave_up(1, "12:10:00", op="ALLREDUCE"), status(1, "12:10:00"),
        ]
    )  # fmt: skip
    assert told.grade("rank-divergence-collective") == "established"
    assert told.root[1] is None


def test_different_operations_without_a_group_are_possible_only(read):
    told = read(node0=[gave_up(0, "12:10:00", op="BROADCAST"), gave_up(1, "12:10:00", op="ALLREDUCE")])
    assert told.grade("rank-divergence-collective") == "possible"


def test_unequal_sizes_of_one_all_reduce_are_a_divergence(read):
    told = read(
        node0=[
            gave_up(0, "12:10:00", numel=4096), status(0, "12:10:00"),
            gave_up(1, "12:10:00", numel=2048), status(1, "12:10:00"),
        ]
    )  # fmt: skip
    assert told.grade("rank-divergence-collective") == "established"


def test_torch_s_own_comparison_establishes_it(read):
    told = read(
        node0=[
            "2026-03-14 12:00:00 ERROR trainer: failed",
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=21, OpType=BROADCAST, TensorShape=[1]), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=21, OpType=ALLREDUCE, TensorShape=[1]).Collectives differ in the following aspects: \t Op type: BROADCASTvs ALLREDUCE",
        ]
    )
    assert told.grade("rank-divergence-collective") == "established"


def test_a_monitored_barrier_names_who_did_not_come(read):
    told = read(
        node0=["2026-03-14 12:00:00 ERROR trainer: x", "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms"]
    )
    found = told.by_id["rank-behind-in-collective"]
    assert (found.grade.value, found.ranks) == ("established", (2,))


def test_a_desync_report_is_torch_s_belief(read):
    told = read(
        node0=[
            gave_up(1, "12:10:00"),
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
            "\t     [0] finished collective #40, but didn't join collective #41 (count from 1)",
        ]
    )
    found = told.by_id["rank-behind-in-collective"]
    assert (found.grade.value, found.ranks) == ("supported", (0,))


def test_a_stuck_watchdog_began_its_limit_earlier(read):
    told = read(
        node0=[
            glog(
                3,
                "12:08:00",
                "[PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang",
            ),
            glog(
                3,
                "12:08:10",
                "[PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
                "F",
            ),
        ]
    )
    found = told.by_id["heartbeat-monitor-abort"]
    assert found.grade.value == "established" and found.role.value == "cascade"
    assert abs(seconds(found.since.earliest_ns) - at("12:00:00")) < 2
    assert told.root == (None, None)


def test_a_plain_shutdown_is_no_lost_peer(read):
    line = '[PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'
    told = read(
        node0=[
            *start("11:50:00"), "(APIServer pid=1) INFO:     Application startup complete.", serving("11:59:00"), serving("11:59:10"),
            vllm("EngineCore", 41, "12:00:00", "Shutdown initiated (timeout=0)"), *(glog(1, f"12:00:0{s}", line, "W") for s in range(1, 5)),
        ]
    )  # fmt: skip
    assert told.grade("symptom-peer-loss") is None
    assert "engine-died" not in told.established


def test_lost_peers_are_symptoms_with_their_began(read):
    told = read(
        node0=[
            "2026-03-14 12:30:00 ERROR trainer: failed",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        ],
        node1=[
            "2026-03-14 12:30:01 ERROR trainer: failed",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [192.0.2.7]:52111",
        ],
    )
    losses = [f for f in told.report.findings if f.id == "symptom-peer-loss"]
    assert losses and all(f.role.value != "root" for f in losses)
    assert min(abs(seconds(f.since.earliest_ns) - at("12:00:00")) for f in losses if f.since) < 3


def test_nccl_s_remote_errors_are_symptoms(read):
    told = read(
        node0=[
            "2026-03-14 12:00:00 INFO start",
            "[2026-03-14 12:04:00] node0:811:1034 [2] transport/net_ib.cc:2358 NCCL WARN NET/IB: Got completion from peer 192.0.2.9<55921> with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::ffff:192.0.2.4 remoteGids::ffff:192.0.2.9 hca mlx5_3",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        ]
    )
    assert told.grade("symptom-nccl-remote-error") == "established"
    assert told.by_id["symptom-nccl-remote-error"].role.value == "cascade"
    assert told.grade("fabric-fault") in (None, "possible")
    assert told.root == (None, None)


def test_ray_s_channel_timeout_began_its_limit_earlier(read):
    told = read(
        node0=[
            *start("11:00:00"), "(APIServer pid=1) INFO:     Application startup complete.", serving("11:59:50"),
            vllm("EngineCore", 41, "12:05:00", "EngineCore encountered a fatal error.", "ERROR"),
            vllm("EngineCore", 41, "12:05:00", "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read. ObjectID: 00cc", "ERROR"),
        ]
    )  # fmt: skip
    found = told.by_id["symptom-ray-channel-timeout"]
    assert found.grade.value == "established"
    assert abs(seconds(found.since.earliest_ns) - at("12:00:00")) < 2


def test_advice_and_source_lines_are_not_incidents(read):
    told = read(
        node0=[
            *start("11:00:00"), "(APIServer pid=1) INFO:     Application startup complete.",
            vllm("EngineCore", 41, "11:30:00", "set TORCH_NCCL_ASYNC_ERROR_HANDLING=1 to let the watchdog abort collectives that time out"),
            "[rank0]:[W314 11:30:01.656957424 ProcessGroupNCCL.cpp:5188] Guessing device ID based on global rank. This can cause a hang if rank to GPU mapping is heterogeneous.",
            "[rank0]:[W314 11:30:01.656957424 socket.cpp:764] [c10d] The client socket has failed to connect to [localhost]:33649 (errno: 99 - Cannot assign requested address).",
            serving("11:31:00"), serving("11:31:10"), serving("11:31:20"),
        ]
    )  # fmt: skip
    assert told.state == "healthy"
    assert not [f.id for f in told.report.findings if f.role.value in ("root", "cascade")]


def test_who_entered_the_collective_that_all_wait_in_is_not_behind_though_it_enqueued_less(read):
    lines = []
    for rank, enqueued in ((0, 43), (1, 41), (2, 43), (3, 42)):
        lines += [gave_up(rank, "12:10:00"), status(rank, "12:10:00", enqueued=enqueued)]
    told = read(node0=lines)
    assert told.grade("rank-behind-in-collective") is None
    assert told.root == (None, None)
