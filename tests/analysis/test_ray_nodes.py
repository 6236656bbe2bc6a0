"""What Ray's own files of another machine tell of an actor that the engine lost."""

from __future__ import annotations

from pathlib import Path

from forensics.analysis import analyze
from forensics.model import Report

HEAD = """\
(EngineCore_DP0 pid=610) ERROR 04-17 07:24:00 [core.py:720] EngineCore encountered a fatal error.
(EngineCore_DP0 pid=610) ERROR 04-17 07:24:00 [core.py:720] ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
        class_name: RayWorkerWrapper
        actor_id: 00000000000000000000000000000a000000
        pid: 877
        ip: 192.0.2.15
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits.
"""
MONITOR = (
    "[2026-04-17 07:23:58,412 E 311 311] (raylet) node_manager.cc:3069: 2 Workers (tasks / actors) killed due to memory pressure (OOM), "
    "0 Workers crashed due to other reasons at node (ID: 8c1d, IP: {}) over the last time period.\n"
)
CRASH = "[2026-04-17 07:23:58,918 E {0} {0}] logging.cc:501: *** SIGSEGV received at time=1776410638 on cpu 12 ***\n"


def read(tmp_path: Path, name: str, text: str) -> Report:
    (tmp_path / "node0.log").write_text(HEAD)
    (tmp_path / name).write_text(text)
    return analyze([tmp_path])


def test_the_raylet_of_the_lost_actors_machine_says_why(tmp_path: Path) -> None:
    report = read(tmp_path, "node7.raylet.out", MONITOR.format("192.0.2.15"))
    assert report.root.finding == "ray-oom-kill" and report.root.node in ("192.0.2.15", "node7")


def test_another_machines_raylet_explains_nothing(tmp_path: Path) -> None:
    report = read(tmp_path, "node7.raylet.out", MONITOR.format("192.0.2.99"))
    assert report.root.finding != "ray-oom-kill"


def test_the_crash_of_the_lost_actors_process_is_its_end(tmp_path: Path) -> None:
    report = read(tmp_path, "node7.worker.err", CRASH.format(877))
    assert report.root.finding == "sigsegv" and "host-oom-kill" not in {f.id for f in report.findings}


def test_the_crash_of_another_process_is_not(tmp_path: Path) -> None:
    assert read(tmp_path, "node7.worker.err", CRASH.format(4001)).root.finding != "sigsegv"
