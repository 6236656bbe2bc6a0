from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, Started, needs_root

from collectors.process import allowed

Collect = Callable[..., Collected]
Start = Callable[..., Started]

WAITING = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"]) if len(sys.argv) > 1 else None
print(child.pid if child else "ready", flush=True)
sys.stdin.read()
if child: child.kill()
"""
ZOMBIE = """
import os, sys
pid = os.fork()
if pid == 0: os._exit(3)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(pid, flush=True)
sys.stdin.read()
"""
# posix_spawn waits like vfork, uninterruptibly, for a child that opens a FIFO which nobody writes
SLEEPING_IN_D = """
import os, sys
print("ready", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
sys.stdin.read()
"""


def photo_of(found: Collected, pid: int, sample: int = 1) -> dict[str, Any]:
    photo: dict[str, Any] = found.json(f"process/pid-{pid}.{sample}.json")
    return photo


def state_in(photo: dict[str, Any], pid: int) -> str:
    return str(photo["files"][f"/proc/{pid}/stat"].rpartition(")")[2].split()[0])


def test_living_process(collect: Collect, start: Start) -> None:
    target = start(WAITING, "child")
    try:
        found = collect("process", {"targets": [{"pid": target.pid, "start_ticks": target.start_ticks}], "samples": 2, "interval_s": 0})
        for sample in (1, 2):
            attempt = found.one(target.pid, sample)
            assert (attempt["outcome"], attempt["reason"]) == ("OK", "")
            photo = photo_of(found, target.pid, sample)
            proc = f"/proc/{target.pid}"
            expected = ("status", "stat", "limits", "cgroup", "wchan", "oom_score", "cmdline", "environ")
            assert {f"{proc}/{name}" for name in expected} <= set(photo["files"])
            assert photo["links"][f"{proc}/exe"] == os.readlink(f"{proc}/exe")
            assert photo["links"][f"{proc}/fd/1"].startswith("pipe:")
            assert {f"{proc}/{name}" for name in ("cwd", "root", "ns/pid", "ns/mnt")} <= set(photo["links"])
            assert "\0-c\0" in photo["files"][f"{proc}/cmdline"]
            assert f"{proc}/stack" not in photo["files"]  # only of a process in D
            children = photo["files"].get(f"{proc}/task/{target.pid}/children")
            assert children is None or children.split() == [target.first]  # None: a kernel without that file
    finally:
        os.kill(int(target.first), 9)


def test_environment_leaves_by_allow_list_only(collect: Collect, start: Start) -> None:
    environment = {
        "RANK": "1",
        "NCCL_DEBUG": "INFO",
        "VLLM_API_KEY": "sesame",
        "HF_TOKEN": "hf_sesame",
        "EDITOR": "vi",
        "SITE_RACK": "r7",
        "SITE_PASSWORD": "sesame",
        "VLLM_LOGGING_PREFIX": "two\nlines",
        "HOME": "/home/sesame",
    }
    target = start(WAITING, env={"PATH": os.environ["PATH"], **environment})
    found = collect("process", {"targets": [{"pid": target.pid}], "samples": 1, "options": {"env_allow": ["SITE_*", "EDITOR"]}})
    lines = photo_of(found, target.pid)["files"][f"/proc/{target.pid}/environ"].splitlines()
    assert sorted(lines) == ["EDITOR=vi", "NCCL_DEBUG=INFO", "RANK=1", "SITE_RACK=r7", "VLLM_LOGGING_PREFIX=two\\nlines"]
    assert not any(b"sesame" in content for content in found.content.values())


@pytest.mark.parametrize(
    ("name", "answer"),
    [("RANK", True), ("VLLM_LOGGING_LEVEL", True), ("VLLM_api_key", False), ("AWS_REGION", False), ("NCCL_AUTH", False), ("XRANK", False)],
)
def test_allow_list(name: str, answer: bool) -> None:
    assert allowed(name) is answer


def test_states(collect: Collect, start: Start, tmp_path: Path) -> None:
    stopped = start(WAITING)
    stopped.stop()
    zombie = int(start(ZOMBIE).first)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    sleeping = start(SLEEPING_IN_D, fifo)
    sleeping.wait_for(lambda: sleeping.state == "D")
    try:
        found = collect("process", {"targets": [{"pid": pid} for pid in (stopped.pid, zombie, sleeping.pid)], "samples": 1})
    finally:
        os.close(os.open(fifo, os.O_RDWR))
    assert [(pid, state_in(photo_of(found, pid), pid)) for pid in (stopped.pid, zombie, sleeping.pid)] == [
        (stopped.pid, "T"),
        (zombie, "Z"),
        (sleeping.pid, "D"),
    ]
    assert found.one(stopped.pid)["outcome"] == found.one(zombie)["outcome"] == "OK"
    # field 52 of stat, counted from 1 with the name as field 2, is the exit status as waitpid gives it
    assert photo_of(found, zombie)["files"][f"/proc/{zombie}/stat"].rpartition(")")[2].split()[49] == str(3 << 8)
    looked = photo_of(found, sleeping.pid)
    assert f"/proc/{sleeping.pid}/stack" in {**looked["files"], **looked["errors"]}
    assert stopped.state == "T"


def test_gone_and_reused(collect: Collect, start: Start) -> None:
    alive = start(WAITING)
    gone = subprocess.Popen(["true"])
    gone.wait()
    targets = [{"pid": gone.pid}, {"pid": alive.pid, "start_ticks": alive.start_ticks + 1}]
    found = collect("process", {"targets": targets, "samples": 2, "interval_s": 0})
    assert [a["outcome"] for a in found.attempts] == ["ABSENT"] * 4
    assert "gone" in found.one(gone.pid, 1)["reason"]
    assert "another process now" in found.one(alive.pid, 2)["reason"]
    assert not found.content
    assert [a["outcome"] for a in collect("process").attempts] == ["SKIPPED"]


@needs_root
def test_without_permission(collect: Collect, start: Start) -> None:
    target = start(WAITING)
    found = collect("process", {"targets": [{"pid": target.pid}], "samples": 1}, as_nobody=True)
    attempt = found.one(target.pid)
    assert attempt["outcome"] == "PARTIAL"
    assert "not permitted" in attempt["reason"]
    assert "CAP_SYS_PTRACE" in attempt["cure"]
    photo = photo_of(found, target.pid)
    assert state_in(photo, target.pid) == "S"
    assert photo["errors"][f"/proc/{target.pid}/environ"] == "EACCES"
    assert f"/proc/{target.pid}/environ" not in photo["files"]


def record(tree: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tree / path[1:]).write_text(text)
    return str(tree)


STAT = "7 (VLLM::Worker (1)) S 1" + " 0" * 48 + "\n"
POD = "/kubepods/pod1/box1"


def test_cgroup_of_version_2_and_those_above_it(collect: Collect, tmp_path: Path) -> None:
    groups = "/sys/fs/cgroup"
    tree = record(
        tmp_path,
        {
            "/proc/7/stat": STAT,
            "/proc/7/cgroup": f"0::{POD}\n",
            "/proc/8/stat": STAT,
            "/proc/8/cgroup": f"0::{POD}\n",
            f"{groups}{POD}/memory.max": "max\n",
            f"{groups}{POD}/memory.stat": "anon 1\n",
            f"{groups}{POD}/memory.events": "oom_kill 2\n",
            f"{groups}/kubepods/pod1/memory.max": "1000\n",
            f"{groups}/kubepods/pod1/memory.stat": "anon 3\n",
        },
    )
    found = collect("process", {"targets": [{"pid": 7}, {"pid": 8}], "samples": 1, "sysroot": tree})
    for pid in (7, 8):
        files = photo_of(found, pid)["files"]
        assert {path[len(groups) :]: text for path, text in files.items() if path.startswith(groups)} == {
            f"{POD}/memory.max": "max\n",
            f"{POD}/memory.stat": "anon 1\n",
            f"{POD}/memory.events": "oom_kill 2\n",
            "/kubepods/pod1/memory.max": "1000\n",
        }
        assert found.one(pid)["outcome"] == "OK"


@pytest.mark.parametrize(("own", "read"), [("5:memory:/docker/abc\n0::/x\n", True), ("5:memory:/docker/other\n", False)])
def test_cgroup_of_version_1_seen_from_inside_a_container(collect: Collect, tmp_path: Path, own: str, read: bool) -> None:
    limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    files = {"/proc/7/stat": STAT, "/proc/7/cgroup": "5:memory:/docker/abc\n0::/x\n", "/proc/self/cgroup": own, limit: "64\n"}
    found = collect("process", {"targets": [{"pid": 7}], "samples": 1, "sysroot": record(tmp_path, files)})
    assert (photo_of(found, 7)["files"].get(limit) == "64\n") is read


def test_cgroup_path_does_not_lead_out(collect: Collect, tmp_path: Path) -> None:
    files = {"/proc/7/stat": STAT, "/proc/7/cgroup": "0::/../../../etc\n", "/etc/memory.max": "secret", "/sys/fs/cgroup/x": ""}
    found = collect("process", {"targets": [{"pid": 7}], "samples": 1, "sysroot": record(tmp_path, files)})
    assert not any(path.endswith("memory.max") for path in photo_of(found, 7)["files"])
