from __future__ import annotations

import pytest

from tests.analysis.layers.folder import START, Node, kernel

DOWN, UP = "mlx5_core 0000:ab:00.0 mlx5_4: Port: 1 Link DOWN", "mlx5_core 0000:ab:00.0 mlx5_4: Port: 1 Link ACTIVE"


def event(at_s: float, what: str, device: str = "mlx5_4") -> str:
    from datetime import timedelta

    when = (START + timedelta(seconds=at_s)).strftime("%Y-%m-%d %H:%M:%S")
    return f"[{when}] n1:501:905 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : {device}:1 Got async error event: {what}"


def serving(until: float = 600) -> Node:
    node = Node()
    node.stats(70, until)
    return node


def test_a_port_that_stays_down_is_the_root(told):
    node = serving()
    node.raw(event(602, "port error"))
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (602, DOWN)))
    assert t.grade("rdma-port-down") == "established"
    assert t.report.root.finding == "rdma-port-down" and t.report.root.node == "n1"
    assert "fabric-fault" not in t.by_id
    assert len({r.source for r in t.by_id["rdma-port-down"].because}) == 2, "both witnesses are cited"


@pytest.mark.parametrize("witness", ["kernel", "nccl"])
def test_either_witness_is_enough(told, witness):
    node = serving()
    if witness == "nccl":
        node.raw(event(602, "port error"))
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (602, DOWN if witness == "kernel" else "eth0: renamed")))
    assert t.report.root.finding == "rdma-port-down"


def test_a_flap_that_recovered_is_listed_and_not_blamed(told):
    node = serving(200)
    node.raw(event(201, "port error"))
    node.raw(event(209, "port active"))
    node.stats(210, 1500)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (201, DOWN), (209, UP)))
    finding = t.by_id["rdma-port-down"]
    assert finding.role.value == "context" and finding.until is not None
    assert t.state == "healthy" and t.report.root.finding is None


def test_a_flap_before_another_crash_is_not_blamed(told):
    node = serving(200)
    node.raw(event(201, "port error"))
    node.raw(event(209, "port active"))
    node.stats(210, 1500)
    node.worker_died(1505, 2, "-9")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (201, DOWN), (209, UP)))
    assert t.root == ("worker-process-died", 2)


def test_the_flap_before_the_outage_is_told_with_it(told):
    node = serving()
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (300, DOWN), (308, UP), (602, DOWN)))
    finding = t.by_id["rdma-port-down"]
    assert "flapped before" in finding.title and len(finding.because) == 3
    assert t.report.root.finding == "rdma-port-down"


def test_an_uncabled_port_at_boot_is_no_cause(told):
    node = Node(began=4000)
    node.stats(4070, 4600)
    node.worker_died(4605, 1, "-9")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (1, "Linux version 6.8.0"), (5, DOWN)))
    assert t.root == ("worker-process-died", 1)


def counters(at: int, **values: int) -> str:
    return f"# sampled_at 2026-04-07T09:{at:02d}:00Z\n" + "".join(
        f"/sys/class/infiniband/mlx5_4/ports/1/counters/{name}:{value}\n" for name, value in values.items()
    )


def test_counters_that_stayed_refute_a_fault_of_the_fabric(told):
    node = serving()
    node.stall(600)
    still = {"symbol_error": 0, "link_downed": 0, "port_rcv_errors": 0, "port_xmit_data": 812345}
    t = told(n1__log=node, n1__rdma_1_txt=counters(11, **still), n1__rdma_2_txt=counters(12, **still))
    assert t.grade("fabric-fault") == "refuted"


def test_counters_that_moved_establish_it(told):
    node = serving()
    node.stall(600)
    t = told(
        n1__log=node,
        n1__rdma_1_txt=counters(11, symbol_error=3, link_downed=0, port_rcv_errors=10),
        n1__rdma_2_txt=counters(12, symbol_error=981, link_downed=1, port_rcv_errors=4410),
    )
    assert t.grade("fabric-fault") == "established"


def test_retries_towards_a_dead_peer_are_no_fault_of_the_fabric(told):
    node = serving()
    node.stall(600)
    t = told(
        n1__log=node,
        n1__rdma_1_txt=counters(11, symbol_error=0, local_ack_timeout_err=3),
        n1__rdma_2_txt=counters(12, symbol_error=0, local_ack_timeout_err=98),
    )
    assert t.grade("fabric-fault") in (None, "possible", "refuted")


@pytest.mark.parametrize(
    "line",
    [
        "[2026-04-07 09:20:00] n1:501:905 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB: Got completion from peer 192.0.2.9<34567> with status=12 opcode=32601 len=0 vendor err 129",
        "[rank1]:[E407 09:20:00.656957424 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.",
    ],
)
def test_a_timeout_is_no_fault_of_the_fabric(told, line):
    node = serving()
    node.stall(600)
    node.raw(line)
    assert "fabric-fault" not in told(n1__log=node).by_id


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:d2:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
        "mlx5_core 0000:d2:00.0: poll_health:836:(pid 0): Fatal error 3 detected",
    ],
)
def test_a_card_that_stopped_answering(told, line):
    node = serving()
    node.stall(600)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (602, line)))
    assert t.grade("nic-lost") == "established"
    assert t.report.root.finding == "nic-lost"


def test_ports_that_come_up_while_the_machine_boots_are_not_told(told):
    t = told(n1__log=serving(1500), n1__kernel_log=kernel("n1", (-5000, "Linux version 6.8.0"), (-4990, DOWN), (-4980, UP)))
    assert "rdma-port-down" not in t.by_id
    assert t.grade("host-stable") is None or t.state == "healthy"
