"""Programs to be looked into, each in a state that it says it has reached; and the interpreters that run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine, "202")


def interpreter(version: str) -> str:
    """A CPython of that version: ours, of pyenv, or on PATH. Skips the test where there is none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    versions = Path.home() / ".pyenv" / "versions"
    found = [str(p) for p in sorted(versions.glob(f"{version}.*/bin/python"))] or [shutil.which(f"python{version}")]
    if not found[-1]:
        pytest.skip(f"no Python {version} on this machine")
    return found[-1]


HEAD = """
import json, os, queue, sys, threading, time
from concurrent.futures import Future, ThreadPoolExecutor
named = {"main": threading.get_native_id()}
def spawn(name, function, *args):
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    thread.start()
    named[name] = thread.native_id
    return thread
def say():
    print(json.dumps(named), flush=True)
"""
"""Put in front of every program: `spawn` threads, then `say` their kernel ids, then block."""


@dataclass
class Program:
    """A program past its handshake. `tids`: names of its threads to the kernel's ids."""

    process: subprocess.Popen[bytes]
    path: Path
    tids: dict[str, int]

    @property
    def pid(self) -> int:
        return self.process.pid

    def settle(self, *names: str) -> None:
        """Wait until these threads are held in a futex, and stay there over two looks."""
        self.wait_for(lambda: all(self._held(self.tids[name]) for name in names), names)

    def _held(self, tid: int) -> bool:
        looks = []
        for _ in range(2):
            looks.append(Path(f"/proc/{self.pid}/task/{tid}/syscall").read_text().split()[:2])
            time.sleep(0.005)
        return looks[0] == looks[1] and looks[0][0] == FUTEX

    def wait_for(self, condition: Callable[[], bool], what: object = "") -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"pid {self.pid} does not come to {what}"
            time.sleep(0.005)

    def line(self, text: str) -> int:
        """The number of the line that ends in this text."""
        (found,) = [n for n, line in enumerate(self.path.read_text().splitlines(), 1) if line.endswith(text)]
        return found


def launch(folder: Path, body: str, version: str = "", prefix: Sequence[str] = (), **modules: str) -> Program:
    """Start a program; it must call `say()` once. `prefix`: a command that runs it; `modules`: source of modules beside it."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(text))
    path = folder / "program.py"
    path.write_text(HEAD + textwrap.dedent(body))
    python = interpreter(version) if version else sys.executable
    process = subprocess.Popen([*prefix, python, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    first = process.stdout.readline()
    tids: dict[str, Any] = json.loads(first or b"{}")
    return Program(process, path, tids)
