"""What slows a machine down without stopping it: heat, power, processors that are wanted by others. Never the root of a standstill."""

from __future__ import annotations

import json

import pytest

from tests.analysis.scene import CORE, IN_STEP, T0, WORKER

BRAKE, CAP, HW, SW_THERMAL = 0x80, 0x4, 0x8, 0x20


def gpu(s, index: int, bits: int | None, pid: int | None = None, **more) -> None:
    reading = {"index": index, "name": "NVIDIA H200", "utilization_percent": 98, "power_mw": 699_000, "power_limit_mw": 700_000}
    reading |= {"temperature_c": 64, "clocks_mhz": {"sm": 1410, "sm_max": 1980}, "throttle_bits": bits}
    reading |= {"processes": [{"pid": WORKER + index if pid is None else pid, "used_bytes": 1}], **more}
    s._add("gpu", f"gpu/{index}.json", "nvml", json.dumps(reading), at=T0)


def test_a_power_brake_is_an_amplifier_with_its_rank_and_figures(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    gpu(s, 0, 0)
    gpu(s, 1, BRAKE | HW)
    told = tell(s)
    finding = told.by_id["power-brake"]
    assert (finding.grade.value, finding.role.value, finding.ranks) == ("established", "amplifier", (1,))
    assert "GPU 1 (rank 1)" in finding.title and "699 of 700 W, 1410 of 1980 MHz, 64 C" in finding.title
    assert told.root[0] != "power-brake"


def test_hardware_that_slows_for_a_reason_the_driver_does_not_tell_is_only_possible(scene, tell):
    s = scene()
    gpu(s, 0, HW)
    assert tell(s).grade("power-brake") == "possible"
    s = scene()
    gpu(s, 0, HW | SW_THERMAL)
    told = tell(s)
    assert told.grade("power-brake") is None
    assert told.by_id["thermal-throttled"].ranks == (0,)


def test_a_cap_under_full_load_is_context(scene, tell):
    s = scene()
    gpu(s, 0, CAP)
    gpu(s, 1, CAP)
    finding = tell(s).by_id["power-capped"]
    assert (finding.grade.value, finding.role.value, finding.severity.value) == ("established", "context", "info")
    assert finding.ranks == (0, 1)


def test_a_limit_far_below_that_of_the_peers_is_more_than_context(scene, tell):
    s = scene(ranks=4)
    for index in range(3):
        gpu(s, index, CAP)
    gpu(s, 3, CAP, power_limit_mw=400_000, power_mw=399_000)
    finding = tell(s).by_id["power-capped"]
    assert finding.role.value == "amplifier" and "the limit of GPU 3 is far below" in finding.title


@pytest.mark.parametrize(
    ("more", "grade"),
    [
        ({"clocks_mhz": {"sm": 513, "sm_max": 3003}}, "possible"),
        ({"clocks_mhz": {"sm": 513, "sm_max": 3003}, "utilization_percent": 3}, None),
        ({"clocks_mhz": {"sm": 513, "sm_max": None}}, None),
        ({"clocks_mhz": {"sm": 513, "sm_max": 3003}, "throttle_bits": 0x2}, None),
    ],
)
def test_a_busy_gpu_that_crawls_without_a_reason_may_be_capped_by_firmware(scene, tell, more, grade):
    s = scene()
    gpu(s, 0, 0, **more)
    assert tell(s).grade("power-capped") == grade


def test_reasons_that_nobody_read_are_no_all_clear(scene, tell):
    assert tell(scene()).rule("gpu_power") == "INCONCLUSIVE"
    s = scene()
    gpu(s, 0, 0)
    assert tell(s).rule("gpu_power") == "CLEAR"


def test_a_gpu_of_another_engine_s_process_says_nothing_of_this_one(scene, tell):
    s = scene()
    gpu(s, 0, BRAKE, pid=999_999)  # nobody's that is known: it may be ours under another number
    assert tell(s).grade("power-brake") == "established"


ZONE = "/sys/class/thermal/thermal_zone4"


def zone(milli: int, kind: str, trip: int) -> dict[str, str]:
    return {f"{ZONE}/type": "acpitz", f"{ZONE}/temp": str(milli), f"{ZONE}/trip_point_0_type": kind, f"{ZONE}/trip_point_0_temp": str(trip)}


def test_a_host_that_is_hotter_than_its_gpus_points_at_the_host_s_side(scene, tell):
    s = scene()
    s._fileset("thermal", "thermal/zones.1.json", zone(102_000, "critical", 105_000), T0)
    gpu(s, 0, 0)
    assert "the heat is on the host's side" in tell(s).by_id["thermal-high"].title
    s = scene()
    s._fileset("thermal", "thermal/zones.1.json", zone(102_000, "critical", 105_000), T0)
    gpu(s, 0, 0, temperature_c=98)
    assert "host's side" not in tell(s).by_id["thermal-high"].title


@pytest.mark.parametrize(("milli", "severity"), [(92_000, None), (96_000, "info")])
def test_below_a_passive_trip_is_where_quiet_machines_live(scene, tell, milli, severity):
    s = scene()
    s._fileset("thermal", "thermal/zones.1.json", zone(milli, "passive", 95_000), T0)
    finding = tell(s).by_id.get("thermal-high")
    assert (finding.severity.value if finding else None) == severity


def test_a_broken_sensor_is_not_hot(scene, tell):
    s = scene()
    s._fileset("thermal", "thermal/zones.1.json", zone(255_000, "critical", 105_000), T0)
    assert tell(s).grade("thermal-high") is None


def test_a_counter_of_power_limits_is_no_heat(scene, tell):
    path = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_power_limit_count"
    s = scene()
    for sample, count in ((1, 900), (2, 990)):
        s._fileset("thermal", f"thermal/zones.{sample}.json", {path: str(count)}, T0 + sample, sample=sample)
    assert tell(s).grade("thermal-throttled") is None


HOT = "{at} alpha7 kernel: mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 7)\n"


def test_the_kernel_s_word_on_heat_counts_around_the_incident_only(scene, tell):
    s = scene()
    s.kernel = HOT.format(at="Sep  1 09:58:00")
    assert tell(s).grade("thermal-throttled") is None  # heat was never collected: INCONCLUSIVE
    s = scene()
    s.kernel = HOT.format(at="Sep  1 09:58:00")
    gpu(s, 0, 0)
    assert tell(s).grade("thermal-throttled") == "established"
    s = scene()
    s.kernel = HOT.format(at="Aug 28 09:58:00")
    gpu(s, 0, 0)
    assert tell(s).grade("thermal-throttled") is None


# ---- processors


def waited(s, pid: int, seconds: tuple[float, float]) -> None:
    stat = f"{pid} (VLLM::Worker) R {CORE} " + " ".join(["0"] * 9) + " 0 0 0 0 20 0 4 0 12 0 1000 " + " ".join(["0"] * 28)
    for sample, (at, total) in enumerate(zip((T0, T0 + 10 * 10**9), seconds, strict=True), 11):
        folder = f"/proc/{pid}/task/{pid}"
        files = {f"{folder}/stat": stat, f"{folder}/schedstat": f"5000000000 {int(total * 1e9)} 77"}
        s._fileset("cpu", f"cpu/wait-{pid}.{sample}.json", files, at, pid, sample)


def test_a_rank_that_waits_for_a_processor_is_named_and_is_no_root(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    waited(s, WORKER, (1.0, 1.1))
    waited(s, WORKER + 1, (1.0, 6.5))
    told = tell(s)
    finding = told.by_id["cpu-pressure"]
    assert (finding.grade.value, finding.role.value, finding.ranks) == ("established", "amplifier", (1,))
    assert "55%" in finding.title and told.root[0] != "cpu-pressure"


def test_a_rank_that_gets_its_processor_refutes_what_the_host_s_pressure_suggests(scene, tell):
    pressure = {"/proc/loadavg": "9 9 9 9/90 4", "/proc/pressure/cpu": "some avg10=77.00 avg60=1.00 avg300=1.00 total=1\n"}
    s = scene()
    for sample in (1, 2):
        s._fileset("cpu", f"cpu/host.{sample}.json", pressure, T0 + sample * 10**9, sample=sample)
    assert tell(s).grade("cpu-pressure") == "possible"
    s = scene()
    for sample in (1, 2):
        s._fileset("cpu", f"cpu/host.{sample}.json", pressure, T0 + sample * 10**9, sample=sample)
    for pid in (CORE, WORKER, WORKER + 1):
        waited(s, pid, (1.0, 1.1))
    told = tell(s)
    assert told.grade("cpu-pressure") is None and told.rule("cpu_pressure") == "CLEAR"


@pytest.mark.parametrize(("held", "grade"), [((100, 160), "established"), ((100, 104), None), ((900, 900), None)])
def test_a_container_that_uses_up_its_quota_during_the_capture(scene, tell, held, grade):
    s = scene()
    for sample, count in enumerate(held, 1):
        stat = f"usage_usec 1\nnr_periods {1000 + 100 * sample}\nnr_throttled {count}\nthrottled_usec {count * 1000}\n"
        files = {"/sys/fs/cgroup/pod/cpu.stat": stat, "/sys/fs/cgroup/pod/cpu.max": "400000 100000\n"}
        s._fileset("process", f"process/cg.{sample}.json", files, T0 + sample * 10**9, sample=sample)
    told = tell(s)
    assert told.grade("cpu-pressure") == grade
    if grade:
        assert "60% of its periods (quota 4 CPUs" in told.by_id["cpu-pressure"].title


def test_nobody_read_who_waits(scene, tell):
    assert tell(scene()).rule("cpu_pressure") == "INCONCLUSIVE"
