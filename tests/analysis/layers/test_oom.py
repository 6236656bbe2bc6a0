from __future__ import annotations

import pytest

from tests.analysis.layers.folder import Node, iso, kernel

KILLED = "Out of memory: Killed process {pid} ({comm}) total-vm:412334560kB, anon-rss:201334112kB, file-rss:91232kB, shmem-rss:0kB, UID:0 pgtables:421332kB oom_score_adj:0"
CGROUP = "Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:412334560kB, anon-rss:201334112kB, file-rss:91232kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:984"


def serving(until: float = 900) -> Node:
    node = Node()
    node.stats(70, until)
    return node


@pytest.mark.parametrize(
    ("line", "pid", "comm"),
    [(KILLED, 88231, "VLLM::Worker_TP"), (CGROUP, 88231, "VLLM::Worker_TP"), (KILLED, 503, "VLLM::Worker_TP"), (CGROUP, 503, "python3")],
)
def test_a_killed_worker_is_named_by_its_pid_or_by_the_death_that_follows(told, line, pid, comm):
    node = serving()
    node.worker_died(906, 2)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, line.format(pid=pid, comm=comm))))
    assert t.grade("host-oom-kill") == "established"
    assert t.root == ("host-oom-kill", 2)
    assert t.report.root.node == "n1"
    assert t.grade("worker-process-died") == "established"
    assert t.grade("memory-exhaustion") == "established"
    assert t.grade("host-stable") is None


def test_a_worker_of_an_unspeaking_name_is_joined_by_time_and_said_less_firmly(told):
    node = serving()
    node.worker_died(906, 1)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="python3"))))
    assert t.grade("host-oom-kill") == "supported"
    assert t.by_id["host-oom-kill"].ranks == (1,)


def test_two_kills_at_once_name_no_rank(told):
    node = serving()
    node.worker_died(906, 1)
    kills = [(905.0, KILLED.format(pid=p, comm="VLLM::Worker_TP")) for p in (88231, 88232)]
    t = told(n1__log=node, n1__kernel_log=kernel("n1", *kills))
    assert t.by_id["host-oom-kill"].ranks == ()


def test_a_killed_core_is_no_rank(told):
    node = serving()
    node.say(906, "APIServer", 1, "ERROR", "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "core_client.py:600")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="VLLM::EngineCor"))))
    assert t.by_id.get("host-oom-kill") is None or t.by_id["host-oom-kill"].ranks == ()


@pytest.mark.parametrize("comm", ["cron", "pytest", "featurize", "node_exporter", "java"])
def test_a_kill_of_another_program_is_not_the_engine_s(told, comm):
    node = serving(1500)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm=comm))))
    assert t.grade("host-oom-kill") is None
    assert t.report.root.finding is None
    assert t.state == "healthy"


def test_a_python_job_killed_beside_a_serving_engine_is_not_the_engine_s(told):
    t = told(n1__log=serving(1500), n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="python3"))))
    assert t.grade("host-oom-kill") is None and t.report.root.finding is None


def test_another_program_s_kill_at_the_moment_of_a_death_is_no_join(told):
    node = serving()
    node.worker_died(906, 1, "-11")
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="java"))))
    assert t.grade("host-oom-kill") is None
    assert t.root == ("sigsegv", 1) or t.root == ("worker-process-died", 1)


def test_a_kill_after_the_engine_s_end_is_not_the_root(told):
    node = serving()
    node.worker_died(906, 1)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (960, KILLED.format(pid=504, comm="VLLM::Worker_TP"))))
    assert t.root == ("worker-process-died", 1)


def test_yesterday_s_kill_explains_nothing_today(told):
    node = serving()
    node.worker_died(906, 1)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (-86400, KILLED.format(pid=88231, comm="VLLM::Worker_TP"))))
    assert t.root == ("worker-process-died", 1)
    assert t.by_id.get("host-oom-kill") is None


@pytest.mark.parametrize("status", ["None", "-9", "137"])
def test_sigkill_alone_is_no_oom(told, status):
    node = serving()
    node.worker_died(906, 1, status)
    assert told(n1__log=node).grade("host-oom-kill") is None


def test_the_shell_s_word_is_a_possibility_at_most(told):
    node = serving()
    node.worker_died(906, 1, "-9")
    node.raw("/entrypoint.sh: line 9:    77 Killed                  vllm serve /m")
    assert told(n1__log=node).grade("host-oom-kill") == "possible"


def test_earlyoom_is_named(told):
    node = serving()
    node.worker_died(906, 3)
    line = kernel(
        "n1", (905, 'sending SIGKILL to process 88231 uid 0 "VLLM::Worker_TP": badness 1210, VmRSS 95123 MiB'), who="earlyoom[812]"
    )
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (0, "eth0: renamed")) + line)
    assert t.root == ("host-oom-kill", 3)
    assert "earlyoom" in t.by_id["host-oom-kill"].title


def test_systemd_oomd_ends_a_whole_cgroup_and_names_no_rank(told):
    node = serving()
    node.worker_died(906, 3)
    why = "Killed /system.slice/vllm.service due to memory pressure for /system.slice being 71.20% > 60.00% for > 30s with reclaim activity"
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (0, "eth0: renamed")) + kernel("n1", (905, why), who="systemd-oomd[901]"))
    assert t.by_id["host-oom-kill"].ranks == () and t.grade("host-oom-kill") == "supported"


def test_a_life_before_that_was_killed_is_told_beside_the_present_one(told):
    node = serving()
    node.worker_died(906, 2)
    node.start(1000)
    node.stats(1070, 1400)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="VLLM::Worker_TP"))))
    assert t.state == "healthy"
    assert t.root == ("host-oom-kill", 2)


RAY_GUESS = "(1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."


def test_ray_s_own_line_and_not_its_guess(told):
    node = serving()
    node.raw(f"The actor is dead because its worker process has died. There are some potential root causes. {RAY_GUESS}")
    node.fatal(906)
    t = told(n1__log=node)
    assert not {"ray-oom-kill", "host-oom-kill", "sigsegv"} & set(t.by_id)


def test_ray_s_summary_is_established(told):
    node = serving()
    node.fatal(906)
    summary = "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 2c82, IP: 192.0.2.9) over the last time period."
    node.raw(f"(raylet) [{iso(930)[:19].replace('T', ' ')},101 E 77 77] (raylet) node_manager.cc:3040: {summary}")
    t = told(n1__log=node)
    assert t.grade("ray-oom-kill") == "established"
    assert t.grade("host-oom-kill") is None


@pytest.mark.parametrize("comm", ["VLLM::EngineCor", "VLLM::Worker_TP"])
def test_a_whole_container_that_was_killed_leaves_no_word(told, comm):
    lines = [
        (905.0, CGROUP.format(pid=88231, comm=comm)),
        (905.0, "Tasks in /kubepods.slice/pod1.slice are going to be killed due to memory.oom.group set"),
    ]
    t = told(n1__log=serving(), n1__kernel_log=kernel("n1", *lines))
    assert t.grade("host-oom-kill") == "supported"
    assert t.root == ("host-oom-kill", None) and t.report.root.node == "n1"


def test_a_worker_of_another_pod_is_not_ours_while_the_log_goes_on(told):
    t = told(n1__log=serving(1500), n1__kernel_log=kernel("n1", (905, KILLED.format(pid=88231, comm="VLLM::Worker_TP"))))
    assert "host-oom-kill" not in t.by_id and t.state == "healthy"


def test_a_kill_at_the_onset_of_a_stall_without_a_death_is_not_established(told):
    node = serving()
    node.stall(900)
    t = told(n1__log=node, n1__kernel_log=kernel("n1", (899, KILLED.format(pid=88231, comm="VLLM::Worker_TP"))))
    assert t.grade("host-oom-kill") == "supported"


def test_a_follower_s_worker_is_joined_by_the_peer_that_the_head_lost(told):
    head, place = serving(), "world_size=4 rank={r} local_rank={r} distributed_init_method=tcp://192.0.2.1:43615 backend=nccl"
    head.lines = [line for line in head.lines if "rank 2 in" not in line and "rank 3 in" not in line]
    head.say(9, "Worker_TP0", 501, "INFO", place.format(r=0), "parallel_state.py:1607")
    head.raw(
        "[rank0]:[W407 09:15:08.656957424 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=78, addr=[n1]:42386, remote=[n2]:49557): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
    )
    head.stall(900)
    follower = f"(Worker_TP2 pid=300) INFO 04-07 09:00:09 [parallel_state.py:1607] {place.format(r=2)}\n"
    t = told(n1__log=head, n2__log=follower, n2__kernel_log=kernel("n2", (907, KILLED.format(pid=77123, comm="VLLM::Worker_TP"))))
    assert t.grade("host-oom-kill") == "established"
    assert t.by_id["host-oom-kill"].nodes == ("n2",) and t.by_id["host-oom-kill"].ranks == ()
