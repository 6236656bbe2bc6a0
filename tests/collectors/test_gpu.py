"""NVML, against a stand-in (fake_nvml.py) because the machines that run these tests have no GPU."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_nvml
import pynvml
import pytest
from conftest import Collected, parse_lines
from fake_nvml import GB10, H100, LOST, machine

from collectors import gpu
from collectors._contract import Emitter, Request

Collect = Callable[..., Collected]


def here(module: ModuleType | None, monkeypatch: pytest.MonkeyPatch, request: dict[str, Any] | None = None) -> Collected:
    monkeypatch.setitem(sys.modules, "pynvml", module)  # None: importing it fails
    out = io.StringIO()
    gpu.collect(Request(request), Emitter("gpu", out))
    return parse_lines(out.getvalue().encode())


def outcomes(found: Collected) -> dict[str, str]:
    return {a["target"]: a["outcome"] for a in found.attempts}


def test_every_nvml_name_that_is_asked_for_exists_in_the_real_binding() -> None:
    """Otherwise the stand-in would hide a misspelling, which the collector would take for an old library."""
    tree = ast.parse(Path(str(gpu.__file__)).read_text())
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith(("nvml", "NVML"))}
    assert len(asked) > 20 and {name for name in asked if not hasattr(pynvml, name)} == set()
    codes = {name.removeprefix("NVML_ERROR_") for name in vars(pynvml) if name.startswith("NVML_ERROR_")}
    assert set(gpu.OUTCOMES) <= codes and set(gpu.NOT_OFFERED) <= codes


def test_a_data_centre_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = here(machine(H100, H100), monkeypatch)
    assert outcomes(found) == {"NVML": "OK", "gpu 0": "OK", "gpu 1": "OK"}
    assert found.heads["gpu/1.json"]["kind"] == "nvml"
    reading = found.json("gpu/0.json")
    at_ns = reading.pop("at_ns")
    assert at_ns > 0 and reading == {
        "index": 0,
        "uuid": "GPU-11111111-2222-3333-4444-555555555555",
        "name": "NVIDIA H100 80GB HBM3",
        "bus_id": "00000000:9B:00.0",
        "utilization_percent": 100,
        "power_mw": 118000,
        "power_limit_mw": 700000,
        "temperature_c": 41,
        "throttle_bits": 0,
        "pstate": 0,
        "memory_used_bytes": 77_000_000_000,
        "memory_free_bytes": 8_520_809_984,
        "memory_total_bytes": 85_520_809_984,
        "clocks_mhz": {"sm": 1980, "sm_max": 1980, "graphics": 1980, "memory": 2619},
        "processes": [{"pid": 4243, "used_bytes": 76_000_000_000}],
        "slowdown_temperature_c": 87,
        "ecc": {"corrected_volatile": 0, "corrected_aggregate": 0, "uncorrected_volatile": 0, "uncorrected_aggregate": 0},
        "remapped_rows": {"corrected": 0, "uncorrected": 0, "pending": 0, "failed": 0},
        "driver_version": "580.95.05",
        "cuda_version": 13000,
        "errors": {},
    }


def test_a_gb10_says_what_it_does_not_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = here(machine(GB10), monkeypatch)
    assert outcomes(found) == {"NVML": "OK", "gpu 0": "OK"}
    reading = found.json("gpu/0.json")
    assert reading["memory_total_bytes"] is None and reading["power_limit_mw"] is None and reading["clocks_mhz"]["memory"] is None
    assert (reading["utilization_percent"], reading["power_mw"], reading["clocks_mhz"]["sm"]) == (96, 13400, 513)
    fields = "power_limit_mw memory_used_bytes memory_free_bytes memory_total_bytes clocks_mhz.memory ecc remapped_rows"
    assert reading["errors"] == dict.fromkeys(fields.split(), "NOT_SUPPORTED")


def test_a_gpu_off_the_bus_is_partial_and_its_neighbour_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = here(machine(LOST, H100), monkeypatch)
    assert outcomes(found) == {"NVML": "OK", "gpu 0": "PARTIAL", "gpu 1": "OK"}
    assert "GPU is lost" in next(a["reason"] for a in found.attempts if a["target"] == "gpu 0")
    assert set(found.json("gpu/0.json")["errors"].values()) == {"GPU_IS_LOST"}


def test_an_older_library_without_the_new_names(monkeypatch: pytest.MonkeyPatch) -> None:
    old = machine(H100)
    del old.nvmlDeviceGetCurrentClocksEventReasons, old.nvmlDeviceGetRemappedRows
    vars(old)["nvmlDeviceGetCurrentClocksThrottleReasons"] = lambda index: 0x40
    found = here(old, monkeypatch)
    assert outcomes(found)["gpu 0"] == "OK"
    reading = found.json("gpu/0.json")
    assert reading["throttle_bits"] == 0x40 and reading["errors"] == {"remapped_rows": "FUNCTION_NOT_FOUND"}


@pytest.mark.parametrize(
    ("code", "outcome", "word"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "ABSENT", "libnvidia-ml"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "ABSENT", "driver is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "DENIED", "access"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "UNSUPPORTED", "version"),
        (pynvml.NVML_ERROR_UNKNOWN, "UNSUPPORTED", "unknown"),
        (pynvml.NVML_ERROR_TIMEOUT, "TIMEOUT", "gave up"),
        (pynvml.NVML_ERROR_MEMORY, "UNSUPPORTED", "MEMORY"),
    ],
)
def test_how_nvml_can_refuse_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, outcome: str, word: str) -> None:
    monkeypatch.setattr(gpu, "DRIVER", str(tmp_path / "no-driver"))
    (attempt,) = here(machine(start=code), monkeypatch).attempts
    assert (attempt["target"], attempt["outcome"]) == ("NVML", outcome) and word in attempt["reason"]


def test_no_library_where_a_driver_is_loaded_is_blindness_not_absence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.write_text("NVRM version: 580\n")
    monkeypatch.setattr(gpu, "DRIVER", str(driver))
    for module in (machine(start=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), None):
        (attempt,) = here(module, monkeypatch).attempts
        assert attempt["outcome"] == "UNSUPPORTED" and attempt["cure"]
    monkeypatch.setattr(gpu, "DRIVER", str(tmp_path / "none"))
    (attempt,) = here(None, monkeypatch).attempts
    assert attempt["outcome"] == "ABSENT" and "pynvml" in attempt["reason"]


def test_a_driver_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcomes(here(machine(), monkeypatch)) == {"NVML": "EMPTY"}


def test_a_recorded_tree_does_not_ask_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert outcomes(here(machine(H100), monkeypatch, {"sysroot": str(tmp_path)})) == {"NVML": "ABSENT"}


def child(scenario: str, answer_s: float) -> Collected:
    command = [sys.executable, "-I", str(fake_nvml.__file__), scenario]
    request = json.dumps({"options": {"answer_s": answer_s}}).encode()
    done = subprocess.run(command, input=request, capture_output=True, timeout=60, check=False)
    return parse_lines(done.stdout, done.returncode, done.stderr.decode())


def test_a_gpu_that_hangs_leaves_the_others_answers_and_the_child_ends() -> None:
    found = child("hang", 2.0)
    assert found.rc == 0, found.stderr
    assert outcomes(found) == {"NVML": "OK", "gpu 0": "OK", "gpu 2": "OK", "gpu 1": "TIMEOUT"}
    reason = next(a["reason"] for a in found.attempts if a["target"] == "gpu 1")
    assert "in state S at" in reason  # where its thread sleeps; a driver's would be D
    assert sorted(found.content) == ["gpu/0.json", "gpu/2.json"]


def test_nvml_that_hangs_at_its_start() -> None:
    found = child("hang-at-start", 0.3)
    assert found.rc == 0 and outcomes(found) == {"NVML": "TIMEOUT"}
