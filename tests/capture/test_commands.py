"""The command line as people and scripts meet it: exit codes, what stands on stdout, errors with their cure."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from forensics.capture.doctor import examine
from forensics.capture.progress import fold, plain

from .conftest import Grow, generic


def forensics(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forensics", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, **more)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def empty_node(tmp_path: Path) -> Path:
    (tmp_path / "node" / "proc").mkdir(parents=True)
    return tmp_path / "node"


def test_version() -> None:
    done = forensics("--version")
    assert done.returncode == 0 and done.stdout.startswith("inference-forensics ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["capture", "--pid", "x"],
        ["capture", "--engine", "nope"],
        ["capture", "--profile", "nope"],
        ["collect", "nope"],
        ["collect"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    done = forensics(*arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr


def test_no_engine_exits_4_and_says_what_it_looked_for(empty_node: Path, tmp_path: Path) -> None:
    done = forensics("capture", "--sysroot", empty_node, "--out", tmp_path / "out")
    assert done.returncode == 4 and done.stdout == ""
    for word in ("no engine found", "vllm serve", "torchrun", "cure:", "--pid", "--log"):
        assert word in done.stderr
    assert forensics("capture", "--pid", 2**22 + 5, "--out", tmp_path / "out").returncode == 4


def test_unwritable_output_exits_1_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = forensics("capture", "--out", tmp_path / "file" / "x")
    assert done.returncode == 1 and "cure:" in done.stderr and "--out" in done.stderr and "Traceback" not in done.stderr


def test_capture_prints_the_path_last(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    done = forensics("capture", "--pid", tree.root, "--out", tmp_path / "out", "--profile", "minimal", "--incident", "INC 7/x")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1])
    with tarfile.open(path) as packed:
        assert packed.getnames()
    assert path.parent == tmp_path / "out" and "/" not in path.name.replace("INC", "")
    assert forensics("verify", path).returncode == 0
    assert forensics("show", path).returncode == 0
    assert "rank 0-1 of 2" in done.stderr and "stacks:" in done.stderr and "\x1b" not in done.stderr


def test_progress_on_a_terminal(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "forensics", "capture", "--pid", str(tree.root), "--out", str(tmp_path / "out"), "--window", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"}) as child:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other side has closed
                break
            shown += piece
        assert child.stdout
        path = child.stdout.read().decode().splitlines()[-1]
    os.close(leader)
    assert child.returncode == 0 and Path(path).exists()
    assert b"\x1b[" in shown and b"stacks" in shown


def test_collect_prints_evidence_and_attempts_apart(grow: Grow) -> None:
    tree = grow(generic())
    done = forensics("collect", "process", "--pid", tree.pids["rank1"], "--samples", 2, "--interval", 0.1)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(line["pid"], line["sample"]) for line in lines} == {(tree.pids["rank1"], 1), (tree.pids["rank1"], 2)}
    assert done.stderr.count("OK") >= 2
    assert f"/proc/{tree.pids['rank1']}/stat" in json.loads(lines[0]["text"])["files"]


def test_collect_into_a_directory(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    done = forensics("collect", "process", "--pid", tree.root, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.splitlines()[-1])
    told = json.loads((folder / "manifest.json").read_text())
    assert {record["collector"] for record in told["evidence"]} == {"discovery", "process"} and told["attempts"]


def test_collect_from_a_recorded_tree(tmp_path: Path) -> None:
    zone = tmp_path / "sys" / "class" / "thermal" / "thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("acpitz\n")
    (zone / "temp").write_text("71000\n")
    done = forensics("collect", "thermal", "--sysroot", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "71000" in done.stdout and "acpitz" in done.stdout


def test_collect_of_a_process_that_is_not_there_exits_4() -> None:
    done = forensics("collect", "stacks", "--pid", 2**22 + 5)
    assert done.returncode == 4 and "cure:" in done.stderr


def test_terminated_collect_leaves_no_child_behind(grow: Grow) -> None:
    tree = grow(generic())
    command = [sys.executable, "-m", "forensics", "collect", "process", "--pid", str(tree.root), "--samples", "1000", "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert below and not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_doctor_says_what_lacks_and_what_would_help(tmp_path: Path) -> None:
    done = forensics("doctor", "--out", tmp_path)
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    for name in ("rights", "ptrace", "stacks", "kernel log", "GPU", "clock", "disk"):
        assert any(line[5:].startswith(name) for line in lines), name
    lacking = [line for line in lines if line.startswith("LACK")]
    assert (done.returncode == 3) == bool(lacking)
    assert done.stdout.count("cure:") >= len(lacking)


def test_doctor_sees_an_unwritable_disk() -> None:
    disk = list(examine(Path("/proc")))[-1]
    assert disk.name == "disk" and disk.ok is False and "--out" in disk.cure


def test_help_of_every_command() -> None:
    for name in ("capture", "analyze", "collect", "doctor", "verify", "show", "demo"):
        done = forensics(name, "--help")
        assert done.returncode == 0 and "Usage" in done.stdout, name


def test_words_for_people() -> None:
    assert fold([0, 1, 2, 3, 6, 8, 9]) == "0-3, 6, 8-9"
    assert plain("a\x1b[31mb\nc\u202e") == "a\\x1b[31mb\\x0ac\\x202e"
    assert len(plain("x" * 1000)) == 160
