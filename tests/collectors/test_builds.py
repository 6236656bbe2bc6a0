"""Builds and installed files of real processes: a distribution with its record, files changed under it, libraries that are mapped."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, Started, needs_root

from collectors import _environment, _installed, _recorded
from collectors._cpython._elf import Elf

Collect = Callable[..., Collected]
Start = Callable[..., Started]

FILES = {
    "enginelib/__init__.py": "",
    "enginelib/_version.py": "__version__ = version = '1.2.3'\n__commit_id__ = commit_id = 'g0123abc'\n",
    "enginelib/core.py": "def step():\n    return 1\n",
    "enginelib/layers/__init__.py": "",
    "enginelib/layers/tune.json": "{}\n",
}
HOLD = "import mmap, os, sys; maps = [mmap.mmap(os.open(p, os.O_RDONLY), 0, prot=mmap.PROT_READ) for p in sys.argv[1:]]; print('ready', flush=True); sys.stdin.read()"


def elf(build_id: bytes, text: bytes = b"", align: int = 4) -> bytes:
    """A library with nothing but a build id and some read-only text."""
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
    names = b"\0.rodata\0.shstrtab\0"
    note_at = 64 + 56
    text_at = note_at + len(note)
    names_at = text_at + len(text)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, names_at + len(names), 0, 64, 56, 1, 64, 3, 2)
    program = struct.pack("<IIQQQQQQ", 4, 4, note_at, note_at, note_at, len(note), len(note), align)

    def section(name: int, kind: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)

    table = bytes(64) + section(1, 1, text_at, len(text)) + section(9, 3, names_at, len(names))
    return head + program + note + text + names + table


def hashed(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def install(site: Path, name: str = "engine-lib", version: str = "1.2.3", files: dict[str, str] = FILES, **more: str) -> Path:
    """Lay a distribution out as an installer does, its record last. Returns its metadata folder."""
    meta = site / f"{name.replace('-', '_')}-{version}.dist-info"
    inside = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the long text\n",
        "INSTALLER": "pip\n",
        **more,
    }
    record = []
    for path, text in {**files, **{f"{meta.name}/{n}": t for n, t in inside.items()}}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        record.append(f"{path},sha256={hashed(text.encode())},{len(text.encode())}")
    record += [f"{p[:-3].replace('core', '__pycache__/core')}.cpython-311.pyc,," for p in files if p.endswith("core.py")]
    record += ["../../../bin/engine,sha256=AAAA,10", f"{meta.name}/RECORD,,"]
    (meta / "RECORD").write_text("\n".join(record) + "\n")
    return meta


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "env" / "site-packages"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def hold(start: Start, site: Path) -> Callable[..., Started]:
    """A process that imports from `site` and maps the given files."""

    def run(*paths: Path, **env: str) -> Started:
        return start(HOLD, *paths, env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", **env}, cwd="/")

    return run


def ask(collect: Collect, *pids: int, **options: Any) -> Collected:
    request = {"targets": [{"pid": pid, "engine": "e0"} for pid in pids], "options": {"packages": {"e0": ["enginelib"]}, **options}}
    found = collect("builds", request)
    assert (found.rc, found.stderr) == (0, "")
    return found


def environment(found: Collected, number: int = 1) -> dict[str, Any]:
    body = found.json(f"builds/environment-{number}.json")
    assert isinstance(body, dict)
    return body


def the_check(found: Collected) -> dict[str, Any]:
    (check,) = environment(found)["checks"]
    return check


def paths(files: list[dict[str, Any]]) -> list[str]:
    return [f["path"] for f in files]


def test_files_as_they_were_installed(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site)
    target = hold()
    found = ask(collect, target.pid)
    told = found.json(f"builds/pid-{target.pid}.json")
    (package,) = [p for p in told["packages"] if p["package"] == "enginelib"]
    assert (package["folder"], package["version"], package["commit"]) == (str(site), "1.2.3", "0123abc")
    assert package["owners"] == ["engine-lib"] and package["editable"] == "" and package["inferred"] is False
    check = the_check(found)
    assert (check["named"], check["hashed"], check["sources"], check["sources_hashed"]) == (5, 5, 4, 4)
    assert (check["modified"], check["missing"], check["added"], check["differing"], check["cut"]) == ([], [], [], 0, "")
    assert [a["outcome"] for a in found.attempts] == ["OK", "OK"]
    (listed,) = [d for d in environment(found)["distributions"] if d["name"] == "engine-lib"]
    assert (listed["version"], listed["installer"], listed["folder"]) == ("1.2.3", "pip", str(site))


def test_modified_missing_and_added_files_are_listed(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site)
    same_size = FILES["enginelib/core.py"].replace("1", "2")
    (site / "enginelib/core.py").write_text(same_size)
    (site / "enginelib/layers/tune.json").write_text('{"block": 128}\n')
    (site / "enginelib/layers/__init__.py").unlink()
    (site / "enginelib/hotfix.py").write_text("patched = True\n")
    (site / "enginelib/__pycache__").mkdir()
    (site / "enginelib/__pycache__/x.py").write_text("")
    (site / "enginelib/notes.txt").write_text("no code")
    target = hold()
    check = the_check(ask(collect, target.pid))
    assert paths(check["modified"]) == ["enginelib/layers/tune.json", "enginelib/core.py"]
    assert paths(check["missing"]) == ["enginelib/layers/__init__.py"]
    assert paths(check["added"]) == ["enginelib/hotfix.py"]
    assert check["differing"] == 4 and check["hashed"] == 5
    s = (site / "enginelib/core.py").stat()
    assert (check["modified"][1]["mtime_ns"], check["modified"][1]["ctime_ns"]) == (s.st_mtime_ns, s.st_ctime_ns)


def test_what_another_distribution_names_was_not_added_by_hand(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site)
    install(site, "engine-kernels", "0.1", {"enginelib/kernels/__init__.py": "", "enginelib/kernels/fast.py": "x = 1\n"})
    (site / "enginelib/own.py").write_text("")
    target = hold()
    assert paths(the_check(ask(collect, target.pid))["added"]) == ["enginelib/own.py"]


def test_a_second_metadata_folder_without_files_is_not_the_owner(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    """A build for another device is installed under its own name, and a shell of the usual name beside it."""
    install(site, "enginelib-cpu")
    install(site, "enginelib", "1.2.3", {}, METADATA="Metadata-Version: 2.1\nName: enginelib\nVersion: 1.2.3+cpu\n")
    target = hold()
    found = ask(collect, target.pid)
    assert [p["owners"] for p in found.json(f"builds/pid-{target.pid}.json")["packages"] if p["package"] == "enginelib"] == [
        ["enginelib-cpu"]
    ]
    assert the_check(found)["distribution"] == "enginelib-cpu"


def test_ranks_that_share_their_files_share_the_work(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site)
    one, two = hold(), hold()
    found = ask(collect, one.pid, two.pid)
    assert environment(found)["pids"] == [one.pid, two.pid] and "builds/environment-2.json" not in found.content
    assert len(found.attempts) == 3


def test_ranks_of_two_environments_are_two_and_a_shared_file_is_read_once(
    collect: Collect, hold: Callable[..., Started], site: Path
) -> None:
    install(site)
    other = site.parent.parent / "other" / "site-packages"
    shutil.copytree(site, other, copy_function=os.link)
    (other / "enginelib/core.py").unlink()
    (other / "enginelib/core.py").write_text("def step():\n    return 7\n")
    one, two = hold(), hold(PYTHONPATH=str(other))
    size = sum(len(text.encode()) for text in FILES.values()) + len("def step():\n    return 7\n")
    found = ask(collect, one.pid, two.pid, hash_bytes=size)
    assert environment(found, 1)["checks"][0]["modified"] == []
    assert paths(environment(found, 2)["checks"][0]["modified"]) == ["enginelib/core.py"]
    assert [c["cut"] for n in (1, 2) for c in environment(found, n)["checks"]] == ["", ""]


@pytest.mark.parametrize("bound", [{"hash_bytes": 60}, {"hash_s": -1.0}], ids=["bytes", "seconds"])
def test_what_was_not_read_is_counted_and_said(collect: Collect, hold: Callable[..., Started], site: Path, bound: dict[str, float]) -> None:
    install(site)
    target = hold()
    found = ask(collect, target.pid, **bound)
    check = the_check(found)
    assert check["hashed"] < check["named"] and check["cut"] and check["modified"] == []
    assert found.attempts[-1]["outcome"] == "PARTIAL" and f"{check['hashed']} of {check['named']} files" in found.attempts[-1]["reason"]


def test_what_is_newer_than_the_record_is_read_first(tmp_path: Path) -> None:
    record = install(tmp_path)
    changed = tmp_path / "enginelib/core.py"
    changed.write_text(FILES["enginelib/core.py"].replace("1", "3"))
    at = (record / "RECORD").stat().st_mtime_ns
    os.utime(changed, ns=(at + 5 * 10**9, at + 5 * 10**9))
    budget = _recorded.Budget(changed.stat().st_size, 60)
    check = _recorded.Check("", str(tmp_path), (record / "RECORD").read_bytes(), at)
    check.look(own=True, everything=False)
    for level in range(4):
        check.work(level, budget)
    assert paths(check.found["modified"]) == ["enginelib/core.py"] and check.result(budget)["cut"] == "no bytes left"


def test_a_library_is_hashed_only_where_asked_or_newer(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site, files={**FILES, "enginelib/_C.abi3.so": "as built"})
    (site / "enginelib/_C.abi3.so").write_text("as BUILT")
    old = (site / "enginelib/core.py").stat().st_mtime_ns
    os.utime(site / "enginelib/_C.abi3.so", ns=(old, old))
    target = hold()
    usual = the_check(ask(collect, target.pid))
    assert usual["modified"] == [] and (usual["named"], usual["hashed"]) == (6, 5), "not read is not called unmodified"
    assert paths(the_check(ask(collect, target.pid, everything=True))["modified"]) == ["enginelib/_C.abi3.so"]


def test_a_package_without_a_record_is_said(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    (install(site, "enginelib") / "RECORD").unlink()
    target = hold()
    found = ask(collect, target.pid)
    assert (the_check(found)["hashed"], the_check(found)["cut"]) == (0, "it keeps no record of its files")
    assert found.attempts[-1]["outcome"] == "PARTIAL"


def test_a_source_folder_that_nobody_installed_has_a_version_and_no_check(
    collect: Collect, hold: Callable[..., Started], site: Path
) -> None:
    shutil.rmtree(install(site))
    target = hold()
    found = ask(collect, target.pid)
    (package,) = [p for p in found.json(f"builds/pid-{target.pid}.json")["packages"] if p["package"] == "enginelib"]
    assert (package["version"], package["owners"]) == ("1.2.3", []) and environment(found)["checks"] == []


def test_an_editable_installation_is_told_with_its_source(
    collect: Collect, hold: Callable[..., Started], site: Path, tmp_path: Path
) -> None:
    source = tmp_path / "checkout"
    (source / "enginelib").mkdir(parents=True)
    (source / "enginelib/__init__.py").write_text("")
    direct = json.dumps({"url": f"file://{source}", "dir_info": {"editable": True}})
    install(site, "engine-lib", "1.2.4.dev0", {"__editable__.engine_lib.pth": f"{source}\n"}, **{"direct_url.json": direct})
    target = hold(PYTHONPATH=f"{site}:{source}")  # as the .pth file has it in an environment of its own
    found = ask(collect, target.pid)
    (package,) = [p for p in found.json(f"builds/pid-{target.pid}.json")["packages"] if p["package"] == "enginelib"]
    assert (package["folder"], package["editable"], package["version"]) == (str(source), str(source), "1.2.4.dev0")
    check = the_check(found)
    assert check["hashed"] == 0 and str(source) in check["cut"] and found.attempts[-1]["outcome"] == "PARTIAL"


@pytest.mark.parametrize("what", ["gone", "replaced"])
def test_files_that_go_away_meanwhile_are_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """As when the process through whose root a container is read ends, or when somebody installs just now."""
    record = install(tmp_path) / "RECORD"
    (one,) = _installed.installed("", str(tmp_path))
    look = _recorded.Check.look

    def meanwhile(check: _recorded.Check, *how: Any) -> None:
        shutil.rmtree(tmp_path / "enginelib")
        look(check, *how)
        if what == "gone":
            shutil.rmtree(record.parent)
        else:
            record.rename(record.with_name("OLD"))
            record.write_text("")

    monkeypatch.setattr(_recorded.Check, "look", meanwhile)
    environment = _environment.Environment("", [str(tmp_path)], distributions=[one], checked={one.meta: one})
    (told,) = _environment.check(environment, _recorded.Budget(1 << 20, 60), everything=False)
    assert told["missing"] == [] and told["named"] == 0 and "went away or were replaced" in told["cut"]


# libraries


def test_libraries_that_are_mapped_with_their_builds(collect: Collect, hold: Callable[..., Started], site: Path, tmp_path: Path) -> None:
    install(site)
    nccl, driver, module = tmp_path / "libnccl.so.2", tmp_path / "libcuda.so.570.86.15", site / "enginelib/_C.abi3.so"
    nccl.write_bytes(elf(b"\x01" * 20, b"x\0NCCL version 2.27.5+cuda12.9\0y"))
    driver.write_bytes(elf(b"\x02" * 20, align=8))
    module.write_bytes(elf(b"\x03" * 20))
    (tmp_path / "libother.so.1").write_bytes(elf(b"\x04" * 20))
    target = hold(nccl, driver, module, tmp_path / "libother.so.1")
    told = ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")
    found = {os.path.basename(one["path"]): (one["version"], one["build_id"], one["deleted"], one["error"]) for one in told["libraries"]}
    assert found == {
        "libnccl.so.2": ("2.27.5", "01" * 20, False, ""),
        "libcuda.so.570.86.15": ("570.86.15", "02" * 20, False, ""),
        "_C.abi3.so": ("", "03" * 20, False, ""),
    }


def test_a_library_takes_the_version_of_the_package_whose_record_names_it(
    collect: Collect, hold: Callable[..., Started], site: Path, tmp_path: Path
) -> None:
    install(site)
    install(site, "nvidia-cuda-runtime-cu12", "12.9.79", {"nvidia/cuda_runtime/lib/libcudart.so.12": "to be replaced"})
    ours, foreign = site / "nvidia/cuda_runtime/lib/libcudart.so.12", tmp_path / "libcudart.so.12"
    for path in (ours, foreign):
        path.write_bytes(elf(b"\x05" * 20))
    target = hold(ours, foreign)
    told = ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")
    assert {one["path"]: one["version"] for one in told["libraries"]} == {str(ours): "12.9.79", str(foreign): ""}


def test_a_library_that_was_replaced_under_the_process(collect: Collect, hold: Callable[..., Started], tmp_path: Path) -> None:
    nccl = tmp_path / "libnccl.so.2"
    nccl.write_bytes(elf(b"\x06" * 20, b"NCCL version 2.26.2\0"))
    target = hold(nccl)
    nccl.unlink()
    nccl.write_bytes(elf(b"\x07" * 20, b"NCCL version 2.27.5\0"))
    (one,) = ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")["libraries"]
    assert one["deleted"] is True and one["path"] == str(nccl)
    # the mapped file itself can be read by those who may; the new one of that name is never taken for it
    assert (one["version"], one["build_id"]) in (("2.26.2", "06" * 20), ("", "")) and (one["build_id"] or one["error"])


def test_a_preloaded_library_is_told_and_read(collect: Collect, hold: Callable[..., Started]) -> None:
    libm = next(
        line.split(None, 5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line or "/libc-" in line
    )
    target = hold(LD_PRELOAD=libm)
    told = ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")
    assert told["preloaded"] == [libm]
    (one,) = [one for one in told["libraries"] if one["preloaded"]]
    with open(one["path"], "rb") as file:
        assert one["build_id"] == Elf(file.fileno()).build_id and len(one["build_id"]) == 40


@pytest.mark.skipif(not shutil.which("readelf"), reason="compares with readelf")
def test_build_ids_are_those_that_readelf_shows() -> None:
    library = next(
        line.split(None, 5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line or "/libc-" in line
    )
    shown = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    with open(library, "rb") as file:
        assert f"Build ID: {Elf(file.fileno()).build_id}\n" in shown


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", elf(b"\x01" * 20)[:100]], ids=["empty", "short", "script", "cut"])
def test_a_file_that_is_no_library_is_said(collect: Collect, hold: Callable[..., Started], tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(content or b"\0")
    target = hold(path)
    (one,) = ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")["libraries"]
    assert one["build_id"] == "" and one["error"]


# who may look


@needs_root
def test_a_process_that_we_may_not_look_into_is_denied_with_the_cure(collect: Collect, hold: Callable[..., Started], site: Path) -> None:
    install(site)
    target = hold()
    found = collect("builds", {"targets": [{"pid": target.pid}]}, as_nobody=True)
    assert found.attempts[0]["outcome"] == "DENIED" and "CAP_SYS_PTRACE" in found.attempts[0]["cure"]


def test_a_container_is_read_through_its_own_root(tmp_path: Path, collect: Collect) -> None:
    inner = "/opt/env/lib/python3.11/site-packages"
    trees.process(tmp_path, 4243, container="/container", maps=f"7f00-7f01 r-xp 00000000 08:01 1 {inner}/enginelib/_C.abi3.so\n")
    real = tmp_path / "container/data/site"
    install(real)
    # an absolute link: from outside it leads to our own /data
    (tmp_path / f"container{inner}").parent.mkdir(parents=True)
    (tmp_path / f"container{inner}").symlink_to("/data/site")
    request = {"sysroot": str(tmp_path), "targets": [{"pid": 4243, "engine": "e0"}], "options": {"packages": {"e0": ["enginelib"]}}}
    found = collect("builds", request)
    (check,) = found.json("builds/environment-1.json")["checks"]
    assert check["hashed"] == 5 and check["missing"] == [] and check["folder"] == inner


def test_the_version_of_python(collect: Collect, hold: Callable[..., Started]) -> None:
    target = hold()
    assert ask(collect, target.pid).json(f"builds/pid-{target.pid}.json")["python"] in (sysconfig.get_python_version(), "")
    assert sys.version_info >= (3, 10)
