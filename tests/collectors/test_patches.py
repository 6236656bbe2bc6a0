"""Patched files as real processes see them: own interpreters, own roots, changes after the start."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, Started, needs_root

from collectors import _definitions, patches

Collect = Callable[..., Collected]
Start = Callable[..., Started]

SOURCE = textwrap.dedent(
    '''\
    """A module that somebody patches."""
    import functools

    if True:
        class Spin:
            busy_loop_s: float = 0.002

            @functools.lru_cache
            def wait(self):
                return self.busy_loop_s

    def wait():
        return None
    '''
)
LOADER = "import enginelib.spin, os, sys; print(enginelib.spin.__file__, flush=True); sys.stdin.read()"
PATCH = {"name": "spin", "module": "enginelib.spin", "contains": "busy_loop_s: float = 0.002"}


def install(site: Path, source: str = SOURCE) -> Path:
    module = site / "enginelib" / "spin.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").write_text("")
    module.write_text(source)
    return module


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment as its creator lays it out, without the seconds that pip takes."""
    root = tmp_path / "venv"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    home = os.path.dirname(os.path.realpath(sys.executable))
    (root / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    (root / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages").mkdir(parents=True)
    return root


def site_of(venv: Path) -> Path:
    return venv / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


@pytest.fixture
def start() -> Iterator[Start]:
    """As the common one, with an interpreter of choice: a venv is recognised by argv[0]."""
    children: list[subprocess.Popen[bytes]] = []

    def run(code: str, *, python: str | Path = sys.executable, **how: Any) -> Started:
        child = subprocess.Popen([str(python), "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
        children.append(child)
        assert child.stdout
        first = child.stdout.readline().decode().strip()
        assert first, "the child died before it was ready"
        return Started(child, first)

    yield run
    for child in children:
        child.kill()
        child.wait(10)
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()


def readings(found: Collected, pid: int) -> list[dict[str, Any]]:
    listed = found.json(f"patches/pid-{pid}.json")
    assert isinstance(listed, list)
    return listed


def ask(collect: Collect, pids: list[int], *declared: dict[str, Any], **how: Any) -> Collected:
    return collect("patches", {"targets": [{"pid": pid} for pid in pids], "options": {"patches": list(declared)}}, **how)


def test_a_pure_python_process_in_a_venv(collect: Collect, start: Start, venv: Path) -> None:
    """It maps no module, and /proc/PID/exe names the interpreter that the venv was made from."""
    module = install(site_of(venv))
    target = start(LOADER, python=venv / "bin" / "python")
    assert target.first == str(module)
    found = ask(collect, [target.pid], PATCH, {"name": "other", "module": "enginelib.spin", "contains": "not there"})
    first, second = readings(found, target.pid)
    s = module.stat()
    assert first["path"] == str(module) and first["exists"] and first["contains"] is True and second["contains"] is False
    assert first["sha256"] == hashlib.sha256(SOURCE.encode()).hexdigest() and first["size"] == len(SOURCE)
    assert (first["mtime_ns"], first["ctime_ns"]) == (s.st_mtime_ns, s.st_ctime_ns)
    # written before the interpreter began: live, as far as files can tell
    assert first["ctime_ns"] <= first["process_started_ns"] + 20_000_000 and first["error"] == ""
    (attempt,) = found.attempts
    assert (attempt["target"], attempt["outcome"], attempt["pid"]) == (f"pid {target.pid}", "OK", target.pid)
    assert found.heads[f"patches/pid-{target.pid}.json"]["kind"] == "patch-witness"


def test_a_file_that_changed_after_the_start_shows_it(collect: Collect, start: Start, venv: Path) -> None:
    module = install(site_of(venv), SOURCE.replace("0.002", "1.0"))
    target = start(LOADER, python=venv / "bin" / "python")
    module.write_text(SOURCE)
    os.utime(module, ns=(1, 1))  # a copying tool that preserves times hides the change from mtime, not from ctime
    (reading,) = readings(ask(collect, [target.pid], PATCH), target.pid)
    assert reading["contains"] is True and reading["mtime_ns"] == 1
    assert reading["ctime_ns"] > reading["process_started_ns"]


def test_a_worker_forked_after_the_change_still_runs_the_image_of_before(collect: Collect, start: Start, venv: Path) -> None:
    module = install(site_of(venv))
    code = """
import enginelib.spin, os, sys
print(os.getpid(), flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""
    parent = start(code, python=venv / "bin" / "python")
    hertz = os.sysconf("SC_CLK_TCK")
    born = parent.start_ticks
    while time.clock_gettime(time.CLOCK_BOOTTIME) * hertz < born + 3:  # so that the child's start tick is another one
        time.sleep(1 / hertz)
    module.write_text(SOURCE + "# changed\n")
    assert parent.process.stdin and parent.process.stdout
    parent.process.stdin.write(b"fork\n")
    parent.process.stdin.flush()
    child = int(parent.process.stdout.readline())
    try:
        (reading,) = readings(ask(collect, [child], PATCH), child)
    finally:
        os.kill(child, 9)
    assert reading["image_started_ns"] < reading["process_started_ns"]
    assert reading["image_started_ns"] < reading["ctime_ns"]


def test_a_spawned_child_has_an_image_of_its_own(collect: Collect, start: Start, venv: Path) -> None:
    install(site_of(venv))
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
    parent = start(code, python=venv / "bin" / "python")
    child = int(parent.first)
    try:
        (reading,) = readings(ask(collect, [child], PATCH), child)
    finally:
        os.kill(child, 9)
    assert reading["image_started_ns"] == reading["process_started_ns"]


def test_a_retitled_worker_is_placed_by_what_its_parent_says(collect: Collect, start: Start, venv: Path) -> None:
    """setproctitle overwrites command line and environment; here the child is started with neither."""
    module = install(site_of(venv))
    code = f"""
import os, subprocess, sys
run = "import sys; sys.path.insert(0, {str(site_of(venv))!r}); import enginelib.spin; print('ready', flush=True); input()"
child = subprocess.Popen(["VLLM::Worker_TP1", "-c", run], executable=os.path.realpath(sys.executable),
                         env={{"PYTHONHOME": sys.base_prefix}}, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
    parent = start(code, python=venv / "bin" / "python", cwd="/")
    child = int(parent.first)
    try:
        (reading,) = readings(ask(collect, [child], PATCH), child)
    finally:
        os.kill(child, 9)
    assert reading["path"] == str(module) and reading["contains"] is True


def test_mapped_extension_modules_outweigh_everything(tmp_path: Path, collect: Collect) -> None:
    """A recorded tree: a retitled worker without parent, whose only trace is what it has mapped."""
    site = "/opt/env/lib/python3.11/site-packages"
    maps = "".join(f"7f00{i}-7f01{i} r-xp 00000000 08:01 {i} {site}/torch/lib/lib{i}.so\n" for i in range(3))
    maps += "7f20-7f21 r-xp 00000000 08:01 9 /usr/lib/python3/dist-packages/numpy/core.so\n"
    maps += "7f30-7f31 rw-p 00000000 00:00 0\n7f40-7f41 rw-p 00000000 00:00 0 [heap]\n"
    trees.process(tmp_path, 4243, argv=("VLLM::Worker_TP1",), maps=maps)
    trees.write(tmp_path, {f"{site}/enginelib/spin.py": SOURCE, "/usr/lib/python3/dist-packages/enginelib/spin.py": "old = 1\n"})
    trees.write(tmp_path, {"/proc/stat": "cpu 1\nbtime 1788256800\n"})
    found = collect("patches", {"sysroot": str(tmp_path), "targets": [{"pid": 4243, "start_ticks": 500}], "options": {"patches": [PATCH]}})
    (reading,) = readings(found, 4243)
    assert reading["path"] == f"{site}/enginelib/spin.py" and reading["contains"] is True
    assert reading["also"] == ["/usr/lib/python3/dist-packages/enginelib/spin.py"]
    assert reading["process_started_ns"] == (1788256800 + 5) * 10**9  # 500 ticks of 10 ms


def test_a_container_is_read_through_its_own_root_and_its_absolute_links_stay_inside(tmp_path: Path, collect: Collect) -> None:
    site = "/opt/env/lib/python3.11/site-packages"
    trees.process(tmp_path, 4243, container="/container", maps=f"7f00-7f01 r-xp 00000000 08:01 1 {site}/torch/_C.so\n")
    trees.write(
        tmp_path, {f"/container/data{site}/enginelib/spin.py": SOURCE, "/opt/env/x": "", f"/data{site}/enginelib/spin.py": "ours = 1\n"}
    )
    (tmp_path / "container/opt").mkdir(exist_ok=True)
    (tmp_path / "container/opt/env").symlink_to("/data/opt/env")  # absolute: from outside it leads to our own /data
    found = collect("patches", {"sysroot": str(tmp_path), "targets": [{"pid": 4243}], "options": {"patches": [PATCH]}})
    (reading,) = readings(found, 4243)
    assert reading["contains"] is True and reading["path"] == f"{site}/enginelib/spin.py"
    assert reading["sysroot_path"].endswith(f"/proc/4243/root/data{site}/enginelib/spin.py")


@needs_root
def test_a_process_in_another_root_of_this_machine(collect: Collect, start: Start, tmp_path: Path) -> None:
    """A live chroot, as a container is one: the same path names another file inside."""
    site = "/opt/env/lib/python3.11/site-packages"
    module = install(tmp_path / "inner" / site.lstrip("/"))
    code = f"import os, sys; os.chroot({str(tmp_path / 'inner')!r}); os.chdir('/'); print('ready', flush=True); sys.stdin.read()"
    target = start(code, env={**os.environ, "PYTHONPATH": site})
    (reading,) = readings(ask(collect, [target.pid], PATCH), target.pid)
    assert reading["path"] == f"{site}/enginelib/spin.py" and reading["sha256"] == hashlib.sha256(module.read_bytes()).hexdigest()


@pytest.mark.parametrize("how", ["pth", "finder"])
def test_an_editable_install(collect: Collect, start: Start, venv: Path, tmp_path: Path, how: str) -> None:
    module = install(tmp_path / "checkout")
    if how == "pth":
        (site_of(venv) / "engine.pth").write_text(f"import os\n# comment\n{tmp_path / 'checkout'}\n")
    else:
        mapping = {"enginelib": str(module.parent)}
        (site_of(venv) / "__editable___engine_1_0_finder.py").write_text(f"MAPPING: dict[str, str] = {mapping!r}\n")
    target = start("print('ready', flush=True); input()", python=venv / "bin" / "python", cwd="/")
    (reading,) = readings(ask(collect, [target.pid], PATCH), target.pid)
    assert reading["path"] == str(module)


def test_a_function_by_its_source(collect: Collect, start: Start, venv: Path) -> None:
    install(site_of(venv))
    target = start(LOADER, python=venv / "bin" / "python")
    names = ("Spin.wait", "wait", "Spin", "nowhere")
    declared = [{"name": name, "module": "enginelib.spin", "function": name} for name in names]
    by_name = {r["patch"]: r["function"] for r in readings(ask(collect, [target.pid], *declared), target.pid)}
    method = "def wait(self):\n            return self.busy_loop_s"  # as it stands in the file, its decorator left out
    assert method in SOURCE
    assert by_name["Spin.wait"] == {"name": "Spin.wait", "found": True, "source_sha256": hashlib.sha256(method.encode()).hexdigest()}
    assert by_name["wait"]["source_sha256"] == hashlib.sha256(b"def wait():\n    return None").hexdigest()
    assert by_name["Spin"]["found"] and by_name["nowhere"] == {"name": "nowhere", "found": False, "source_sha256": None}


def test_the_last_of_two_definitions_counts_and_line_ends_do_not() -> None:
    twice = b"def f():\r\n    return 1\r\ndef f():\r\n    return 2\r\n"
    found = patches.read_function(twice, "f")["function"]
    assert found["source_sha256"] == hashlib.sha256(b"def f():\n    return 2").hexdigest()


@pytest.mark.parametrize(
    "raw", [b"def f(:\n", b"\x00\xff\xfe", b"# coding: nonsense\n", b"(" * 5000], ids=["syntax", "binary", "coding", "deep"]
)
def test_a_source_that_cannot_be_parsed_is_said(raw: bytes) -> None:
    found = patches.read_function(raw, "f")
    assert found["function"] is None and "cannot be parsed" in found["error"]


def test_ranks_that_share_a_file_share_the_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = install(tmp_path)
    parsed: list[int] = []
    real = ast.parse
    monkeypatch.setattr(_definitions.ast, "parse", lambda source: parsed.append(1) or real(source))
    cache: dict[tuple[Any, ...], dict[str, Any]] = {}
    declared = {**PATCH, "function": "wait"}
    one, two = (patches.read_file(str(file), declared, cache) for _ in range(2))
    assert one == two and len(parsed) == 1
    patches.read_file(str(file), {**PATCH, "function": "Spin.wait"}, cache)
    assert len(parsed) == 2


def test_a_file_by_path_and_files_that_are_none(collect: Collect, start: Start, venv: Path, tmp_path: Path) -> None:
    module = install(site_of(venv))
    os.mkfifo(tmp_path / "fifo")
    target = start(LOADER, python=venv / "bin" / "python")
    declared = [
        {"name": "relative", "file": "enginelib/spin.py"},
        {"name": "absolute", "file": str(module), "contains": "busy"},
        {"name": "fifo", "file": str(tmp_path / "fifo"), "contains": "busy"},
        {"name": "missing", "module": "enginelib.nothing"},
        {"name": 7, "module": "enginelib.spin", "contains": 0.002, "live": {"equals": 1}},
        {"name": "package", "module": "enginelib"},
        {"name": "only a line in the log", "log_marker": "active"},
    ]
    found = ask(collect, [target.pid], *declared)
    by_name = {r["patch"]: r for r in readings(found, target.pid)}
    assert "only a line in the log" not in by_name
    assert by_name["relative"]["path"] == str(module) and by_name["relative"]["contains"] is None
    assert by_name["absolute"]["contains"] is True
    assert by_name["fifo"]["contains"] is None and "not a regular file" in by_name["fifo"]["error"]
    assert by_name["7"]["contains"] is True
    assert not by_name["missing"]["exists"] and by_name["missing"]["error"] == "" and str(site_of(venv)) in by_name["missing"]["searched"]
    assert by_name["package"]["path"].endswith("enginelib/__init__.py")
    assert found.attempts[0]["outcome"] == "PARTIAL"


@needs_root
def test_a_process_that_we_may_not_look_into_is_denied_with_the_cure(collect: Collect, start: Start, venv: Path) -> None:
    install(site_of(venv))
    target = start(LOADER, python=venv / "bin" / "python")
    found = ask(collect, [target.pid], PATCH, as_nobody=True)
    (attempt,) = found.attempts
    assert attempt["outcome"] == "DENIED" and "CAP_SYS_PTRACE" in attempt["cure"]
    (reading,) = readings(found, target.pid)
    assert reading["exists"] is False and "EACCES" in reading["error"]


def test_nothing_declared_nobody_there_and_a_reused_pid(collect: Collect, start: Start) -> None:
    target = start("print('ready', flush=True); input()")
    assert [a["outcome"] for a in collect("patches", {"targets": [{"pid": target.pid}]}).attempts] == ["ABSENT"]
    assert [a["outcome"] for a in ask(collect, [], PATCH).attempts] == ["SKIPPED"]
    request = {"targets": [{"pid": target.pid, "start_ticks": 1}, {"pid": 2**22 + 1}], "options": {"patches": [PATCH]}}
    found = collect("patches", request)
    assert [a["outcome"] for a in found.attempts] == ["ABSENT", "ABSENT"] and not found.content
    assert "another process" in found.attempts[0]["reason"]


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield
