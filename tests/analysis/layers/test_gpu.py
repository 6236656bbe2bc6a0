from __future__ import annotations

import pytest

from tests.analysis.layers.folder import Node, iso, kernel

BUS = ["17", "3b", "b3", "cb"]
MAP = "".join(f"rank {r} local_rank {r} pid {501 + r} pci 0000:{b}:00.0\n" for r, b in enumerate(BUS))


def xid(code: int, detail: str, bus: str = "b3", who: str = "pid='<unknown>', name=<unknown>, ") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, {who}{detail}"


OFF = xid(79, "GPU has fallen off the bus.")
FAULTS = {
    "gpu-off-bus": [OFF, "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."],
    "gpu-mmu-fault": [
        xid(31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 faulted @ 0x7f2a_4c000000. Fault is of type FAULT_PDE", who="")
    ],
    "gpu-ecc-contained": [
        xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 0."),
        xid(63, "Row Remapper: New row (0x000000007c2d1f00) marked for remapping, reset gpu to activate."),
        xid(94, "Contained: SM (0x1). RST: No, D-RST: No"),
    ],
    "gpu-hardware-failure": [xid(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")],
    "gpu-nvlink-fault": [xid(74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")],
    "gpu-xid": [
        xid(119, "Timeout after 6s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).")
    ],
}


def stalled(at: float = 600) -> Node:
    node = Node()
    node.stats(70, at)
    node.stall(at)
    return node


@pytest.mark.parametrize("id", FAULTS)
def test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu(told, id):
    lines = [(602.0 + i / 10, text) for i, text in enumerate(FAULTS[id])]
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", *lines), rank_map__txt=MAP)
    assert t.grade(id) == "established"
    assert t.root == (id, 2)
    assert t.report.root.node == "n1"
    assert {f for f in FAULTS if f != id}.isdisjoint(t.by_id), "one fault of one GPU has one name"
    assert t.grade("engine-stalled") is not None
    assert t.grade("host-stable") is None and t.grade("fabric-fault") is None


def test_without_a_map_the_node_is_named_and_no_rank(told):
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (602, OFF)))
    assert t.root == ("gpu-off-bus", None)
    assert t.report.root.node == "n1"
    assert "which rank" in t.by_id["gpu-off-bus"].does_not_show


def test_a_process_that_the_xid_names_places_the_rank(told):
    line = xid(31, "Ch 00000008, MMU Fault", who="pid=504, name=VLLM::Worker_TP, ")
    assert told(n1__log=stalled(), n1__kernel_log=kernel("n1", (602, line))).root == ("gpu-mmu-fault", 3)


def test_a_gpu_on_which_no_rank_runs_is_a_circumstance(told):
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (602, xid(79, "GPU has fallen off the bus.", bus="e1"))), rank_map__txt=MAP)
    assert t.by_id["gpu-off-bus"].role.value == "context"
    assert t.report.root.finding is None


@pytest.mark.parametrize(
    "noise",
    [
        xid(45, "Ch 00000010", who="pid=9911, name=python3, "),
        xid(43, "Ch 00000010", who="pid=9911, name=python3, "),
        xid(63, "Row Remapper: New row (0x000000007c2d1f00) marked for remapping, reset gpu to activate."),
        xid(92, "High single-bit ECC error rate"),
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "mce: [Hardware Error]: Machine check events logged",
        "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 1)",
        "ACPI Error: AE_NOT_FOUND, While resolving a named reference package element",
    ],
)
def test_noise_of_a_healthy_machine_is_no_fault(told, noise):
    node = Node()
    node.stats(70, 1500)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (800, noise)))
    assert not {*FAULTS, "pcie-aer-fatal", "kernel-panic"} & set(t.by_id)
    assert t.state == "healthy" and t.report.root.finding is None


def test_the_cleanup_after_a_kill_is_not_the_root(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(605, 1, "-9")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (604, xid(45, "Ch 00000010", who="pid=502, name=VLLM::Worker_TP, "))))
    assert t.root == ("worker-process-died", 1)
    assert "gpu-xid" not in t.by_id


def test_a_fault_that_the_engine_outlived_is_a_circumstance(told):
    node = Node()
    node.stats(70, 1500)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (300, FAULTS["gpu-mmu-fault"][0])))
    assert t.by_id["gpu-mmu-fault"].role.value == "context"
    assert t.state == "healthy" and t.report.root.finding is None


def test_a_fault_after_the_crash_is_not_its_cause(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(605, 1, "-11")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (640, OFF)), rank_map__txt=MAP)
    assert t.report.root.rank == 1
    assert t.by_id["gpu-off-bus"].role.value in ("teardown", "context")


def test_the_bus_error_below_a_lost_gpu_is_told_with_it(told):
    aer = "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (601, aer), (601, OFF)))
    assert "pcie-aer-fatal" not in t.by_id
    assert any("PCIe Bus Error" in r.quote for r in t.by_id["gpu-off-bus"].because)


def test_a_fatal_bus_error_alone(told):
    aer = "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)"
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (601, aer)))
    assert t.root == ("pcie-aer-fatal", None)
    assert t.grade("pcie-aer-fatal") == "established"


def test_what_the_driver_asks_for_is_repeated(told):
    action = xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (602, OFF), (603, action)))
    assert "Node Reboot Required" in t.by_id["gpu-off-bus"].title


def test_an_undated_xid_of_unknown_age_is_not_the_root(told):
    t = told(n1__log=stalled(), n1__dmesg_txt="[    1.000000] Linux version 6.8.0\n[ 8123.100000] " + FAULTS["gpu-mmu-fault"][0] + "\n")
    assert t.grade("gpu-mmu-fault") == "established"
    assert t.root[0] != "gpu-mmu-fault"


def test_a_start_on_a_gpu_that_was_lost_before(told):
    node = Node()
    node.stats(70, 600)
    node.fatal(700)
    node.start(800)
    node.stats(870, 890)
    node.stall(900)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (602, OFF)), rank_map__txt=MAP)
    assert t.grade("relaunch-on-faulted-fabric") == "established"
    assert t.root == ("relaunch-on-faulted-fabric", 2)


def test_a_machine_that_was_booted_in_between_is_healed(told):
    node = Node()
    node.stats(70, 600)
    node.fatal(700)
    node.start(1800)
    node.stats(1870, 1890)
    node.stall(1900)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (602, OFF), (1500, "Linux version 6.8.0-1020-nvidia (buildd@host)")))
    assert "relaunch-on-faulted-fabric" not in t.by_id


ILLEGAL = [
    "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "n1:502:900 [1] enqueue.cc:1402 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
    "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
]


@pytest.mark.parametrize("line", ILLEGAL)
def test_several_reports_of_an_illegal_access_name_no_rank(told, line):
    node = Node()
    node.stats(70, 600)
    node.raw("\n".join(line.replace("n1:502", f"n1:{501 + i}") for i in range(4)))
    node.worker_died(605, 2)
    t = told(n1__log=node)
    assert t.grade("cuda-illegal-access") == "established"
    assert t.report.root.rank is None
    assert t.report.root.finding == "cuda-illegal-access"


def test_an_illegal_access_while_it_is_torn_down_is_not_the_root(told):
    node = Node()
    node.stats(70, 600)
    node.worker_died(605, 1, "-9")
    node.say(608, "Worker_TP0", 501, "ERROR", ILLEGAL[1])
    t = told(n1__log=node)
    assert t.root == ("worker-process-died", 1)


def test_a_launch_failure_is_said_less_firmly(told):
    node = Node()
    node.stats(70, 600)
    node.say(604, "Worker_TP1", 502, "ERROR", "torch.AcceleratorError: CUDA error: unspecified launch failure")
    node.fatal(605)
    assert told(n1__log=node).grade("cuda-illegal-access") == "supported"


@pytest.mark.parametrize(
    "advice",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        'raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")',
    ],
)
def test_advice_is_no_fault(told, advice):
    node = Node()
    node.stats(70, 600)
    node.say(604, "Worker_TP1", 502, "ERROR", advice)
    node.fatal(605)
    assert not {"cuda-illegal-access", "gpu-oom"} & set(told(n1__log=node).by_id)


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.20 GiB is free."


def test_gpu_memory_that_ran_out_ends_the_engine(told):
    node = Node()
    node.stats(70, 600)
    node.say(604, "Worker_TP1", 502, "ERROR", OOM)
    node.fatal(605)
    t = told(n1__log=node)
    assert t.grade("gpu-oom") == "established"
    assert t.root == ("gpu-oom", 1)
    assert t.grade("host-oom-kill") is None


def test_gpu_memory_that_ran_out_and_was_handled_is_told_as_such(told):
    node = Node()
    node.say(30, "Worker_TP1", 502, "WARNING", OOM)
    node.stats(70, 900)
    t = told(n1__log=node)
    assert t.state == "healthy" and t.report.root.finding is None
    assert t.by_id["gpu-oom"].role.value == "context"


def test_onset_is_the_kernel_s_line(told):
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (602, OFF)), rank_map__txt=MAP, n1__nvidia_smi_txt="2026-04-07T09:30:00Z\n")
    assert t.report.first_event is not None
    assert t.report.first_event.at.earliest_ns == t.by_id["gpu-off-bus"].since.earliest_ns
    assert iso(602).startswith("2026-04-07T09:10:02")


def test_what_cuda_says_of_a_contained_error_is_not_more_than_the_driver_says(told):
    node = Node()
    node.stats(70, 600)
    node.say(604, "Worker_TP2", 503, "ERROR", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
    node.worker_died(605, 2)
    lines = [(603.0, text) for text in FAULTS["gpu-ecc-contained"]]
    t = told(n1__log=node, n1__kernel_log=kernel("n1", *lines), rank_map__txt=MAP)
    assert t.root == ("gpu-ecc-contained", 2)
    assert not {"gpu-hardware-failure", "cuda-illegal-access", "gpu-xid"} & set(t.by_id)


def test_a_launch_that_failed_because_the_gpu_was_lost_is_no_illegal_access(told):
    node = Node()
    node.stats(70, 600)
    node.say(604, "Worker_TP2", 503, "ERROR", "torch.AcceleratorError: CUDA error: unspecified launch failure")
    node.worker_died(605, 2)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (603, OFF)), rank_map__txt=MAP)
    assert t.root == ("gpu-off-bus", 2) and "cuda-illegal-access" not in t.by_id


def test_the_driver_s_line_about_an_illegal_access_names_the_gpu(told):
    node = Node()
    node.stats(70, 600)
    node.raw("\n".join([ILLEGAL[0]] * 4))
    node.worker_died(605, 0)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (604, FAULTS["gpu-mmu-fault"][0])), rank_map__txt=MAP)
    assert t.grade("cuda-illegal-access") == "established"
    assert t.root == ("gpu-mmu-fault", 2)


def test_a_driver_that_waited_says_so_after_the_onset(told):
    late = xid(119, "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).")
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (652, late)), rank_map__txt=MAP)
    assert t.root == ("gpu-xid", 2)


def test_a_fault_that_is_repeated_began_with_its_first_line(told):
    lines = [(602.0, OFF), (900.0, OFF), (1500.0, OFF)]
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", *lines), rank_map__txt=MAP)
    assert t.root == ("gpu-off-bus", 2)
    assert t.report.root.since_ns == t.by_id["gpu-off-bus"].since.earliest_ns


def test_yesterday_s_fault_of_another_program_is_a_circumstance(told):
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", (-80000, FAULTS["gpu-mmu-fault"][0])), rank_map__txt=MAP)
    assert t.by_id["gpu-mmu-fault"].role.value == "context"
    assert t.root[0] != "gpu-mmu-fault"


def test_two_engines_on_a_node_each_know_their_own_ranks(told):
    one, two = stalled(), Node(pids=900)
    two.stats(70, 1500)
    places = "".join(
        f"rank {r} local_rank {r} pid {p + 1 + r} pci 0000:{b}:00.0\n"
        for p, buses in ((500, BUS), (900, ["a1", "a2", "a3", "a4"]))
        for r, b in enumerate(buses)
    )
    t = told(n1__log=one, n1__two_log=two, n1__kernel_log=kernel("n1", (602, OFF)), rank_map__txt=places)
    lost = [f for f in t.report.findings if f.id == "gpu-off-bus"]
    assert lost and all(f.role.value != "root" or f.ranks in ((2,), ()) for f in lost)


def test_a_stop_that_was_asked_for_is_no_trouble(told):
    node = Node()
    node.stats(70, 600)
    node.say(610, "APIServer", 1, "INFO", "Shutting down FastAPI HTTP server.", "launcher.py:100")
    node.say(610, "EngineCore", 500, "INFO", "Received signal 15, shutting down", "core.py:900")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (611, xid(45, "Ch 00000010", who="pid=502, name=VLLM::Worker_TP, "))))
    assert t.report.root.finding is None


def test_a_fault_of_all_gpus_at_once_is_the_node_s(told):
    lines = [(602.0, xid(74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", bus=b)) for b in BUS]
    t = told(n1__log=stalled(), n1__kernel_log=kernel("n1", *lines), rank_map__txt=MAP)
    assert t.root == ("gpu-nvlink-fault", None) and t.report.root.node == "n1"
    assert len([f for f in t.report.findings if f.id == "gpu-nvlink-fault"]) == 1


def test_the_gpu_that_was_first_is_named(told):
    t = told(
        n1__log=stalled(),
        n1__kernel_log=kernel("n1", (601, xid(74, "NVLink: x", bus="cb")), (605, xid(74, "NVLink: x", bus="17"))),
        rank_map__txt=MAP,
    )
    assert t.root == ("gpu-nvlink-fault", 3)
