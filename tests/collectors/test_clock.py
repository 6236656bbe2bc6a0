"""Clocks: ours, those that a recorded tree tells of, and the zone in which another process writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trees
from conftest import Collected, Started, needs_root

from collectors import clock

Collect = Callable[..., Collected]
Start = Callable[..., Started]
READY = "print('ready', flush=True); input()"
ZONES = Path("/usr/share/zoneinfo")
needs_zones = pytest.mark.skipif(not (ZONES / "Asia/Tokyo").exists(), reason="needs the time zone database: install tzdata")


def test_this_node(collect: Collect) -> None:
    before = time.time_ns(), time.monotonic_ns()
    found = collect("clock")
    after = time.time_ns(), time.monotonic_ns()
    (attempt,) = found.attempts
    assert attempt["outcome"] == "OK" and attempt["evidence"] == ["clock/clock.json", "clock/files.json"]
    assert found.heads["clock/clock.json"]["kind"] == "clock" and found.heads["clock/files.json"]["kind"] == "fileset"
    now = found.json("clock/clock.json")
    assert before[0] <= now["wall_ns"] <= after[0] and before[1] <= now["monotonic_ns"] <= after[1]
    assert now["boottime_ns"] >= now["monotonic_ns"] and now["read_within_ns"] >= 0
    assert now["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert now["utc_offset_s"] == time.localtime().tm_gmtoff
    # the three ways to the moment of boot agree to their roundings
    assert abs(now["wall_ns"] / 1e9 - now["boottime_ns"] / 1e9 - now["btime_s"]) < 2
    assert abs(now["uptime_s"] - now["boottime_ns"] / 1e9) < 1


def test_the_kernels_discipline_is_read_or_its_error_is_told() -> None:
    errors: dict[str, str] = {}
    found = clock.read_adjtimex(errors)
    assert (found is None) == bool(errors)
    if found is not None:
        assert isinstance(found["synchronised"], bool) and found["maxerror_us"] >= 0
        # an independent reading of the same fact
        assert found["state"] in clock.STATES and found["synchronised"] == (found["state"] != "error" and not found["status"] & 0x40)


def test_a_recorded_tree_tells_only_what_its_files_say(collect: Collect, tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "/proc/stat": "cpu 1 2 3\nintr 5\nctxt 9\nbtime 1788256800\nprocesses 4\n",
            "/proc/uptime": "123.45 100.00\n",
            "/proc/sys/kernel/random/boot_id": "d1f3b7c0-0000-4000-8000-000000000001\n",
        },
    )
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    now = collect("clock", {"sysroot": str(tmp_path)}).json("clock/clock.json")
    assert (now["btime_s"], now["uptime_s"], now["zone"]) == (1788256800, 123.45, "Asia/Tokyo")
    assert now["boot_id"].startswith("d1f3b7c0") and now["wall_ns"] is None and now["adjtimex"] is None and now["chronyc"] is None
    # the link is absolute, and the zone file of *this* machine is not the tree's
    assert now["utc_offset_s"] == 0


@needs_zones
def test_the_zone_file_of_the_tree(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/proc/uptime": "1 1\n", "/usr/share/zoneinfo/Asia/Tokyo": (ZONES / "Asia/Tokyo").read_bytes()})
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert collect("clock", {"sysroot": str(tmp_path)}).json("clock/clock.json")["utc_offset_s"] == 9 * 3600


@needs_zones
def test_the_zone_that_an_engine_writes_its_log_in(collect: Collect, start: Start) -> None:
    tokyo = start(READY, env={**os.environ, "TZ": "Asia/Tokyo"})
    plain = start(READY, env={k: v for k, v in os.environ.items() if k != "TZ"})
    now = collect("clock", {"targets": [{"pid": tokyo.pid}, {"pid": plain.pid}]}).json("clock/clock.json")
    first, second = now["targets"]
    assert (first["pid"], first["tz_env"], first["utc_offset_s"]) == (tokyo.pid, "Asia/Tokyo", 9 * 3600)
    assert second["tz_env"] is None and second["utc_offset_s"] == now["utc_offset_s"]


@needs_root
def test_a_process_of_somebody_else(collect: Collect, start: Start) -> None:
    target = start(READY)
    found = collect("clock", {"targets": [{"pid": target.pid}]}, as_nobody=True)
    (attempt,) = found.attempts
    assert attempt["outcome"] == "PARTIAL" and f"pid {target.pid}" in attempt["reason"] and "root" in attempt["cure"]
    assert found.json("clock/clock.json")["wall_ns"] > 0


def test_a_time_tool_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "chronyc"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(clock, "COMMAND_S", 0.2)
    errors: dict[str, str] = {}
    assert clock.command_output("chronyc", errors) is None and errors["chronyc"].startswith("TIMEOUT")


def test_what_a_time_tool_says_is_kept_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "chronyc"
    tool.write_text('#!/bin/sh\necho "A29FC87B,162.159.200.123,4,1788256800.1,0.000012,$*"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    errors: dict[str, str] = {}
    said = clock.command_output("chronyc", errors)
    assert said == "A29FC87B,162.159.200.123,4,1788256800.1,0.000012,-n -c tracking\n" and not errors
