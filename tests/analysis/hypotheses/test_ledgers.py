"""Each suspicion with each verdict it can get, and nothing refuted by a reading of another time, node or part."""

from __future__ import annotations

import json

import pytest

from forensics.analysis import analyze
from forensics.analysis.hypotheses import UnknownHypothesis, check, names, suspicions
from tests.analysis.hypotheses.conftest import sound
from tests.analysis.scene import API, CORE, IN_STEP, NODE, T0, WORKER

SECOND = 10**9
STATS = "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: {gen} tokens/s, Running: 4 reqs, Waiting: {w} reqs, GPU KV cache usage: {kv}%"


def stalled(s, at_s: float = -20.0, waiting: int = 0, kv: float = 5.0, before_s: int = 240, gen: float = 50.0):
    """A standstill with a stopped rank, dated by the last of its stats lines."""
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    for back in range(before_s, -1, -10):
        s.log(at_s - back, "APIServer", API, "INFO", STATS.format(gen=gen, w=waiting, kv=kv), "loggers.py:1")
    return s


def shot(s, collector: str, name: str, files: dict[str, str], at_s: float = 1.0) -> None:
    s._fileset(collector, name, files, T0 + int(at_s * SECOND))


def gpu(s, *, at_s: float = 1.0, **fields) -> None:
    body = {"index": 0, "name": "H200", "utilization_percent": 3, "power_mw": 71_000, "power_limit_mw": 700_000, "temperature_c": 41}
    body |= {"memory_used_bytes": 70 * 2**30, "memory_total_bytes": 140 * 2**30, "throttle_bits": 0x1} | fields
    s._add("gpu", f"gpu/gpu-0.{len(s.extra)}.json", "nvml", json.dumps(body), at=T0 + int(at_s * SECOND))


def no_gpu(s) -> None:
    from forensics.model import Outcome

    s._attempt("gpu", None, 0, Outcome.ABSENT, "libnvidia-ml.so.1 is not installed", T0)


def zone(celsius: int, trip: int = 95) -> dict[str, str]:
    base = "/sys/class/thermal/thermal_zone4"
    trips = {f"{base}/trip_point_0_type": "critical", f"{base}/trip_point_0_temp": str(trip * 1000)}
    return {f"{base}/type": "acpitz", f"{base}/temp": str(celsius * 1000), **trips}


def host_cpu(s, busy: int, load: float, at_s: float = 1.0, pressure: str = "") -> None:
    for sample, ticks in ((1, 1000), (2, 1000 + busy)):
        stat = f"cpu  {ticks} 0 0 {2000 if sample == 1 else 2200 - busy - 0} 0 0 0 0\n" + "".join(f"cpu{i} 1\n" for i in range(8))
        files = {"/proc/stat": stat, "/proc/loadavg": f"{load} 1 1 1/100 4"}
        files |= {"/proc/pressure/cpu": pressure} if pressure else {}
        s._fileset("cpu", f"cpu/host.{sample}.json", files, T0 + int((at_s + 2 * sample) * SECOND), sample=sample)


# ---- the whole set


def test_four_are_always_answered_and_the_others_when_asked(scene):
    bundle = scene().bundle()
    assert [h.name for h in analyze([bundle]).hypotheses] == ["cpu", "memory", "power", "thermal"]
    report = analyze([bundle], hypotheses=["overload", "memory", "patch:spin"])
    assert [(h.name, h.asked) for h in report.hypotheses] == [
        ("cpu", False),
        ("memory", True),
        ("power", False),
        ("thermal", False),
        ("overload", True),
        ("patch:spin", True),
    ]


def test_unknown_names_are_refused_with_the_list():
    for name in ("gremlins", "patch", "patch:", "memory:x"):
        with pytest.raises(UnknownHypothesis, match="cpu, memory, power, thermal, network, overload, patch:NAME"):
            check([name])
    check([n.replace("NAME", "my-patch") for n in names()])


def test_every_suspicion_says_what_it_claims():
    for s in suspicions():
        assert s.claim and s.does_not_show and s.name == s.name.lower()


def test_nothing_read_is_never_refuted(tmp_path):
    (tmp_path / "node0.log").write_text("(EngineCore pid=1) ERROR 09-01 08:15:00 [core.py:1] EngineCore encountered a fatal error.\n")
    for h in analyze([tmp_path], hypotheses=["overload", "network", "patch:x"]).hypotheses:
        sound(h)
        assert h.verdict.value == "not assessable", h
        assert "not looked at" in h.sentence and h.unread


def test_machines_without_an_engine_are_answered_too(tmp_path):
    (tmp_path / "node0.meminfo.txt").write_text("MemTotal: 100000000 kB\nMemFree: 5000000 kB\nMemAvailable: 60000000 kB\n")
    found = {h.name: h for h in analyze([tmp_path]).hypotheses}
    assert list(found) == ["cpu", "memory", "power", "thermal"]
    assert "57 GiB (60%)" in found["memory"].sentence


def test_one_that_breaks_does_not_break_the_report(scene, monkeypatch):
    import dataclasses

    from forensics.analysis import hypotheses

    def broken(ask):
        raise ZeroDivisionError("defect")
        yield

    bad = tuple(dataclasses.replace(s, evaluate=broken) if s.name == "cpu" else s for s in suspicions())
    monkeypatch.setattr(hypotheses, "suspicions", lambda: bad)
    h = analyze([scene().bundle()]).hypotheses[0]
    assert h.verdict.value == "not assessable" and "our defect" in h.sentence


# ---- memory


def test_memory_is_refuted_with_its_figures_near_the_onset(scene, ledger):
    s = stalled(scene())
    no_gpu(s)
    h = ledger(s, "memory")
    assert h.verdict.value == "refuted"
    assert "57 GiB (60%) of the host's memory was available" in h.sentence and "after the onset" in h.sentence
    assert {e.part for e in h.against} == {"host memory", "the container's memory limit", "/dev/shm", "the KV cache"}


@pytest.mark.parametrize("change", ["memory", "kernel", "rpclogs"])
def test_memory_with_a_part_unread_is_not_refuted(scene, ledger, change):
    """The host's memory unread, the container's limit, GPUs that neither NVML nor a log speaks of."""
    s = stalled(scene())
    s.denied[change] = "DENIED"
    h = ledger(s, "memory")
    assert h.verdict.value == "not assessable"
    assert h.unread


def test_memory_read_hours_after_the_onset_refutes_nothing(scene, ledger):
    s = stalled(scene(), at_s=-4 * 3600)
    s.denied["kernel"] = "DENIED"
    no_gpu(s)
    h = ledger(s, "memory")
    assert h.verdict.value == "not assessable"
    assert "host memory when the trouble began" in h.sentence
    assert any("h after the onset" in e.text or "h " in e.text for e in h.against)


def test_memory_is_supported_by_a_kill_of_the_engine_s_own_process(scene, ledger):
    s = stalled(scene())
    s.kernel += "Sep  1 09:59:38 alpha7 kernel: Out of memory: Killed process 5301 (VLLM::Worker) total-vm:1kB\n"
    h = ledger(s, "memory")
    assert h.verdict.value == "supported"
    assert {e.finding for e in h.supporting} >= {"memory-exhaustion"}


def test_memory_is_possible_where_somebody_else_was_killed(scene, ledger):
    s = stalled(scene())
    s.kernel += "Sep  1 09:59:00 alpha7 kernel: Out of memory: Killed process 77 (pytest) total-vm:1kB\n"
    assert ledger(s, "memory").verdict.value == "possible"


def test_a_full_kv_cache_with_a_queue_is_possible(scene, ledger):
    h = ledger(stalled(scene(), waiting=3, kv=99.5), "memory")
    assert h.verdict.value == "possible"
    assert "KV cache was at most 100% full, with 3 waiting" in h.sentence or "99% full" in h.sentence


def test_gpu_memory_is_refuted_by_what_is_free_and_not_by_what_is_used(scene, ledger):
    s = stalled(scene())
    gpu(s)
    h = ledger(s, "memory")
    assert any(e.part == "GPU memory" and "70.0 GiB" in e.text and e.decides for e in h.against)
    s = stalled(scene())
    gpu(s, memory_used_bytes=139 * 2**30)
    h = ledger(s, "memory")
    assert not any(e.part == "GPU memory" and e.decides for e in h.against)
    assert h.verdict.value == "refuted"  # engines fill a GPU on purpose; no allocation failed in the log, which goes over the onset


# ---- thermal


def test_thermal_is_refuted_against_the_sensor_s_own_trip(scene, ledger):
    s = stalled(scene())
    shot(s, "thermal", "thermal/zones.1.json", zone(61))
    no_gpu(s)
    h = ledger(s, "thermal")
    assert h.verdict.value == "refuted"
    assert "61 C against a critical trip of 95 C" in h.sentence


def test_a_cool_sensor_long_after_the_onset_refutes_nothing(scene, ledger):
    s = stalled(scene(), at_s=-1200)
    shot(s, "thermal", "thermal/zones.1.json", zone(61))
    no_gpu(s)
    h = ledger(s, "thermal")
    assert h.verdict.value == "not assessable"
    assert "20 min" in h.sentence or "19 min" in h.sentence


def test_cool_sensors_leave_unread_gpus_open(scene, ledger):
    s = stalled(scene())
    shot(s, "thermal", "thermal/zones.1.json", zone(61))
    h = ledger(s, "thermal")
    assert h.verdict.value == "not assessable" and "GPUs' temperature" in h.sentence


def test_a_gpu_that_lowers_its_clock_for_heat_supports_it(scene, ledger):
    s = stalled(scene())
    gpu(s, throttle_bits=0x40, temperature_c=91)
    h = ledger(s, "thermal")
    assert h.verdict.value == "supported" and "slows down for heat: 71 of 700 W, 91 C" in h.sentence


def test_a_sensor_near_its_trip_is_possible_and_no_more(scene, ledger):
    s = stalled(scene())
    shot(s, "thermal", "thermal/zones.1.json", zone(93))
    assert ledger(s, "thermal").verdict.value == "possible"


def test_nobody_looked_at_the_temperature(scene, ledger):
    assert ledger(stalled(scene()), "thermal").verdict.value == "not assessable"


# ---- CPU


def test_cpu_is_refuted_by_idle_cpus(scene, ledger):
    s = stalled(scene())
    host_cpu(s, 40, 1.5)
    h = ledger(s, "cpu")
    assert h.verdict.value == "refuted"
    assert "20% busy, load 1.5 on 8 CPUs" in h.sentence


def test_cpu_is_supported_where_tasks_queue_for_it(scene, ledger):
    s = stalled(scene())
    host_cpu(s, 199, 40.0)
    assert ledger(s, "cpu").verdict.value == "supported"


def schedstat(s, pid: int, waited_s: float) -> None:
    """What the kernel counts for a process's main thread over 13 s: how long it waited for a processor."""
    task = f"/proc/{pid}/task/{pid}"
    stat = f"{pid} (VLLM) S 1 " + " ".join(["0"] * 9) + " 0 0 0 0 20 0 4 0 12 0 1000 " + " ".join(["0"] * 28)
    for sample, waited in ((1, 0.0), (3, waited_s)):
        files = {f"{task}/stat": stat, f"{task}/schedstat": f"1000 {int(waited * SECOND)} 5"}
        s._fileset("cpu", f"cpu/waits-{pid}.{sample}.json", files, T0 + (13 * SECOND if sample > 1 else 0), pid, sample)


@pytest.mark.parametrize(("waited_s", "verdict"), [(0.1, "possible"), (6.0, "supported")])
def test_a_full_machine_is_nothing_to_an_engine_that_is_not_kept_waiting(scene, ledger, waited_s, verdict):
    s = stalled(scene())
    host_cpu(s, 199, 40.0)
    schedstat(s, CORE, waited_s)
    h = ledger(s, "cpu")
    assert h.verdict.value == verdict
    assert ("waited 46% of the time for a processor" in h.sentence) is (verdict == "supported")


def test_cpus_that_are_busy_without_a_queue_are_not_assessable(scene, ledger):
    s = stalled(scene())
    host_cpu(s, 170, 6.0)
    assert ledger(s, "cpu").verdict.value == "not assessable"


def test_full_cpus_long_after_the_onset_are_possible(scene, ledger):
    s = stalled(scene(), at_s=-7200)
    host_cpu(s, 199, 40.0)
    assert ledger(s, "cpu").verdict.value == "possible"


def test_idle_cpus_after_the_engine_ended_refute_nothing(scene, ledger):
    s = stalled(scene())
    s.log(-5, "EngineCore", CORE, "ERROR", "EngineCore encountered a fatal error.")
    host_cpu(s, 40, 1.5)
    h = ledger(s, "cpu")
    assert h.verdict.value == "not assessable"
    assert "after the end of a process" in h.sentence


# ---- power


def test_power_is_refuted_by_the_clocks_event_reasons(scene, ledger):
    s = stalled(scene())
    gpu(s)
    h = ledger(s, "power")
    assert h.verdict.value == "refuted"
    assert "1 GPU(s) neither capped nor braked, the most drawn was 71 W of 700 W" in h.sentence


def test_a_power_brake_supports_it(scene, ledger):
    s = stalled(scene())
    gpu(s, throttle_bits=0x88)
    assert ledger(s, "power").verdict.value == "supported"


def test_a_cap_at_full_draw_is_ordinary_work(scene, ledger):
    s = stalled(scene())
    gpu(s, throttle_bits=0x4, power_mw=699_000)
    assert ledger(s, "power").verdict.value == "possible"


def test_draw_alone_does_not_refute_power(scene, ledger):
    s = stalled(scene())
    gpu(s, throttle_bits=None)
    h = ledger(s, "power")
    assert h.verdict.value == "not assessable" and "71 W" in h.sentence


def test_a_machine_that_caps_in_secret_is_not_cleared_by_its_reasons(scene, ledger):
    s = stalled(scene())
    gpu(s, name="NVIDIA GB10", power_limit_mw=None)
    h = ledger(s, "power")
    assert h.verdict.value == "not assessable" and "without saying so" in h.sentence


def test_a_machine_without_gpus_tells_nothing_of_power(scene, ledger):
    s = stalled(scene())
    no_gpu(s)
    assert ledger(s, "power").verdict.value == "not assessable"


# ---- overload


def test_overload_is_refuted_by_an_empty_queue_before_the_onset(scene, ledger):
    h = ledger(stalled(scene()), "overload")
    assert h.verdict.value == "refuted"
    assert "nothing waited and at most 4 ran, KV cache at most 5% full" in h.sentence


def test_a_queue_before_a_standstill_is_possible_and_never_more(scene, ledger):
    h = ledger(stalled(scene(), waiting=7, kv=99.0), "overload")
    assert h.verdict.value == "possible"
    assert "backlog-before-onset" in {e.finding for e in h.supporting}


def test_a_full_engine_that_moves_is_overloaded(scene, ledger):
    s = scene()
    for back in range(240, -1, -10):
        s.log(-back, "APIServer", API, "INFO", STATS.format(gen=50.0, w=7, kv=99.0), "loggers.py:1")
    h = ledger(s, "overload")
    assert h.verdict.value == "supported"


def test_overload_without_a_look_at_the_queue_is_not_assessable(scene, ledger):
    s = scene()
    s.metrics = []
    s.log(-5, "EngineCore", CORE, "ERROR", "EngineCore encountered a fatal error.")
    assert ledger(s, "overload").verdict.value == "not assessable"


def test_a_short_queue_is_no_overload_and_not_refuted_either(scene, ledger):
    s = stalled(scene(), before_s=40, waiting=2)
    assert ledger(s, "overload").verdict.value in ("not assessable", "possible")


# ---- network


def test_ranks_of_one_machine_need_no_network(scene, ledger):
    h = ledger(stalled(scene()), "network")
    assert h.verdict.value == "refuted" and "all 2 ranks" in h.sentence


def test_a_kv_connector_may_talk_to_another_machine(scene, ledger):
    s = scene(served=False)
    s.log(-120, "APIServer", API, "INFO", "non-default args: {'model_tag': '/m', 'kv_transfer_config': {'kv_connector': 'NixlConnector'}}")
    for rank in range(2):
        place = f"rank {rank} in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank {rank}, EP rank N/A"
        s.log(-110, "Worker", WORKER + rank, "INFO", place)
    assert ledger(stalled(s), "network").verdict.value == "not assessable"


COUNTERS = "# sampled_at {}\nrocep1s0f0 port 1 port_rcv_errors {}\nrocep1s0f0 port 1 link_downed 0\n"


def two_nodes(tmp_path, **files: str):
    """Two nodes of one engine, mailed as bare logs: the head times out. Further files by their stem."""
    head = (
        "(APIServer pid=1) INFO 09-01 09:50:00 [utils.py:1] non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2, 'nnodes': 2, 'master_addr': '192.0.2.1'}\n"
        "(EngineCore pid=2) INFO 09-01 09:50:01 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='/m', tensor_parallel_size=2, pipeline_parallel_size=1\n"
        "(Worker_TP0 pid=3) INFO 09-01 09:50:02 [p.py:1] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl\n"
        "(EngineCore pid=2) ERROR 09-01 10:05:00 [core.py:1] EngineCore encountered a fatal error.\n"
        "(EngineCore pid=2) ERROR 09-01 10:05:00 [core.py:1] TimeoutError: RPC call to sample_tokens timed out.\n"
    )
    other = (
        "(MainProcess pid=1) INFO 09-01 09:50:00 [utils.py:1] non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2, 'nnodes': 2, 'node_rank': 1, 'master_addr': '192.0.2.1', 'headless': True}\n"
        "(Worker_TP1 pid=4) INFO 09-01 09:50:02 [p.py:1] world_size=2 rank=1 local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl\n"
    )
    (tmp_path / "node0.log").write_text(head)
    (tmp_path / "node1.log").write_text(other)
    for stem, text in files.items():
        (tmp_path / f"{stem.replace('_', '.')}.txt").write_text(text)
    return next(h for h in analyze([tmp_path], hypotheses=["network"]).hypotheses if h.name == "network")


def test_counters_of_one_node_do_not_clear_the_other(tmp_path):
    h = two_nodes(tmp_path, node0_rdma=COUNTERS.format("2026-09-01T10:06:00Z", 0))
    assert h.verdict.value == "not assessable", h
    assert "Refuted for node0: " in h.sentence
    assert "for node1: not looked at: error counters of the network ports" in h.sentence


def test_counters_of_both_nodes_refute_it_only_when_read_after_the_onset(tmp_path):
    late = {f"node{n}_rdma": COUNTERS.format("2026-09-01T10:06:00Z", 0) for n in (0, 1)}
    assert two_nodes(tmp_path, **late).verdict.value == "refuted"
    early = {f"node{n}_rdma": COUNTERS.format("2026-09-01T09:00:00Z", 0) for n in (0, 1)}
    assert two_nodes(tmp_path, **early).verdict.value == "not assessable"


def test_counters_of_a_node_that_stand_above_zero_do_not_clear_it_by_one_look(tmp_path):
    """What they count may have come at the onset or a month before: only a look from before the onset tells."""
    once = {"node0_rdma": COUNTERS.format("2026-09-01T10:06:00Z", 0), "node1_rdma": COUNTERS.format("2026-09-01T10:06:00Z", 7)}
    h = two_nodes(tmp_path, **once)
    assert h.verdict.value == "not assessable" and {n.node: n.verdict.value for n in h.nodes}["node0"] == "refuted"
    early = COUNTERS.format("2026-09-01T09:50:30Z", 7)
    assert two_nodes(tmp_path, **once | {"node1_rdma": early + once["node1_rdma"]}).verdict.value == "refuted"


def test_counters_that_moved_support_it(tmp_path):
    moved = COUNTERS.format("2026-09-01T09:59:00Z", 0) + COUNTERS.format("2026-09-01T10:06:00Z", 41)
    assert two_nodes(tmp_path, node1_rdma=moved).verdict.value == "supported"


def test_without_counters_the_network_is_not_assessable(tmp_path):
    assert two_nodes(tmp_path).verdict.value == "not assessable"


def test_a_port_that_went_down_supports_it(scene, ledger):
    s = stalled(scene())
    s.kernel += "Sep  1 09:59:35 alpha7 kernel: mlx5_core 0000:c1:00.0 mlx5_0: Port: 1 Link DOWN\n"
    h = ledger(s, "network")
    assert h.verdict.value == "supported" and "rdma-port-down" in {e.finding for e in h.supporting}


# ---- patch

PATCH = '[[patch]]\nname = "spin"\nmodule = "vllm.x"\ncontains = "busy = 0.002"\n'


def with_patch(s, **per_pid):
    s._add("patches", "patches/patches.toml", "patches-toml", PATCH)
    for pid in (API, CORE, WORKER, WORKER + 1):
        row = {"patch": "spin", "pid": pid, "path": "/site/vllm/x.py", "exists": True, "mtime_ns": 5, "ctime_ns": 5, "image_started_ns": 9}
        row |= {"contains": True, "sha256": "aa"} | per_pid.get(f"p{pid}", {})
        s._add("patches", f"patches/pid-{pid}.json", "patch-witness", json.dumps([row]), pid=pid)
    return s


def test_a_live_patch_has_possibly_a_part_and_is_not_sufficient(scene, ledger):
    h = ledger(with_patch(stalled(scene())), "patch:spin")
    assert h.verdict.value == "possible"
    assert "not sufficient against this failure" in h.sentence and h.claim == 'Patch "spin" has a part in the failure'


def test_a_patch_that_is_nowhere_live_has_no_part(scene, ledger):
    gone = {f"p{pid}": {"contains": False} for pid in (API, CORE, WORKER, WORKER + 1)}
    h = ledger(with_patch(stalled(scene()), **gone), "patch:spin")
    assert h.verdict.value == "refuted"


def test_a_patch_in_exactly_the_rank_that_broke_is_supported(scene, ledger):
    gone = {f"p{pid}": {"contains": False} for pid in (API, CORE, WORKER)}
    h = ledger(with_patch(stalled(scene()), **gone), "patch:spin")
    assert h.verdict.value == "supported"


def test_an_unreadable_patch_is_not_assessable(scene, ledger):
    blind = {f"p{pid}": {"exists": None, "contains": None, "error": "EACCES"} for pid in (API, CORE, WORKER, WORKER + 1)}
    assert ledger(with_patch(stalled(scene()), **blind), "patch:spin").verdict.value == "not assessable"


def test_a_patch_that_nobody_stated_is_not_assessable_and_the_stated_ones_are_named(scene, ledger):
    h = ledger(with_patch(stalled(scene())), "patch:other")
    assert h.verdict.value == "not assessable" and "those stated are spin" in h.sentence


def test_where_nothing_broke_no_patch_is_blamed(scene, ledger):
    h = ledger(with_patch(scene()), "patch:spin")
    assert h.verdict.value == "not assessable" and NODE not in h.sentence
