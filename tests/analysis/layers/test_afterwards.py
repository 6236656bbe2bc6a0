"""What came after the last line of a log: it makes history of what the log shows."""

from __future__ import annotations

import pytest

from tests.analysis.layers.folder import START, Node, iso, kernel

BOOT = "Linux version 6.8.0-60-generic (buildd@lcy02) (gcc 13.3.0) #63-Ubuntu SMP"


def serving(until: float = 900, **kw: float) -> Node:
    node = Node(**kw)  # type: ignore[arg-type]
    node.stats(70, until)
    return node


def status(code: int, ended: float, reason: str = "Error") -> str:
    return (
        "status:\n  containerStatuses:\n  - name: engine\n    restartCount: 1\n    lastState:\n      terminated:\n"
        f'        exitCode: {code}\n        reason: {reason}\n        startedAt: "{iso(0)}"\n        finishedAt: "{iso(ended)}"\n'
        f'    state:\n      running:\n        startedAt: "{iso(ended + 5)}"\n'
    )


@pytest.mark.parametrize("code", [137, 139, 1])
def test_a_log_that_stops_at_work_as_its_container_ends_is_of_an_engine_that_died(told, code):
    t = told(n1__log=serving(), n1__pod_txt=status(code, 905))
    assert t.grade("engine-died") == "established"
    assert t.grade("healthy-serving") is None
    assert t.grade("no-crash-found") is None
    assert t.grade("host-oom-kill") in (None, "possible")
    assert t.report.verdict.state == "dead"
    assert t.report.root.finding is None


@pytest.mark.parametrize("code", [0, 143])
def test_a_container_that_was_asked_to_end_did_not_crash(told, code):
    t = told(n1__log=serving(), n1__pod_txt=status(code, 905, "Completed"))
    assert t.grade("engine-died") is None
    assert t.grade("orderly-shutdown") == "supported"
    assert t.grade("healthy-serving") is None


def test_the_end_of_the_container_before_this_one_says_nothing_of_this_one(told):
    t = told(n1__log=serving(900, began=20), n1__pod_txt=status(137, 5))
    assert t.grade("healthy-serving") == "established"
    assert t.grade("engine-died") is None


def test_a_machine_that_was_rebooted_on_request_took_its_engine_along(told):
    previous = kernel("n1", (903, "System is rebooting."), (910, "Syncing filesystems and block devices."), who="systemd-logind[812]")
    t = told(n1__log=serving(), n1__journal_previous_boot_log=previous, n1__kernel_log=kernel("n1", (1100, BOOT)))
    assert t.grade("healthy-serving") is None
    assert t.grade("orderly-shutdown") == "supported"
    assert t.grade("host-stopped-logging") is None
    assert t.grade("engine-died") is None


def test_a_boot_before_the_last_line_takes_nothing_away(told):
    t = told(n1__log=serving(900, began=20), n1__kernel_log=kernel("n1", (1, BOOT), (800, "audit: type=1400")))
    assert t.grade("healthy-serving") == "established"


def test_a_previous_boot_is_no_silence_of_a_machine_that_writes_again(told):
    before = (START.strftime("%b %d"), "n1")
    previous = f"{before[0]} 01:00:00 n1 kernel: perf: interrupt took too long\n"
    t = told(
        n1__log=serving(900), n1__kernel_previous_boot_log=previous, n1__kernel_log=kernel("n1", (-300, BOOT), (850, "audit: type=1400"))
    )
    assert t.grade("host-stopped-logging") is None
    assert t.grade("healthy-serving") == "established"


def test_a_record_of_a_panic_without_a_date_is_of_the_end_when_a_boot_follows(told):
    record = "Panic#1 Part1\n<0>[9120.120000] Kernel panic - not syncing: Fatal exception\n<0>[9120.130000] Kernel Offset: 0x2c00000\n"
    name = {"n1__pstore_dmesg_efi_17_txt": record}
    t = told(n1__log=serving(), **name, n1__kernel_log=kernel("n1", (1300, BOOT)))
    assert t.root[0] == "kernel-panic"
    assert t.report.root.node == "n1"
    t = told(n1__log=serving(2000), **name, n1__kernel_log=kernel("n1", (-900, BOOT), (1990, "audit: type=1400")))
    assert t.root[0] is None


def test_the_silent_follower_that_was_booted_again_is_where_it_began(told):
    head = serving(600, ranks=1)
    head.stall(600, 2)
    head.say(1200, "Worker_TP0", 501, "ERROR", "WorkerProc hit an exception.", "multiproc_executor.py:870")
    head.say(
        1200,
        *("Worker_TP0", 501, "ERROR"),
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [192.0.2.2]:21221",
        "multiproc_executor.py:870",
    )
    head.fatal(1201)
    place = "world_size=2 rank={0} local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl"
    head.lines.insert(3, f"(Worker_TP0 pid=501) INFO 04-07 09:00:10 [parallel_state.py:1607] {place.format(0)}")
    follower = f"(Worker_TP1 pid=77) INFO 04-07 09:00:10 [parallel_state.py:1607] {place.format(1)}\n"
    previous = kernel("n2", (300, "perf: interrupt took too long"), (596, "perf: interrupt took too long"))
    t = told(n1__log=head, n2__log=follower, n2__journal_previous_boot_log=previous, n2__kernel_log=kernel("n2", (1500, BOOT)))
    assert t.grade("host-stopped-logging") == "supported"
    assert t.report.root.node == "n2"
    t = told(
        n1__log=head,
        n2__log=follower,
        n2__journal_previous_boot_log=previous + kernel("n2", (597, "System is rebooting."), who="systemd-logind[9]"),
        n2__kernel_log=kernel("n2", (1500, BOOT)),
    )
    assert t.grade("host-stopped-logging") is None


def test_a_service_that_a_guard_of_memory_ended_is_told_though_it_came_back(told):
    node = serving()
    node.start(930)
    node.stats(1000, 1200)
    journal = (
        kernel("n1", (500, "(root) CMD (/usr/lib/sysstat/sa1 1 1)"), who="CRON[81]")
        + kernel(
            "n1",
            (
                903,
                "Killed /system.slice/vllm.service due to memory pressure for /system.slice being 91.22% > 80.00% for > 30s with reclaim",
            ),
            who="systemd-oomd[901]",
        )
        + kernel("n1", (904, "vllm.service: Main process exited, code=killed, status=9/KILL"), who="systemd[1]")
    )
    t = told(n1__log=node, n1__journal_txt=journal)
    assert t.grade("host-oom-kill") == "established"
    assert t.root[0] == "host-oom-kill"
    assert t.grade("no-crash-found") is None
    t = told(n1__log=serving(1200), n1__journal_txt=journal.replace("vllm.service", "backup.service"))
    assert t.root[0] is None


def test_a_front_that_ended_by_itself_serves_no_more(told):
    node = serving()
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete.", "Finished server process [1]"):
        node.raw(f"(APIServer pid=1) INFO:     {line}")
    t = told(n1__log=node)
    assert t.grade("orderly-shutdown") == "supported"
    assert t.grade("healthy-serving") is None
    assert t.grade("engine-died") is None
