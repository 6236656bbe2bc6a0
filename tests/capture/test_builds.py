"""From real processes to the report: two ranks of one engine that run different builds, and a file that somebody changed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RANK = """
import ctypes, sys, vllm
begin, end = (int(n) for n in open("/proc/self/stat").read().rpartition(")")[2].split()[45:47])
ctypes.memset(begin, 0, end - begin)
ctypes.memmove(begin, sys.argv[1].encode(), len(sys.argv[1]))  # as setproctitle does
print("ready", flush=True)
sys.stdin.read()
"""
Report = dict[str, Any]


def install(site: Path, version: str) -> Path:
    """A package called vllm, with its record."""
    files = {
        "vllm/__init__.py": "",
        "vllm/core.py": "def step():\n    return 1\n",
        f"vllm-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
    }
    rows = []
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    (site / f"vllm-{version}.dist-info/RECORD").write_text("".join(rows))
    return site


@pytest.fixture
def ranks() -> Iterator[Callable[..., list[int]]]:
    """`ranks(site, …)`: one process for each folder of packages, titled as vLLM titles its workers."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*sites: Path) -> list[int]:
        for rank, site in enumerate(sites):
            environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
            # the padding is what the title is written into
            command = [sys.executable, "-c", RANK, f"VLLM::Worker_TP{rank}", " " * 64]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/")
            running.append(child)
            assert child.stdout and child.stdout.readline() == b"ready\n"
        return [child.pid for child in running]

    yield start
    for child in running:
        child.kill()
        child.communicate()


def forensics(*arguments: str, expect: tuple[int, ...] = (0, 3)) -> str:
    done = subprocess.run([sys.executable, "-m", "forensics", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in expect, (done.returncode, done.stderr)
    return done.stdout


def captured(tmp_path: Path, pids: list[int]) -> Report:
    named = [f"--pid={pid}" for pid in pids]
    bundle = forensics("capture", "--quiet", "--window", "0", "--out", str(tmp_path / "out"), *named).split()[-1]
    report = json.loads(forensics("analyze", bundle, "--format", "json"))
    assert [e["kind"] for e in report["engines"]] == ["vllm"]
    return dict(report)


def findings(report: Report, id: str) -> list[dict[str, Any]]:
    return [f for f in report["findings"] if f["id"] == id]


def test_two_ranks_with_different_builds(tmp_path: Path, ranks: Callable[..., list[int]]) -> None:
    one, other = install(tmp_path / "a", "0.31.0"), install(tmp_path / "b", "0.32.0")
    pids = ranks(one, other)
    report = captured(tmp_path, pids)
    (skew,) = findings(report, "version-skew")
    assert skew["grade"] == "established" and sorted(skew["ranks"]) == [0, 1]
    assert "0.31.0 on rank 0" in skew["title"] and "0.32.0 on rank 1" in skew["title"]
    builds = {(b["version"], b["path"]): b["pids"] for b in report["engines"][0]["builds"] if b["component"] == "vllm"}
    assert builds == {("0.31.0", f"{one}/vllm"): [pids[0]], ("0.32.0", f"{other}/vllm"): [pids[1]]}
    assert not findings(report, "installed-code-modified")


def test_a_file_that_was_changed_before_the_start_and_one_that_was_changed_after(tmp_path: Path, ranks: Callable[..., list[int]]) -> None:
    site = install(tmp_path / "site", "0.32.0")
    (site / "vllm/hotfix.py").write_text("patched = True\n")
    pids = ranks(site, site)
    told = json.loads(forensics("patches", "--format", "json", *(f"--pid={pid}" for pid in pids)))
    (check,) = told["engines"][0]["installed"]
    assert (check["added"], check["modified"], check["missing"]) == (["vllm/hotfix.py"], [], [])
    (site / "vllm/core.py").write_text("def step():\n    return 2\n")
    report = captured(tmp_path, pids)
    (found,) = findings(report, "installed-code-modified")
    assert found["grade"] == "established" and sorted(found["ranks"]) == [0, 1]
    assert "1 modified (vllm/core.py), 1 added (vllm/hotfix.py)" in found["title"]
    assert "vllm/core.py changed at" in found["does_not_show"] and "older text" in found["does_not_show"]
    assert not findings(report, "version-skew") and report["root"]["finding"] is None


def test_the_command_for_people_names_builds_and_files(tmp_path: Path, ranks: Callable[..., list[int]]) -> None:
    site = install(tmp_path / "site", "0.32.0")
    pids = ranks(site, site)
    said = forensics("patches", *(f"--pid={pid}" for pid in pids))
    assert "vllm 0.32.0: ranks 0-1 on " in said
    assert "installed files of vllm 0.32.0: 2 of 2 files compared with its record, 2 of 2 Python sources, none differs" in said
