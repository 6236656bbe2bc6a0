"""Sensors of recorded machines, and sensors that fail or hang."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, parse_lines

from collectors import _contract, thermal
from collectors._contract import Emitter, Request

Collect = Callable[..., Collected]


def here(request: dict[str, Any]) -> Collected:
    """In this process, so that a test can stand in for the kernel."""
    out = io.StringIO()
    thermal.collect(Request(request), Emitter("thermal", out))
    return parse_lines(out.getvalue().encode())


def test_seven_zones_of_one_name_stay_apart(collect: Collect, tmp_path: Path) -> None:
    found = collect("thermal", {"sysroot": str(trees.gb10(tmp_path)), "samples": 1})
    (attempt,) = found.attempts
    assert attempt["outcome"] == "OK" and attempt["evidence"] == ["thermal/zones.1.json"]
    files = found.json("thermal/zones.1.json")["files"]
    temps = {path: text for path, text in files.items() if path.endswith("/temp")}
    assert [temps[f"/sys/class/thermal/thermal_zone{i}/temp"] for i in range(7)] == [f"{45000 + i * 1000}\n" for i in range(7)]
    assert {files[f"/sys/class/thermal/thermal_zone{i}/type"] for i in range(7)} == {"acpitz\n"}
    assert files["/sys/class/thermal/thermal_zone6/trip_point_0_temp"] == "105000\n"


def test_chips_clocks_and_machine(collect: Collect, tmp_path: Path) -> None:
    files = collect("thermal", {"sysroot": str(trees.gb10(tmp_path)), "samples": 1}).json("thermal/zones.1.json")["files"]
    assert files["/sys/class/hwmon/hwmon1/name"] == "nvme\n" and files["/sys/class/hwmon/hwmon2/name"] == "mlx5\n"
    assert files["/sys/class/hwmon/hwmon1/temp1_crit"] == "84850\n"
    assert files["/sys/class/dmi/id/product_name"] == "NVIDIA_DGX_Spark\n"
    assert files["/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"] == "3900000\n"
    assert not any("in0_input" in path or "uevent" in path for path in files)


def test_throttle_counters_of_a_server(collect: Collect, tmp_path: Path) -> None:
    files = collect("thermal", {"sysroot": str(trees.server(tmp_path)), "samples": 1}).json("thermal/zones.1.json")["files"]
    counters = "/sys/devices/system/cpu/cpu0/thermal_throttle"
    assert files[f"{counters}/package_throttle_count"] == "41\n" and files[f"{counters}/package_throttle_max_time_ms"] == "12\n"
    assert files["/sys/class/hwmon/hwmon1/power1_average"] == "612000000\n"


def test_a_machine_without_sensors_is_absent_though_it_has_a_name(collect: Collect, tmp_path: Path) -> None:
    found = collect("thermal", {"sysroot": str(trees.virtual_machine(tmp_path)), "samples": 1})
    (attempt,) = found.attempts
    assert attempt["outcome"] == "ABSENT" and "no temperature sensor" in attempt["reason"]
    assert found.json("thermal/zones.1.json")["files"]["/sys/class/dmi/id/product_name"] == "KVM\n"


def test_at_most_two_samples(collect: Collect, tmp_path: Path) -> None:
    found = collect("thermal", {"sysroot": str(trees.gb10(tmp_path)), "samples": 5, "interval_s": 0.01})
    assert [a["sample"] for a in found.attempts] == [1, 2]
    assert sorted(found.content) == ["thermal/zones.1.json", "thermal/zones.2.json"]


def test_a_sensor_that_fails_is_recorded_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sick = {"thermal_zone3/temp": errno.EIO, "hwmon2/temp1_input": errno.ENODATA}

    def read(path: str, limit: int = 0) -> tuple[bytes, bool]:
        for name, number in sick.items():
            if path.endswith(name):
                raise OSError(number, "stand-in for the driver's answer", path)
        return real(path, limit)

    real = _contract.read_bounded
    monkeypatch.setattr(_contract, "read_bounded", read)
    found = here({"sysroot": str(trees.gb10(tmp_path)), "samples": 1})
    tree = found.json("thermal/zones.1.json")
    assert tree["errors"]["/sys/class/thermal/thermal_zone3/temp"] == "EIO"
    assert tree["errors"]["/sys/class/hwmon/hwmon2/temp1_input"] == "ENODATA"
    assert "/sys/class/thermal/thermal_zone4/temp" in tree["files"] and "/sys/class/thermal/thermal_zone3/type" in tree["files"]
    (attempt,) = found.attempts
    assert attempt["outcome"] == "PARTIAL" and "thermal_zone3/temp EIO" in attempt["reason"]


def test_a_sensor_that_hangs_does_not_take_the_others_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def read(path: str, limit: int = 0) -> tuple[bytes, bool]:
        if "hwmon2" in path:  # the NIC's firmware is dead
            released.wait(60)
        return real(path, limit)

    real = _contract.read_bounded
    monkeypatch.setattr(_contract, "read_bounded", read)
    monkeypatch.setattr(thermal, "SENSOR_S", 0.2)
    try:
        found = here({"sysroot": str(trees.gb10(tmp_path)), "samples": 1})
    finally:
        released.set()
    tree = found.json("thermal/zones.1.json")
    assert tree["errors"]["/sys/class/hwmon/hwmon2"] == "ETIMEDOUT"
    assert sum(path.endswith("/temp") for path in tree["files"]) == 7 and "/sys/class/hwmon/hwmon1/temp1_input" in tree["files"]
    assert found.attempts[0]["outcome"] == "PARTIAL" and "hwmon2 ETIMEDOUT" in found.attempts[0]["reason"]
