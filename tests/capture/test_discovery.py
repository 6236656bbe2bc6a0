"""Finding engines among the real processes of this machine, and in recorded trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from forensics.capture import _procfs as procfs
from forensics.capture._patience import each
from forensics.capture.discovery import Discovery, discover, stopped
from forensics.model import EngineInstance, Role

from .conftest import Grow, Tree, generic, program, titled, until_state, vllm


def of(tree: Tree, **more: object) -> tuple[EngineInstance, Discovery]:
    """The one engine of a tree: other engines may be running on this machine."""
    found = discover(**more)  # type: ignore[arg-type]
    mine = [engine for engine in found.engines if {p.pid for p in engine.processes} & set(tree.pids.values())]
    assert len(mine) == 1, [(engine.kind, [(p.pid, p.label) for p in engine.processes]) for engine in mine]
    return mine[0], found


def ranks(engine: EngineInstance) -> dict[int, int | None]:
    return {p.pid: p.rank.rank if p.rank else None for p in engine.workers}


def test_vllm_with_titles_log_port_and_limits(grow: Grow) -> None:
    tree = grow(vllm())
    engine, _ = of(tree)
    assert engine.kind == "vllm" and engine.world_size == 2 and engine.execute_timeout_s == 45
    assert ranks(engine) == {tree.pids["worker0"]: 0, tree.pids["worker1"]: 1}
    assert engine.log_files == (str(tree.log),)
    api = next(p for p in engine.processes if p.role is Role.API)
    assert api.pid == tree.pids["api"] and api.info.listening_ports == (tree.port,)
    assert api.info.start_ticks and api.info.started_ns and api.info.uid == os.getuid() and api.info.exe
    assert "VLLM_API_KEY" not in api.info.env and api.info.env["TZ"] == "UTC", "the environment is read by allow-list"
    worker = next(p for p in engine.processes if p.pid == tree.pids["worker0"])
    assert worker.info.argv == ("VLLM::Worker_TP0",) and worker.info.comm == "VLLM::Worker_TP"


def test_stopped_and_dead_members_are_told_apart(grow: Grow) -> None:
    tree = grow(vllm())
    os.kill(tree.pids["worker1"], signal.SIGSTOP)
    os.kill(tree.pids["worker0"], signal.SIGKILL)
    until_state(tree.pids["worker0"], "Z")
    until_state(tree.pids["worker1"], "T")
    engine, _ = of(tree)
    states = {p.pid: p.info.state for p in engine.workers}
    assert states == {tree.pids["worker0"]: "Z", tree.pids["worker1"]: "T"}
    assert ranks(engine) == {tree.pids["worker0"]: 0, tree.pids["worker1"]: 1}, "the zombie's rank is the one that is missing"
    assert stopped(tree.pids.values()) == {tree.pids["worker1"]}


def test_orphans_of_a_killed_head(grow: Grow) -> None:
    tree = grow(vllm())
    for name in ("api", "core"):
        os.kill(tree.pids[name], signal.SIGKILL)
    for name in ("api", "core"):
        for _ in range(2000):
            if tree.pids[name] not in procfs.pids():
                break
            threading.Event().wait(0.005)
    engine, _ = of(tree)
    assert ranks(engine) == {tree.pids["worker0"]: 0, tree.pids["worker1"]: 1}


def test_torchrun(grow: Grow) -> None:
    env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    ranked = tuple(program(f"rank{rank}", "serve.py", env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2))
    tree = grow(program("agent", "torchrun", "--nproc-per-node", "2", "serve.py", children=ranked))
    engine, _ = of(tree)
    assert engine.kind == "torchrun" and ranks(engine) == {tree.pids["rank0"]: 0, tree.pids["rank1"]: 1}


def test_generic(grow: Grow) -> None:
    tree = grow(generic())
    engine, _ = of(tree)
    assert engine.kind == "python" and engine.ports == (tree.port,) and engine.world_size == 2
    assert {p.pid: p.role for p in engine.processes}[tree.pids["core"]] is Role.CORE


def test_pid_chooses_the_whole_engine_of_that_process(grow: Grow) -> None:
    tree, other = grow(vllm()), grow(generic())
    found = discover(pids=[tree.pids["worker1"]])
    assert [engine.kind for engine in found.engines] == ["vllm"]
    assert set(found.pids) == set(tree.pids.values())
    assert not set(other.pids.values()) & set(found.pids)


def test_pid_of_something_unknown_is_an_engine_by_itself() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            found = discover(pids=[child.pid])
            assert [p.pid for engine in found.engines for p in engine.processes] == [child.pid]
        finally:
            child.kill()


def test_kind_restricts(grow: Grow) -> None:
    tree = grow(vllm())
    assert not set(discover(engine="torchrun").pids) & set(tree.pids.values())
    assert any("torchrun" in text for text in discover(engine="torchrun").looked_for)


def test_never_itself_or_its_parents() -> None:
    code = "from forensics.capture.discovery import discover; import os; print(*discover().pids, '/', os.getpid(), os.getppid())"
    done = subprocess.run([sys.executable, "-c", code, "--rank", "0"], capture_output=True, text=True, timeout=60, check=True)
    found, _, ours = done.stdout.partition("/")
    assert not set(found.split()) & {*ours.split(), str(os.getpid())}


def test_processes_that_vanish_during_the_search_are_no_error() -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=False)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(15):
            discover()
    finally:
        stop.set()
        thread.join()


def test_a_log_behind_tee_is_found(tmp_path: Path) -> None:
    log = tmp_path / "tee.log"
    code = "import os, sys; print('ready', flush=True); sys.stdin.read()"
    tee = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = subprocess.Popen([sys.executable, "-c", code, "--rank", "0"], stdin=subprocess.PIPE, stdout=tee.stdin, stderr=tee.stdin)
    try:
        assert tee.stdout and tee.stdout.readline() == b"ready\n"
        found = discover(pids=[child.pid])
        assert found.engines[0].log_files == (str(log),)
    finally:
        child.kill()
        tee.kill()
        for process in (child, tee):
            process.communicate()


def test_a_deleted_log_is_read_through_its_descriptor(grow: Grow) -> None:
    tree = grow(generic())
    tree.log.unlink()
    engine, _ = of(tree)
    assert Path(engine.log_files[0]).read_text().startswith("INFO")
    assert engine.log_files[0].startswith("/proc/") and engine.processes[0].info.stdout.endswith("(deleted)")


def test_a_read_that_hangs_costs_its_patience_and_nothing_else() -> None:
    gate = threading.Event()

    def work(item: int) -> int:
        if item == 2:
            gate.wait(60)
        if item == 3:
            raise FileNotFoundError
        return item * 10

    results, stuck = each(range(5), work, 0.2)
    gate.set()
    assert results == {0: 0, 1: 10, 4: 40} and stuck == [2]
    with pytest.raises(ValueError, match="boom"):
        each([1], lambda item: (_ for _ in ()).throw(ValueError("boom")), 1.0)


def test_an_answer_that_only_came_late_counts() -> None:
    gate, through = threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item == 0:
            gate.wait(60)
            through.set()
        if item == 2:
            gate.set()
            through.wait(60)
            threading.Event().wait(0.1)  # between the late answer's return and its delivery
        return item

    assert each(range(3), work, 3.0) == ({0: 0, 1: 1, 2: 2}, [])


def test_engine_in_a_container(tmp_path: Path) -> None:
    """Its log exists only in its own mount namespace, and it calls itself pid 1."""
    inside = tmp_path / "inside"
    inside.mkdir()
    code = "import os, sys; print('hello', flush=True); os.write(int(sys.argv[1]), b'ready'); sys.stdin.read()"
    read, write = os.pipe()
    shell = f'mount -t tmpfs none {inside} && exec {sys.executable} -c "{code}" {write} --rank 0 > {inside}/engine.log 2>&1'
    child = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", shell], pass_fds=[write], stdin=subprocess.PIPE
    )
    os.close(write)
    try:
        if os.read(read, 5) != b"ready":
            pytest.skip("namespaces cannot be made here: run as root, or allow user namespaces")
        pid = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
        info = discover(pids=[pid]).engines[0].processes[0].info
        assert info.ns_pids == (pid, 1) and info.pid_namespace != os.readlink("/proc/self/ns/pid")
        assert info.log_files == (f"/proc/{pid}/root{inside}/engine.log",)
        assert Path(info.log_files[0]).read_text() == "hello\n"
    finally:
        os.close(read)
        child.kill()
        child.communicate()


def record(root: Path, pid: int, ppid: int, argv: list[str], comm: str = "python3") -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0\0   \0")
    fields = ["S", str(ppid), "1", str(pid), "0", "-1", "4194304", *["0"] * 12, "5000", *["0"] * 30]
    (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t{pid}\t7\n")
    (folder / "fd" / "1").symlink_to("/var/log/engine.log")


def test_recorded_tree(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu 0\nbtime 1700000000\n")
    record(tmp_path, 50, 1, ["/opt/bin/python3", "/opt/bin/vllm", "serve", "m", "-tp", "2"])
    record(tmp_path, 51, 50, ["VLLM::EngineCore"], "VLLM::EngineCor")
    record(tmp_path, 52, 51, ["VLLM::Worker_TP0"], "VLLM::Worker (x")
    record(tmp_path, 53, 51, ["VLLM::Worker_TP1"])
    (tmp_path / "proc" / "54").mkdir()
    found = discover(str(tmp_path))
    assert len(found.engines) == 1 and ranks(found.engines[0]) == {52: 0, 53: 1}
    worker = found.engines[0].workers[0].info
    assert worker.comm == "VLLM::Worker (x" and worker.ns_pids == (52, 7) and worker.uid == 1000
    assert worker.title == "VLLM::Worker_TP0" and worker.log_files == ("/var/log/engine.log",)
    assert worker.started_ns == 1_700_000_000 * 10**9 + 5000 * 10**9 // os.sysconf("SC_CLK_TCK")


def test_no_proc_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        discover(str(tmp_path))


def test_titles_with_padding_and_a_helper_below(grow: Grow) -> None:
    tree = grow(titled("core", "acme-x::EngineCore_DP1", titled("w", "acme-x::Worker"), program("helper", "tool.py")))
    engine, _ = of(tree)
    worker = engine.workers[0]
    assert worker.rank and (worker.rank.dp, worker.rank.rank) == (1, 0)
    assert {p.pid: p.role for p in engine.processes}[tree.pids["helper"]] is Role.HELPER
