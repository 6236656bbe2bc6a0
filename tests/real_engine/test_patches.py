"""A plugin that replaces functions in a real vLLM, of one rank and of all: found from outside, though no file of vLLM was touched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from judge import FORENSICS, look
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1200)]

RING = "vllm.distributed.device_communicators.shm_broadcast"
EXECUTOR = "vllm.v1.executor.multiproc_executor"
PLUGIN = """\
import functools
import multiprocessing


def replace_wait(condition):
    original = condition.wait

    @functools.wraps(original)
    def wait(self, timeout_ms=None):
        self.busy_loop_s = 0.002
        return original(self, timeout_ms)

    condition.wait = wait


def replace_output(worker):
    def enqueue_output(self, output):
        return original(self, output)

    original = worker.enqueue_output
    worker.enqueue_output = enqueue_output


def register():
    name = multiprocessing.current_process().name
    if not name.startswith("VllmWorker"):
        return
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.v1.executor import multiproc_executor

    replace_wait(shm_broadcast.SpinCondition)
    if name == "VllmWorker-1":
        replace_output(multiproc_executor.WorkerProc)
"""
PATCHES = f"""\
[[patch]]
name = "spin-2ms"
module = "{RING}"
contains = "busy_loop_s: float = 1"
function = "SpinCondition.wait"
live = {{ object = "SpinCondition.busy_loop_s", equals = 0.002 }}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A general plugin as pip installs one."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "spin_tuning.py").write_text(PLUGIN)
    info = folder / "spin_tuning-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spin-tuning\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nspin_tuning = spin_tuning:register\n")
    return folder


def loaded(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([*FORENSICS, "patches", "--format", "json", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (engine,) = found["engines"]
    return dict(engine)


def line_of(text: str) -> int:
    return PLUGIN.splitlines().index(text) + 1


def test_functions_that_a_plugin_replaced(vllm_home: Path, tmp_path: Path, plugin: Path) -> None:
    patches = tmp_path / "patches.toml"
    patches.write_text(PATCHES)
    server = Server(tmp_path, vllm_home, "--tensor-parallel-size", "2", PYTHONPATH=str(plugin))
    try:
        server.wait_ready().warm_up()
        engine = loaded("--pid", str(server.pid), "--patches", str(patches))
        by_rank = {p["rank"]: p for p in engine["processes"] if p["role"] == "worker"}
        core = next(p for p in engine["processes"] if p["role"] == "core")
        for process in by_rank.values():
            wait = next(f for f in process["functions"] if f["function"] == "SpinCondition.wait")
            assert (wait["runs"], wait["file"]) == ("other-file", str(plugin / "spin_tuning.py"))
            assert wait["line"] == line_of("    @functools.wraps(original)") and wait["grade"] == "established"
            said = {w["kind"]: w["status"] for w in process["witnesses"]}
            assert said == {"file": "live", "function": "absent", "value": "live"}, process["witnesses"]
        # where nothing was replaced, memory holds what the files say: that is compared as well, instruction by instruction
        assert {f["runs"] for f in core["functions"]} == {"as-on-disk"}, core["functions"]
        runs = {rank: {f["function"]: f["runs"] for f in p["functions"]} for rank, p in by_rank.items()}
        assert (runs[0]["WorkerProc.enqueue_output"], runs[1]["WorkerProc.enqueue_output"]) == ("as-on-disk", "other-file")
        assert {runs[rank]["WorkerProc.worker_busy_loop"] for rank in runs} == {"as-on-disk"}

        # without patches.toml: the functions that decide whether it moves are looked at all the same
        seen = look(server, name="monkeypatched")
        told = {f["title"]: f for f in seen.report["findings"] if f["id"] == "function-monkeypatched"}
        output = next(f for title, f in told.items() if "WorkerProc.enqueue_output" in title)
        assert output["ranks"] == [1] and output["grade"] == "established"
        assert f"{plugin / 'spin_tuning.py'}:{line_of('    def enqueue_output(self, output):')}" in output["title"]
        assert sorted(next(f for title, f in told.items() if "SpinCondition.wait" in title)["ranks"]) == [0, 1]
        assert len(told) == 2
    finally:
        server.stop()
