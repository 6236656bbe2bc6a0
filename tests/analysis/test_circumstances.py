"""Memory, CPU, heat, the machine, load, and patches: each fires, is refuted or clear, or cannot tell."""

from __future__ import annotations

import json

import pytest

from forensics.analysis import analyze
from tests.analysis.conftest import Told
from tests.analysis.scene import API, CORE, IN_STEP, T0, WORKER
from tests.bench.bench_fleet import fleet


def test_memory_is_refuted_with_figures(scene, tell):
    told = tell(scene())
    finding = told.by_id["memory-exhaustion"]
    assert finding.grade.value == "refuted"
    assert "57 GiB (60%)" in finding.title and finding.against


def test_memory_that_ran_out_is_an_amplifier_and_never_the_root(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.kernel += "Sep  1 09:59:00 alpha7 kernel: Out of memory: Killed process 5301 (VLLM::Worker) total-vm:1kB\n"
    told = tell(s)
    assert told.grade("memory-exhaustion") == "established"
    assert told.root[0] != "memory-exhaustion"
    assert told.grade("host-stable") is None


def test_a_kill_of_somebody_else_is_no_more_than_possible(scene, tell):
    s = scene()
    s.kernel += "Sep  1 09:59:00 alpha7 kernel: Out of memory: Killed process 77 (pytest) total-vm:1kB\n"
    assert tell(s).grade("memory-exhaustion") == "possible"
    s = scene()
    s.kernel += "Aug 30 09:59:00 alpha7 kernel: Out of memory: Killed process 77 (pytest) total-vm:1kB\n"
    assert tell(s).grade("memory-exhaustion") == "refuted"


def test_memory_nobody_read_is_not_called_sufficient(scene, tell):
    s = scene()
    s.denied["memory"] = "DENIED"
    told = tell(s)
    assert told.grade("memory-exhaustion") is None
    assert told.rule("memory_exhaustion") == "INCONCLUSIVE"


def test_host_stable_only_for_kernels_that_were_read(scene, tell):
    assert tell(scene()).grade("host-stable") == "established"
    s = scene()
    s.denied["kernel"] = "DENIED"
    told = tell(s)
    assert told.grade("host-stable") is None
    assert told.rule("host_stable") == "INCONCLUSIVE"
    assert "evidence-missing:kernel" in told.by_id


def host_cpu(busy: int, total: int, load: float) -> dict[str, str]:
    return {"/proc/stat": f"cpu  {busy} 0 0 {total - busy} 0 0 0 0\ncpu0 1\ncpu1 1\n", "/proc/loadavg": f"{load} 1 1 9/100 4"}


@pytest.mark.parametrize(("busy", "load", "grade"), [(198, 40.0, "established"), (199, 1.0, "established"), (100, 40.0, None)])
def test_cpu_saturation_is_measured_over_the_capture(scene, tell, busy, load, grade):
    s = scene()
    s._fileset("cpu", "cpu/host.1.json", host_cpu(1000, 2000, load), T0, sample=1)
    s._fileset("cpu", "cpu/host.2.json", host_cpu(1000 + busy, 2200, load), T0 + 2 * 10**9, sample=2)
    told = tell(s)
    assert told.grade("cpu-saturated") == grade
    if grade:
        assert told.by_id["cpu-saturated"].role.value == "amplifier"


def zone(milli: int, trip: int, kind: str = "critical") -> dict[str, str]:
    base = "/sys/class/thermal/thermal_zone4"
    return {f"{base}/type": "acpitz", f"{base}/temp": str(milli), f"{base}/trip_point_0_type": kind, f"{base}/trip_point_0_temp": str(trip)}


@pytest.mark.parametrize(("files", "hot"), [(zone(101_000, 105_000), True), (zone(70_000, 105_000), False), (zone(95_000, 0), False)])
def test_heat_is_judged_against_the_sensor_s_own_trip(scene, tell, files, hot):
    s = scene()
    s._fileset("thermal", "thermal/zones.1.json", files, T0)
    told = tell(s)
    assert (told.grade("thermal-high") == "established") is hot
    assert told.rule("thermal_high") == ("FIRED" if hot else "CLEAR")
    assert told.root == (None, None)


def test_nobody_looked_at_the_temperature(scene, tell):
    assert tell(scene()).rule("thermal_high") == "INCONCLUSIVE"


def test_throttling_counts_only_when_it_grew_during_the_capture(scene, tell):
    path = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    s = scene()
    for sample, count in ((1, 900), (2, 900)):
        s._fileset("thermal", f"thermal/zones.{sample}.json", {path: str(count)}, T0 + sample, sample=sample)
    assert tell(s).grade("thermal-throttled") is None
    s = scene()
    for sample, count in ((1, 900), (2, 903)):
        s._fileset("thermal", f"thermal/zones.{sample}.json", {path: str(count)}, T0 + sample, sample=sample)
    assert tell(s).grade("thermal-throttled") == "established"


STATS = "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: {gen} tokens/s, Running: 4 reqs, Waiting: {w} reqs, GPU KV cache usage: 5.0%"


def test_load_and_backlog_before_the_onset(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    for at in range(-90, -5, 10):
        s.log(at - 300, "APIServer", API, "INFO", STATS.format(gen=50.0, w=3), "loggers.py:1")
    for at in range(-290, 0, 10):
        s.log(at, "APIServer", API, "INFO", STATS.format(gen=50.0, w=3), "loggers.py:1")
    told = tell(s)
    assert told.grade("load-at-onset") == "established"
    assert told.grade("backlog-before-onset") == "established"
    assert told.by_id["backlog-before-onset"].role.value == "context"


def test_a_burst_is_no_backlog(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    for at in range(-290, 0, 10):
        s.log(at, "APIServer", API, "INFO", STATS.format(gen=50.0, w=3 if at > -40 else 0), "loggers.py:1")
    assert tell(s).grade("backlog-before-onset") is None


PATCH = '[[patch]]\nname = "spin"\nmodule = "vllm.x"\ncontains = "busy = 0.002"\n'


def with_patch(s, **per_pid) -> None:
    s._add("patches", "patches/patches.toml", "patches-toml", per_pid.pop("toml", PATCH))
    for pid in (API, CORE, WORKER, WORKER + 1):
        row = {
            "patch": "spin",
            "pid": pid,
            "path": "/site/vllm/x.py",
            "exists": True,
            "mtime_ns": 5,
            "ctime_ns": 5,
            "image_started_ns": 9,
            "contains": True,
            "sha256": "aa",
        }
        row |= per_pid.get(f"p{pid}", {})
        s._add("patches", f"patches/pid-{pid}.json", "patch-witness", json.dumps([row]), pid=pid)


def test_a_patch_that_is_live_in_every_process(scene, tell):
    s = scene()
    with_patch(s)
    told = tell(s)
    assert told.grade("patch-live") == "established"
    assert not {"patch-absent", "patch-stale", "patch-inconsistent", "patch-live-and-failed"} & set(told.by_id)


def test_a_file_changed_after_the_process_started_is_not_live(scene, tell):
    s = scene()
    with_patch(s, **{f"p{WORKER + 1}": {"ctime_ns": 50}})
    told = tell(s)
    assert told.by_id["patch-stale"].pids == (WORKER + 1,)
    assert told.by_id["patch-stale"].ranks == (1,)
    assert told.grade("patch-inconsistent") == "established"


def test_a_patch_that_is_absent_or_unreadable(scene, tell):
    s = scene()
    with_patch(s, **{f"p{WORKER}": {"contains": False}, f"p{CORE}": {"exists": None, "contains": None, "error": "EACCES"}})
    told = tell(s)
    assert told.by_id["patch-absent"].ranks == (0,)
    assert told.by_id["patch-unreadable"].pids == (CORE,)


def test_a_failure_with_the_patch_live_says_it_is_not_sufficient(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    with_patch(s)
    told = tell(s)
    assert told.grade("patch-live-and-failed") == "established"
    assert "may still be" in told.by_id["patch-live-and-failed"].does_not_show


def test_without_patches_the_question_does_not_arise(scene, tell):
    assert tell(scene()).rule("patch") == "NOT_APPLICABLE"


def test_two_engines_on_one_node_are_kept_apart(tmp_path):
    """One stands still, one serves: the verdict on top is the worse one's, and neither borrows the other's evidence."""
    (tmp_path / "node3.a.log").write_text(LOG.format(core=11, worker=12, gen="0.0") * 1 + STALL.format(core=11))
    (tmp_path / "node3.b.log").write_text(LOG.format(core=21, worker=22, gen="90.0"))
    told = Told(analyze([tmp_path]))
    states = {e.processes[0].pid // 10: e.verdict.state for e in told.report.engines}
    assert len(told.report.engines) == 2
    assert states[1] == "dead" and states[2] == "healthy"
    assert told.state == "dead"
    dead = next(e.id for e in told.report.engines if e.verdict.state == "dead")
    assert {f.engine for f in told.report.findings if f.id == "symptom-rpc-timeout"} == {dead}


LOG = (
    "(EngineCore pid={core}) INFO 09-01 08:00:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: tensor_parallel_size=1, pipeline_parallel_size=1\n"
    "(Worker pid={worker}) INFO 09-01 08:00:01 [p.py:1] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A\n"
    "(EngineCore pid={core}) INFO 09-01 08:10:00 [l.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {gen} tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%\n"
)
STALL = (
    "(EngineCore pid={core}) ERROR 09-01 08:15:00 [core.py:1] EngineCore encountered a fatal error.\n"
    "(EngineCore pid={core}) ERROR 09-01 08:15:00 [core.py:1] TimeoutError: RPC call to sample_tokens timed out.\n"
)


def test_what_nobody_recognised_is_listed(tmp_path):
    (tmp_path / "n.log").write_text(LOG.format(core=1, worker=2, gen="5.0"))
    (tmp_path / "core.dump").write_bytes(b"\x7fELF\0\0\0\0junk")
    assert any("core.dump" in line for line in analyze([tmp_path]).unread)


def test_a_rule_that_breaks_does_not_break_the_report(scene, monkeypatch):
    import dataclasses

    from forensics.analysis import engine
    from forensics.analysis.rules import rules

    def broken(view):
        raise ZeroDivisionError("rule defect")
        yield

    bad = dataclasses.replace(rules()[0], evaluate=broken)
    monkeypatch.setattr(engine, "rules", lambda: (bad, *rules()[1:]))
    told = Told(analyze([scene().bundle()]))
    assert told.rule(bad.name) == "ERRORED"
    assert told.state == "healthy"


def test_every_finding_has_evidence_and_says_so(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    for finding in tell(s).report.findings:
        assert finding.because, finding.id
        assert all(ref.source and ref.locator for ref in finding.because), finding.id


def cgroup(current_gib: float, cache_gib: float | None, limit_gib: int = 16) -> dict[str, str]:
    folder = "/sys/fs/cgroup/kubepods/pod1"
    files = {f"{folder}/memory.current": str(int(current_gib * 2**30)), f"{folder}/memory.max": str(limit_gib << 30)}
    if cache_gib is not None:
        files[f"{folder}/memory.stat"] = f"anon 1\nactive_file {int(cache_gib * 2**29)}\ninactive_file {int(cache_gib * 2**29)}\nshmem 5\n"
    return files


def test_a_container_at_its_limit_with_page_cache_has_memory(scene, tell):
    s = scene()
    s._fileset("process", "process/cg.1.json", cgroup(15.9, 12), T0, sample=1)
    finding = tell(s).by_id["memory-exhaustion"]
    assert finding.grade.value == "refuted" and "12 GiB (76%) of the limit of cgroup:/kubepods/pod1" in finding.title


def test_a_container_at_its_limit_without_page_cache_is_short(scene, tell):
    s = scene()
    s._fileset("process", "process/cg.1.json", cgroup(15.9, 0.01), T0, sample=1)
    assert tell(s).grade("memory-exhaustion") == "possible"
    s = scene()
    s._fileset("process", "process/cg.1.json", cgroup(15.0, 0.1), T0, sample=1)
    told = tell(s)
    assert told.grade("memory-exhaustion") is None and told.rule("memory_exhaustion") == "INCONCLUSIVE"


def test_how_much_of_it_is_cache_was_not_read(scene, tell):
    s = scene()
    s._fileset("process", "process/cg.1.json", cgroup(15.9, None), T0, sample=1)
    finding = tell(s).by_id["memory-exhaustion"]
    assert finding.grade.value == "refuted" and "which was not read" in finding.does_not_show


def test_a_kill_is_told_in_words(scene, tell):
    s = scene()
    s.kernel += "Sep  1 09:59:00 alpha7 kernel: Out of memory: Killed process 5301 (VLLM::Worker) total-vm:1kB, anon-rss:1kB\n"
    title = tell(s).by_id["memory-exhaustion"].title
    assert title == "Memory ran out: the kernel killed VLLM::Worker (pid 5301) on alpha7 at 2026-09-01T09:59:00Z"


def test_memory_that_was_read_long_before_the_trouble_refutes_nothing(tmp_path):
    (tmp_path / "node3.log").write_text(LOG.format(core=11, worker=12, gen="0.0") + STALL.format(core=11))
    (tmp_path / "node3.meminfo").write_text(
        "# captured_at 2026-09-01T06:00:00Z\nMemTotal: 100000000 kB\nMemFree: 5000000 kB\nMemAvailable: 60000000 kB\n"
    )
    told = Told(analyze([tmp_path]))
    assert told.grade("memory-exhaustion") is None and told.rule("memory_exhaustion") == "INCONCLUSIVE"


def test_memory_of_one_node_says_nothing_of_the_other(tmp_path):
    paths = fleet(tmp_path, 2)
    assert Told(analyze(paths)).by_id["memory-exhaustion"].nodes == ("node0000", "node0001")
    other = tmp_path / "without"
    paths = fleet(other, 2, without={1: {"memory"}})
    finding = Told(analyze(paths)).by_id["memory-exhaustion"]
    assert finding.nodes == ("node0000",) and "node0001" in finding.does_not_show
