from __future__ import annotations

import pytest

from tests.analysis.layers.folder import Node, kernel

NO_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1353"
QUIET = 'audit: type=1400 audit(1.1:212): apparmor="STATUS" operation="profile_replace" name="docker-default" pid=9 comm="apparmor_parser"'


def serving(until: float = 600) -> Node:
    node = Node(ranks=2)
    node.stats(70, until)
    return node


def test_all_logs_of_a_machine_stop_and_it_was_booted_again(told):
    t = told(n1__log=serving(), n1__kernel_previous_boot_log=kernel("n1", (300, QUIET), (598, QUIET)), n1__pstore_txt="(empty)\n")
    assert t.grade("host-stopped-logging") == "established"
    assert t.report.root.finding == "host-stopped-logging" and t.report.root.node == "n1"
    assert not {"host-wedge-unified-memory", "kernel-panic", "host-oom-kill", "driver-alloc-failure", "host-stable"} & set(t.by_id)


def test_the_driver_without_memory_just_before_points_at_shared_memory(told):
    lines = kernel("n1", (300, QUIET), (598, NO_MEMORY), (599, "NVRM: sysmemConstruct_IMPL: *** Cannot allocate sysmem through fb heap"))
    meminfo = "# sampled_at 2026-04-07T09:09:50Z\nMemTotal:       125829120 kB\nMemAvailable:     9122611 kB\n"
    t = told(n1__log=serving(), n1__kernel_previous_boot_log=lines, n1__pstore_txt="(empty)\n", n1__meminfo_txt=meminfo)
    assert t.grade("host-stopped-logging") == "established"
    assert t.grade("driver-alloc-failure") == "established"
    assert t.grade("host-wedge-unified-memory") == "supported"
    assert t.report.root.finding == "driver-alloc-failure"


def test_on_a_card_with_memory_of_its_own_the_same_line_is_about_the_card(told):
    gpu = "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n0, NVIDIA H100 80GB HBM3, 96 %, 70000 MiB, 81559 MiB\n"
    t = told(n1__log=serving(), n1__kernel_previous_boot_log=kernel("n1", (598, NO_MEMORY)), n1__gpu_csv=gpu)
    assert "host-wedge-unified-memory" not in t.by_id


def test_a_failed_allocation_on_a_machine_that_goes_on_is_a_circumstance(told):
    t = told(n1__log=serving(1500), n1__kernel_log=kernel("n1", (300, NO_MEMORY), (1400, QUIET)))
    assert t.by_id["driver-alloc-failure"].role.value == "context"
    assert not {"host-stopped-logging", "host-wedge-unified-memory"} & set(t.by_id)
    assert t.report.root.finding is None and t.state == "healthy"


def test_logs_that_were_copied_at_one_moment_show_no_end(told):
    t = told(n1__log=serving(), n1__kernel_log=kernel("n1", (300, QUIET), (598, QUIET)))
    assert "host-stopped-logging" not in t.by_id
    assert t.state == "healthy"


def test_another_node_that_went_on_shows_that_time_did(told):
    other = Node(ranks=2, pids=700)
    other.stats(70, 1200)
    t = told(n1__log=serving(), n1__kernel_log=kernel("n1", (598, QUIET)), m2__log=other)
    assert t.grade("host-stopped-logging") == "established"
    assert t.by_id["host-stopped-logging"].nodes == ("n1",)


@pytest.mark.parametrize(
    ("who", "line"),
    [
        ("systemd[1]", "Reached target reboot.target - System Reboot."),
        ("systemd-logind[812]", "System is rebooting."),
        ("kernel", "reboot: Restarting system"),
    ],
)
def test_an_orderly_reboot_is_no_silence(told, who, line):
    lines = kernel("n1", (300, QUIET)) + kernel("n1", (599, line), who=who)
    assert "host-stopped-logging" not in told(n1__log=serving(), n1__kernel_previous_boot_log=lines).by_id


def test_an_engine_that_died_by_itself_is_no_silent_machine(told):
    node = serving()
    node.worker_died(605, 1)
    t = told(n1__log=node, n1__kernel_previous_boot_log=kernel("n1", (604, QUIET)))
    assert "host-stopped-logging" not in t.by_id


def test_a_machine_that_was_looked_at_later_is_alive(told):
    ps = "# sampled_at 2026-04-07T09:40:00Z\n  PID  PPID STAT WCHAN  %CPU   RSS NLWP COMMAND\n  501   500 Sl   futex_ 15.3 18052   48  VLLM::Worker_TP0\n"
    other = Node(ranks=2, pids=700)
    other.stats(70, 1200)
    t = told(n1__log=serving(), n1__kernel_log=kernel("n1", (598, QUIET)), n1__ps_txt=ps, m2__log=other)
    assert "host-stopped-logging" not in t.by_id


@pytest.mark.parametrize("where", ["kernel", "pstore"])
def test_a_panic_is_told_by_the_kernel_or_by_what_the_firmware_kept(told, where):
    line = "Kernel panic - not syncing: Fatal exception in interrupt"
    if where == "kernel":
        t = told(n1__log=serving(), n1__kernel_previous_boot_log=kernel("n1", (300, QUIET), (601, line)))
    else:
        t = told(
            n1__log=serving(),
            n1__kernel_previous_boot_log=kernel("n1", (300, QUIET), (598, QUIET)),
            n1__pstore_txt=f"<0>[ 8123.441122] {line}\n",
        )
    assert t.grade("kernel-panic") == "established"
    assert t.by_id["kernel-panic"].nodes == ("n1",)
    assert "host-stopped-logging" not in t.by_id
    assert t.grade("host-stable") is None


def test_an_oops_is_no_panic(told):
    node = serving()
    node.stall(600)
    t = told(
        n1__log=node,
        n1__kernel_log=kernel(
            "n1", (602, "BUG: kernel NULL pointer dereference, address: 0000000000000008"), (602, "Oops: 0002 [#1] PREEMPT SMP NOPTI")
        ),
    )
    assert t.grade("kernel-panic") == "supported"


def test_trouble_without_a_finding_of_its_own_still_counts_against_a_stable_host(told):
    for line in (
        "INFO: task python3:4243 blocked for more than 120 seconds.",
        "nvme nvme0: I/O 12 QID 3 timeout, aborting",
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4243]",
    ):
        assert told(n1__log=serving(1500), n1__kernel_log=kernel("n1", (300, line))).grade("host-stable") is None


def test_a_boot_before_the_engine_is_no_trouble(told):
    lines = kernel("n1", (-900, "Linux version 6.8.0-1020-nvidia (buildd@host)"), (10, "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up"))
    assert told(n1__log=serving(1500), n1__kernel_log=lines).grade("host-stable") == "established"


def test_a_follower_that_is_silent_while_it_serves_is_not_missed(told):
    follower = Node(ranks=2)  # says nothing after its start
    head = Node(ranks=2, pids=700)
    head.stats(70, 5000)
    t = told(n1__log=follower, n1__kernel_log=kernel("n1", (55, QUIET)), m2__log=head)
    assert "host-stopped-logging" not in t.by_id


def test_a_container_that_was_removed_is_no_silent_machine(told):
    other = Node(ranks=2, pids=700)
    other.stats(70, 1200)
    gone = "docker0: port 1(veth1a2b3c4) entered disabled state"
    t = told(n1__log=serving(), n1__kernel_log=kernel("n1", (300, QUIET), (601, gone)), m2__log=other)
    assert "host-stopped-logging" not in t.by_id


def test_a_flood_of_corrected_errors_is_bounded_and_hides_nothing(told):
    noise = "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0"
    node = serving()
    node.stall(600)
    lines = [(i / 100, noise) for i in range(60000)] + [(602.0, "NVRM: Xid (PCI:0000:b3:00): 79, pid=1, GPU has fallen off the bus.")]
    t = told(n1__log=node, n1__kernel_log=kernel("n1", *lines))
    assert t.report.root.finding == "gpu-off-bus"
    assert "pcie-aer-fatal" not in t.by_id
