"""What is collected in which order, and when it is worth looking again. Pure functions over snapshots."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from forensics import engines
from forensics.capture.discovery import Discovery
from forensics.capture.plan import DEEPER, URGENT, Look, Standing, again, look, make_plan, request, standing, stuck
from forensics.engines import ProgressReading
from forensics.model import ProcessInfo, RankId

TITLES = {1: "python3 vllm serve m --port 8100 -tp 2", 2: "VLLM::EngineCore", 3: "VLLM::Worker_TP0", 4: "VLLM::Worker_TP1"}
PARENTS = {1: 0, 2: 1, 3: 2, 4: 2}
INFOS = [
    ProcessInfo(
        pid=pid,
        ppid=PARENTS[pid],
        argv=tuple(title.split()) if pid == 1 else (title,),
        title=title,
        start_ticks=pid * 10,
        log_files=("/l",),
        listening_ports=(8100,) if pid == 1 else (),
    )
    for pid, title in TITLES.items()
]
FOUND = Discovery(processes=tuple(INFOS), engines=tuple(engines.identify(INFOS)), node="n")


def test_volatile_things_come_first_and_are_never_niced() -> None:
    plan = make_plan(FOUND)
    assert tuple(step.collector for step in plan.urgent) == URGENT
    assert all(step.nice <= 0 for step in plan.urgent)
    assert {step.collector: step.samples for step in plan.urgent} == {"stacks": 2, "queues": 2, "process": 2, "cpu": 2, "health": 1}
    assert [step.collector for step in plan.later][:4] == ["rings", "objects", "memory", "clock"] and [
        step.collector for step in plan.later
    ][-3:] == ["rpclogs", "cores", "builds"]
    assert {step.collector for step in plan.later if step.nice > 0} == {"kernel", "rpclogs", "cores", "builds"}
    assert all(0 < step.deadline_s <= 60 for step in (*plan.urgent, *plan.later))


def test_rounds_follow_the_window_and_leave_room_before_the_deadline() -> None:
    def at(**more: float) -> list[tuple[int, float]]:
        return list(make_plan(FOUND, **more).rounds)  # type: ignore[arg-type]

    assert at() == [(3, 6.0), (4, 15.0)]
    assert at(window_s=6.0) == [(3, 6.0)]
    assert at(window_s=4.0) == [(3, 4.0)]
    assert at(window_s=0.0) == []
    assert at(deadline_s=12.0) == [(3, 4.0)]
    assert at(deadline_s=5.0) == []
    assert list(make_plan(FOUND, "minimal").rounds) == []


def test_a_further_look_continues_the_numbering() -> None:
    steps = again(make_plan(FOUND), 3)
    assert tuple(step.collector for step in steps) == (*URGENT, *DEEPER)
    assert not any(step.options.get("native") for step in steps), "nothing that disturbs while it is not known to stand still"
    assert {step.collector: step.options["native"] for step in again(make_plan(FOUND), 3, [7]) if "native" in step.options} == {
        "stacks": [7]
    }
    assert not any(step.options.get("native") for step in make_plan(FOUND).urgent)
    assert {(step.samples, step.first_sample, step.last_sample) for step in steps} == {(1, 3, 3)}


@pytest.mark.parametrize("deadline_s", [4.0, 60.0])
def test_hashing_ends_before_its_child_is_ended(deadline_s: float) -> None:
    step = next(step for step in make_plan(FOUND, deadline_s=deadline_s).later if step.collector == "builds")
    assert step.options["packages"] == {"e0": ["vllm"]} and step.options["hash_s"] == step.deadline_s / 2 <= deadline_s / 2


def test_no_process_left_means_logs_and_machine_only() -> None:
    plan = make_plan(Discovery(node="n"), logs=["/var/log/x"])
    assert plan.urgent == () and plan.rounds == ()
    assert next(step for step in plan.later if step.collector == "rpclogs").options["logs"] == ["/var/log/x"]


def test_request_names_every_process_and_gives_ports_to_the_front_end_alone() -> None:
    step = next(step for step in make_plan(FOUND).urgent if step.collector == "queues")
    asked = json.loads(json.dumps(request(step, FOUND, "/root")))
    assert asked["options"] == {"metrics_paths": ["/metrics"], "load_paths": ["/load"]}
    assert asked["sysroot"] == "/root" and asked["samples"] == 2
    told = {target["pid"]: target for target in asked["targets"]}
    assert told[1]["ports"] == [8100] and told[3]["ports"] == []
    assert told[4]["rank"] == 1 and told[4]["role"] == "worker" and told[4]["start_ticks"] == 40 and told[4]["engine"] == "e0"


# when to look again


def reading(steps: float, running: float = 0, waiting: float = 0, replica: str = "0") -> ProgressReading:
    return ProgressReading(replica=replica, counters={"steps": steps}, running=running, waiting=waiting)


def looks(*readings: list[ProgressReading], clients: int = 0) -> list[Look]:
    return [Look(progress={"e0": list(each)} if each else {}, clients={"e0": clients} if clients else {}) for each in readings]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (looks([reading(5, running=1)], [reading(5, running=1)]), "no counter moved"),
        (looks([reading(5, waiting=3)], [reading(5, waiting=3)]), "no counter moved"),
        (looks([reading(5)], [reading(5)], clients=2), "clients are connected"),
        (looks([], []), "offers no progress counters"),
        (looks([reading(5)], []), "stopped answering"),
        (looks([reading(5, 1), reading(9, 1, replica="1")], [reading(5, 1), reading(12, 1, replica="1")]), "no counter moved"),
        (looks([reading(5)], [reading(5)]), None),
        (looks([reading(5, running=1)], [reading(6, running=1)]), None),
        (looks([reading(5, running=1)], [reading(5, running=1)], [reading(6, running=1)], clients=4), None),
        (looks([reading(5), reading(9, 1, replica="1")], [reading(5), reading(12, 1, replica="1")]), None),
    ],
    ids=[
        "running and frozen", "waiting and frozen", "gauges frozen at zero, clients held", "no metrics", "metrics fell silent",
        "one replica of two", "idle", "moving", "one step in six seconds", "an idle replica beside a busy one",
    ],
)  # fmt: skip
def test_standing_still_with_work_in_hand(case: list[Look], expected: str | None) -> None:
    found = standing(FOUND.engines, case)
    assert (found == {}) if expected is None else expected in found["e0"].why
    assert all(seen.counted == seen.why.startswith("requests") for seen in found.values())


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1FA4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1
   1: 0100007F:1FA4 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 112 1
   2: 0100007F:1FA4 524F467F:C002 01 00000000:00000000 00:00000000 00000000     0        0 113 1
   3: 0100007F:C001 0100007F:1FA4 01 00000000:00000000 00:00000000 00000000     0        0 114 1
   4: 0100007F:1FA4 0100007F:C003 06 00000000:00000000 00:00000000 00000000     0        0 0 3
"""
TABLE6 = """  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00000100007F:1FA4 0000000000000000FFFF0000524F467F:D001 01 0 0
   1: 0000000000000000FFFF00000100007F:1FA4 0000000000000000FFFF00000200000A:D002 01 0 0
"""


def test_look_reads_metrics_and_counts_clients_but_not_our_own_probes() -> None:
    fileset = json.dumps({"at_ns": 1, "files": {"/proc/1/net/tcp": TABLE, "/proc/1/net/tcp6": TABLE6}, "links": {}}).encode()
    text = 'vllm:iteration_tokens_total_count{engine="0"} 7\nvllm:num_requests_running{engine="0"} 1\n'
    seen = look(FOUND.engines, [(1, text), (999, text)], [fileset, b"garbage"])
    assert seen.clients == {"e0": 2}
    assert [(one.counters["steps"], one.running) for one in seen.progress["e0"]] == [(7, 1)]


def test_only_processes_of_replicas_that_hold_work_and_stand_are_read_with_native_frames() -> None:
    engine = FOUND.engines[0]
    two = tuple(replace(p, rank=RankId(rank=0, dp=i % 2)) for i, p in enumerate(engine.processes))
    pair = [replace(engine, processes=two, dp_size=2)]
    assert stuck(pair, {engine.id: Standing("x", replicas=("1",))}) == [p.pid for i, p in enumerate(two) if i % 2]
    assert stuck(pair, {engine.id: Standing("x")}) == [p.pid for p in two]
    assert stuck(pair, {engine.id: Standing("x", counted=False)}) == [] == stuck(pair, {})


def test_beside_an_engine_that_may_be_well_only_its_core_s_values_are_read_in_memory() -> None:
    (first,) = [step for step in make_plan(FOUND).later if step.collector == "objects"]
    assert first.options["only_values_of"] == "core" and first.options["live"]
    (further,) = [step for step in again(make_plan(FOUND), 3) if step.collector == "objects"]
    assert "only_values_of" not in further.options and further.options["live"]
    # of an engine without declared values, or without a core on this node, there is nothing to read in the first look
    headless = Discovery(
        node="n", engines=(replace(FOUND.engines[0], processes=FOUND.engines[0].processes[2:]),), processes=FOUND.processes
    )
    assert not [step for step in make_plan(headless).later if step.collector == "objects"]
