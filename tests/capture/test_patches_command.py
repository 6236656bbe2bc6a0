"""forensics patches on real processes: the toy engine with a rank that a plugin changes as it starts, and programs of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).resolve().parents[2] / "examples" / "toy_engine"
SITE = '''\
"""As a plugin or an agent does it: a hook on the import, and one function replaced. Only in rank 1."""

import importlib.machinery
import sys


def submit(self, blocks, mode):
    self.pending.put(blocks)


class Hook:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "toy_engine.worker" or ["--rank", "1"] != sys.argv[3:5]:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.Offload.submit = submit
            module.OFFLOAD_CAPACITY = 2

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Hook)
'''
PATCHES = """\
[[patch]]
name = "blocking-offload"
module = "toy_engine.worker"
contains = "put_nowait"
function = "Offload.submit"
log_marker = "offload waits"
live = { object = "OFFLOAD_CAPACITY", equals = 2 }
"""
PROGRAM = """\
import sys
sys.path.insert(0, {folder!r})
import enginelib
print("ready", flush=True)
sys.stdin.read()
"""


def loaded(*arguments: str, rc: int = 0) -> str:
    command = [sys.executable, "-m", "forensics", "patches", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == rc, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout if rc == 0 else done.stdout + done.stderr


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    command = [sys.executable, str(TOY), "--ranks", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}) as child:
        assert child.stdout
        assert any(line.startswith("ready port=") for line in child.stdout), "the engine ended before it was ready"
        yield child.pid
        child.terminate()
        child.stdout.read()  # what it says as it ends must find somebody who listens


def test_a_rank_of_the_toy_engine_that_was_changed_as_it_started(toy: int, tmp_path: Path) -> None:
    patches = tmp_path / "patches.toml"
    patches.write_text(PATCHES)
    (engine,) = json.loads(loaded("--pid", str(toy), "--patches", str(patches), "--format", "json"))["engines"]
    ranks = {p["rank"]: p for p in engine["processes"] if p["role"] == "worker"}
    said = {rank: {w["kind"]: w["status"] for w in p["witnesses"]} for rank, p in ranks.items()}
    assert said[0] == {"file": "live", "function": "live", "value": "absent"}
    assert said[1] == {"file": "live", "function": "absent", "value": "live"}
    (function,) = ranks[1]["functions"]
    line = SITE.splitlines().index("def submit(self, blocks, mode):") + 1
    assert (function["runs"], function["file"], function["line"]) == ("other-file", str(tmp_path / "sitecustomize.py"), line)
    (found,) = [f for f in engine["findings"] if f["id"] == "function-monkeypatched"]
    assert (found["ranks"], found["grade"]) == ([1], "established") and f"sitecustomize.py:{line}" in found["title"]
    (split,) = [f for f in engine["findings"] if f["id"] == "patch-inconsistent"]
    assert "rank 0; absent in rank 1" in split["title"] and "value: live in rank 1; absent in core" in split["title"]

    text = loaded("--pid", str(toy), "--patches", str(patches), "--show")
    assert f'code_sha256 = "{function["code_sha256"]}"' in text and "OFFLOAD_CAPACITY = 16" in text
    assert "\n  patch blocking-offload\n" in text and f"({tmp_path / 'sitecustomize.py'}:{line})" in text


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[], int]]:
    children: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        code = PROGRAM.format(folder=str(tmp_path))
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        return child.pid

    yield start
    for child in children:
        child.kill()
        child.wait(10)
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()


def one_process(text: str) -> dict[str, Any]:
    (engine,) = json.loads(text)["engines"]
    (process,) = engine["processes"]
    return dict(process)


def test_the_hash_that_is_shown_is_the_hash_that_is_asked_for(program: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "enginelib.py").write_text("class Spin:\n    def wait(self):\n        return 1\n")
    pid = str(program())
    shown = one_process(loaded("--pid", pid, "--function", "enginelib:Spin.wait", "--format", "json"))["functions"][0]
    assert shown["runs"] == "as-on-disk"
    patches = tmp_path / "patches.toml"
    table = '[[patch]]\nname = "p"\nmodule = "enginelib"\nfunction = "Spin.wait"\n'
    patches.write_text(f'{table}code_sha256 = "{shown["code_sha256"]}"\n')
    (witness,) = one_process(loaded("--pid", pid, "--patches", str(patches), "--format", "json"))["witnesses"]
    assert (witness["kind"], witness["status"]) == ("function", "live")
    # another text of the same function, on another line, in a process that was started later
    (tmp_path / "enginelib.py").write_text("# moved\nclass Spin:\n    def wait(self):\n        return 2\n")
    (witness,) = one_process(loaded("--pid", str(program()), "--patches", str(patches), "--format", "json"))["witnesses"]
    assert (witness["kind"], witness["status"]) == ("function", "absent")
    # the first process still runs what it read
    (witness,) = one_process(loaded("--pid", pid, "--patches", str(patches), "--format", "json"))["witnesses"]
    assert (witness["kind"], witness["status"]) == ("function", "live")


def test_a_file_that_changed_after_the_start_is_stale(program: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "enginelib.py").write_text("LIMIT_S = 300\n")
    pid = str(program())
    (tmp_path / "enginelib.py").write_text("LIMIT_S = 600\n")
    patches = tmp_path / "patches.toml"
    live = "live = { object = 'LIMIT_S', equals = 600 }"
    patches.write_text(f'[[patch]]\nname = "longer"\nmodule = "enginelib"\ncontains = "LIMIT_S = 600"\n{live}\n')
    text = loaded("--pid", pid, "--patches", str(patches))
    assert "file: stale" in text and "value: absent" in text and "LIMIT_S = 300" in text
    assert "the file changed after the process started" in text and "file stale, value absent" in text


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    assert "--function vllm" in loaded("--function", "EngineCore.step", rc=2)
    assert "terminal or json" in loaded("--format", "yaml", rc=2)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    assert "no process" in loaded("--pid", str(ended.pid), rc=4)
