"""Host memory, and what fills /dev/shm here, in a recorded tree and in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, Started, needs_root

from collectors import memory

Collect = Callable[..., Collected]
Start = Callable[..., Started]


def test_this_node(collect: Collect) -> None:
    found = collect("memory")
    (attempt,) = found.attempts
    assert attempt["evidence"] == ["memory/host.json"] and found.heads["memory/host.json"]["kind"] == "fileset"
    files = found.json("memory/host.json")["files"]
    assert "MemAvailable:" in files["/proc/meminfo"] and "oom_kill " in files["/proc/vmstat"]
    sizes = dict(item.split("=") for item in files["statvfs:/dev/shm"].split())
    real = os.statvfs("/dev/shm")
    assert int(sizes["blocks"]) == real.f_blocks and int(sizes["frsize"]) == real.f_frsize
    assert files["/dev/shm"].startswith("# entries=") and "statvfs:/" in files


def test_listing_is_largest_first_bounded_and_counts_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LISTED", 3)
    for size in range(5):
        (tmp_path / f"psm_{size}").write_bytes(b"x" * size)
    head, *lines = memory.listing(str(tmp_path)).splitlines()
    assert head.startswith("# entries=5 size_bytes=10 allocated_bytes=") and head.endswith("shown=3")
    assert [line.split()[-1] for line in lines] == ["psm_4", "psm_3", "psm_2"]
    mode, _, _, size, _, mtime, _ = lines[0].split()
    assert mode.startswith("-rw") and size == "4" and mtime.endswith("Z")


def test_a_hostile_name_stays_on_its_line(tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/a\nb\x1b[31m\xff")).write_bytes(b"")
    lines = memory.listing(str(tmp_path)).splitlines()
    assert len(lines) == 2 and lines[1].isprintable() and lines[1].endswith(r"a\nb\x1b[31m\udcff")


def test_a_recorded_tree_says_nothing_of_this_machine(collect: Collect, tmp_path: Path) -> None:
    trees.write(tmp_path, {"/proc/meminfo": "MemTotal: 16 kB\n", "/dev/shm/psm_1": "x"})
    tree = collect("memory", {"sysroot": str(tmp_path)}).json("memory/host.json")
    assert tree["files"]["/proc/meminfo"] == "MemTotal: 16 kB\n" and "psm_1" in tree["files"]["/dev/shm"]
    assert not any(path.startswith("statvfs:") for path in tree["files"])
    assert tree["errors"]["/proc/vmstat"] == "ENOENT"


OWN_SHM = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    if getattr(libc, name)(*args):
        raise OSError(ctypes.get_errno(), name)
call("unshare", 0x00020000)  # CLONE_NEWNS
call("mount", b"none", b"/", None, 0x40000 | 0x4000, None)  # MS_PRIVATE | MS_REC
call("mount", b"shm", b"/dev/shm", b"tmpfs", 0, b"size=65536")
open("/dev/shm/fills_it", "wb").write(b"x" * 65536)
print("ready", flush=True)
sys.stdin.read()
"""


@needs_root
def test_the_small_shm_of_a_container_is_listed_beside_ours(collect: Collect, start: Start) -> None:
    inside, plain = start(OWN_SHM), start("print('ready', flush=True); input()")
    request: dict[str, Any] = {"targets": [{"pid": inside.pid}, {"pid": plain.pid}]}
    files = collect("memory", request).json("memory/host.json")["files"]
    assert "fills_it" in files[f"/proc/{inside.pid}/root/dev/shm"] and "fills_it" not in files["/dev/shm"]
    sizes = dict(item.split("=") for item in files[f"statvfs:/proc/{inside.pid}/root/dev/shm"].split())
    assert sizes["bavail"] == "0"
    # the other process shares ours: listed once
    assert f"/proc/{plain.pid}/root/dev/shm" not in files


@needs_root
def test_a_container_that_we_may_not_enter_is_said(collect: Collect, start: Start) -> None:
    target = start("print('ready', flush=True); input()")
    found = collect("memory", {"targets": [{"pid": target.pid}]}, as_nobody=True)
    (attempt,) = found.attempts
    assert attempt["outcome"] == "PARTIAL" and "root" in attempt["cure"]
    assert "MemTotal" in found.json("memory/host.json")["files"]["/proc/meminfo"]
