from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Collected, Started, needs_root

Collect = Callable[..., Collected]
Start = Callable[..., Started]

THREADS = """
import sys, threading
count = int(sys.argv[1])
event, there = threading.Event(), threading.Semaphore(0)
def wait():
    there.release()
    event.wait()
for _ in range(count): threading.Thread(target=wait, daemon=True).start()
for _ in range(count): there.acquire()
print("ready", flush=True)
sys.stdin.read()
"""
SPINNING = """
import sys, threading
def spin():
    print("ready", flush=True)
    while True: pass
threading.Thread(target=spin, daemon=True).start()
sys.stdin.read()
"""


def photo_of(found: Collected, name: object, sample: int = 1) -> dict[str, Any]:
    photo: dict[str, Any] = found.json(f"cpu/{name}.{sample}.json")
    return photo


def ticks(photo: dict[str, Any], pid: int) -> dict[str, int]:
    """{thread id: user and system ticks}"""
    task = f"/proc/{pid}/task/"
    stats = {path[len(task) : -5]: text for path, text in photo["files"].items() if path.startswith(task) and path.endswith("/stat")}
    return {tid: sum(map(int, text.rpartition(")")[2].split()[11:13])) for tid, text in stats.items()}


def test_every_thread_in_every_sample(collect: Collect, start: Start) -> None:
    target = start(THREADS, 100)
    found = collect("cpu", {"targets": [{"pid": target.pid}], "samples": 2, "interval_s": 0.02})
    for sample in (1, 2):
        photo = photo_of(found, f"pid-{target.pid}", sample)
        tids = os.listdir(f"/proc/{target.pid}/task")
        assert len(tids) == 101
        for name in ("stat", "wchan", "schedstat"):
            assert {f"/proc/{target.pid}/task/{tid}/{name}" for tid in tids} <= {*photo["files"], *photo["errors"]}
        assert "Cpus_allowed_list:" in photo["files"][f"/proc/{target.pid}/status"]
        assert len(ticks(photo, target.pid)) == 101
        attempt = found.one(target.pid, sample)
        assert (attempt["outcome"], attempt["evidence"]) == ("OK", [f"cpu/pid-{target.pid}.{sample}.json"])
    assert photo_of(found, f"pid-{target.pid}", 1)["at_ns"] < photo_of(found, f"pid-{target.pid}", 2)["at_ns"]


def test_the_thread_that_spins_shows_between_two_samples(collect: Collect, start: Start) -> None:
    target = start(SPINNING)
    found = collect("cpu", {"targets": [{"pid": target.pid}], "samples": 2, "interval_s": 0.6})
    first, second = (ticks(photo_of(found, f"pid-{target.pid}", sample), target.pid) for sample in (1, 2))
    grown = {tid: second[tid] - first[tid] for tid in first}
    assert max(grown, key=grown.__getitem__) != str(target.pid)
    assert max(grown.values()) > 0
    assert grown[str(target.pid)] == 0


def test_host(collect: Collect) -> None:
    found = collect("cpu", {"samples": 2, "interval_s": 0.02})
    for sample in (1, 2):
        photo = photo_of(found, "host", sample)
        assert {"/proc/stat", "/proc/loadavg", "/proc/uptime"} <= set(photo["files"])
        assert "/proc/pressure/cpu" in {**photo["files"], **photo["errors"]}
    assert [(a["target"], a["sample"], a["outcome"]) for a in found.attempts] == [("node", 1, "OK"), ("node", 2, "OK")]


def test_gone_reused_stopped_and_zombie(collect: Collect, start: Start) -> None:
    alive = start(THREADS, 1)
    stopped = start(THREADS, 1)
    stopped.stop()
    gone = subprocess.Popen(["true"])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    targets = [{"pid": alive.pid, "start_ticks": alive.start_ticks + 1}, {"pid": stopped.pid}, {"pid": gone.pid}]
    found = collect("cpu", {"targets": targets, "samples": 1})
    assert found.one(alive.pid)["outcome"] == "ABSENT"
    photo = photo_of(found, f"pid-{stopped.pid}")
    assert {text.rpartition(")")[2].split()[0] for path, text in photo["files"].items() if path.endswith("/stat")} == {"T"}
    assert stopped.state == "T"
    assert found.one(gone.pid)["outcome"] == "OK"  # a zombie still has its times
    gone.wait()
    assert collect("cpu", {"targets": [{"pid": gone.pid}], "samples": 1}).one(gone.pid)["outcome"] == "ABSENT"


@needs_root
def test_without_permission(collect: Collect, start: Start) -> None:
    target = start(THREADS, 20)
    found = collect("cpu", {"targets": [{"pid": target.pid}], "samples": 1}, as_nobody=True)
    attempt = found.one(target.pid)
    photo = photo_of(found, f"pid-{target.pid}")
    assert len(ticks(photo, target.pid)) == 21  # anybody may read these
    assert attempt["outcome"] == "OK"


def test_recorded_tree(collect: Collect, tmp_path: Path) -> None:
    files = {
        "stat": "9 (x) S" + " 0" * 49,
        "status": "Name:\tx\nNSpid:\t9\t1\n",
        "task/9/stat": "9 (x) S" + " 0" * 49,
        "task/9/schedstat": "1 2 3",
        "task/10/stat": "10 (x) R" + " 0" * 49,
    }
    for name, text in files.items():
        (tmp_path / "proc/9" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/9" / name).write_text(text)
    found = collect("cpu", {"targets": [{"pid": 9}], "samples": 1, "sysroot": str(tmp_path)})
    assert photo_of(found, "pid-9")["files"] == {f"/proc/9/{name}": text for name, text in files.items()}
    assert found.one(9)["outcome"] == "OK"
    assert next(a for a in found.attempts if a["target"] == "node")["outcome"] == "ABSENT"
