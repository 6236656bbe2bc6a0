"""Real process trees that look like engines from outside: titles, command lines, environments, ports, a log file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.capture import _procfs as procfs

PART = """
import json, os, signal, socket, subprocess, sys, threading, time

spec = json.loads(os.environ.pop("TREE_SPEC"))
ready = int(os.environ.pop("TREE_READY"))
python = os.environ["TREE_PYTHON"]  # a retitled process does not know its own interpreter
me = {"pid": os.getpid(), "name": spec["name"], "port": None, "children": []}
if spec.get("title"):
    with open("/proc/self/comm", "w") as comm:
        comm.write(spec["title"][:15])
if spec.get("listen"):
    server = socket.create_server(("127.0.0.1", 0))
    me["port"] = server.getsockname()[1]

def start(child):
    read, write = os.pipe()
    env = {**os.environ, **child.get("env", {}), "TREE_SPEC": json.dumps(child), "TREE_READY": str(write)}
    if child.get("title"):
        # one argument is all that a retitled process shows, so the program comes through stdin
        env["PYTHONHOME"] = sys.base_prefix
        with open(child["script"]) as program:
            subprocess.Popen([child["title"]], executable=python, stdin=program, env=env, pass_fds=[write])
    else:
        subprocess.Popen([python, *child["argv"]], stdin=subprocess.DEVNULL, env=env, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as answer:
        return json.loads(answer.readline())

for child in spec.get("children", []):
    me["children"].append(start(child))
print("INFO", spec["name"], "is up", flush=True)
os.write(ready, json.dumps(me).encode() + b"\\n")
os.close(ready)

def rank_loop():
    while True:
        time.sleep(0.05)

rank_loop()
"""


def until_state(pid: int, state: str) -> None:
    """Wait until the kernel's letter of a process is this one."""
    for _ in range(2000):
        if procfs.stat_of(pid).state == state:
            return
        time.sleep(0.005)
    raise AssertionError(f"pid {pid} never reached state {state}")


class Tree:
    """A running tree: `pids` by the name given in the specification, the log that all of it writes, the listening port."""

    def __init__(self, told: dict[str, Any], log: Path) -> None:
        self.log = log
        self.pids: dict[str, int] = {}
        self.port = 0
        todo = [told]
        while todo:
            one = todo.pop()
            self.pids[one["name"]] = one["pid"]
            self.port = self.port or one["port"] or 0
            todo += one["children"]

    @property
    def root(self) -> int:
        return min(self.pids.values())


def titled(name: str, title: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A process that shows nothing but a title."""
    return {"name": name, "title": title, "children": list(children), **more}


def program(name: str, script: str, *arguments: str, children: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    """A Python process that runs a script of this (base) name with these arguments."""
    return {"name": name, "argv": [script, *arguments], "children": list(children), **more}


Grow = Callable[[dict[str, Any]], Tree]


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    """Start a tree from a specification; everything started is killed, by pid, at the end of the test."""
    started: list[Tree] = []

    def prepare(spec: dict[str, Any]) -> dict[str, Any]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        script = folder / (spec["argv"][0] if spec.get("argv") else "part.py")
        script.write_text(PART)
        done = {**spec, "script": str(script), "children": [prepare(child) for child in spec.get("children", [])]}
        if spec.get("argv"):
            done["argv"] = [str(script), *spec["argv"][1:]]
        return done

    def start(spec: dict[str, Any]) -> Tree:
        whole = prepare({"name": "starter", "argv": ["starter.py"], "children": [spec]})
        # an intermediate process that exits, so that the tree is nobody's child here, like an engine of somebody else
        code = PART.partition("for child in spec.get")[0] + (
            'told = start(spec["children"][0])\nos.write(ready, json.dumps(told).encode() + b"\\n")\n'
        )
        log = tmp_path / f"engine-{len(started)}.log"
        read, write = os.pipe()
        env = {
            "TREE_SPEC": json.dumps(whole),
            "TREE_READY": str(write),
            "TREE_PYTHON": sys.executable,
            "PATH": os.environ.get("PATH", ""),
            "TZ": "UTC",
        }
        with log.open("wb") as out:
            subprocess.run(
                [sys.executable, "-c", code],
                env=env,
                pass_fds=[write],
                stdout=out,
                stderr=out,
                start_new_session=True,
                timeout=60,
                check=True,
            )
        os.close(write)
        with os.fdopen(read) as answer:
            tree = Tree(json.loads(answer.readline()), log)
        started.append(tree)
        return tree

    yield start
    for tree in started:
        for pid in tree.pids.values():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def vllm(tp: int = 2, port: str = "8100") -> dict[str, Any]:
    """A tensor-parallel server as /proc shows it."""
    workers = [titled(f"worker{rank}", f"VLLM::Worker_TP{rank}") for rank in range(tp)]
    core = titled("core", "VLLM::EngineCore", *workers)
    arguments = ("serve", "/models/m", "--port", port, "--tensor-parallel-size", str(tp))
    env = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "45", "VLLM_API_KEY": "sk-planted-secret-0123456789"}
    return program("api", "vllm", *arguments, children=(core,), listen=True, env=env)


def generic() -> dict[str, Any]:
    """A server with ranks of a kind that nobody knows by name."""
    ranks = tuple(program(f"rank{rank}", "part.py", "--rank", str(rank), "--world-size", "2") for rank in range(2))
    return program("front", "front.py", children=(program("core", "core.py", children=ranks),), listen=True)
