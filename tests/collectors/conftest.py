"""Shared by the tests of all collectors: run one as its parent would, and start real processes to look at."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

AS_NOBODY = """
import os, sys, importlib, ctypes, socket, threading
from collectors.__main__ import main
importlib.import_module("collectors." + sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""
"""Drops to another user only once everything is loaded: the interpreter may lie in a home directory that is closed to others."""


@dataclass
class Collected:
    """What a collector child delivered: evidence by name (content and head), and its attempts in order."""

    rc: int
    stderr: str
    content: dict[str, bytes] = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)

    def json(self, name: str) -> Any:
        return json.loads(self.content[name])

    def of(self, pid: int, sample: int | None = None) -> list[dict[str, Any]]:
        return [a for a in self.attempts if a["pid"] == pid and sample in (None, a["sample"])]

    def one(self, pid: int, sample: int | None = None) -> dict[str, Any]:
        (found,) = self.of(pid, sample)
        return found


def parse_lines(stdout: bytes, rc: int = 0, stderr: str = "") -> Collected:
    found = Collected(rc, stderr)
    for line in stdout.splitlines():
        record = json.loads(line)
        if record["type"] == "attempt":
            found.attempts.append(record)
            continue
        piece = record["text"].encode() if "text" in record else base64.b64decode(record["b64"])
        found.content[record["name"]] = found.content.get(record["name"], b"") + piece
        found.heads[record["name"]] = record
    return found


@pytest.fixture
def collect() -> Callable[..., Collected]:
    """`collect(name, request, as_nobody=False)`: run a collector in a child of its own, away from the source tree.

    `as_nobody` drops to an unprivileged user; a test that asks for it is marked `needs_root`.
    """

    def run(name: str, request: dict[str, Any] | None = None, *, as_nobody: bool = False) -> Collected:
        command = [sys.executable, "-I", *(["-c", AS_NOBODY] if as_nobody else ["-m", "collectors"]), name]
        done = subprocess.run(command, input=json.dumps(request or {}).encode(), capture_output=True, cwd="/", timeout=60, check=False)
        return parse_lines(done.stdout, done.returncode, done.stderr.decode())

    return run


class Started:
    """A child of the test, past its handshake. `first` is the line that it printed when it was ready."""

    def __init__(self, process: subprocess.Popen[bytes], first: str) -> None:
        self.process = process
        self.pid = process.pid
        self.first = first

    @property
    def state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    @property
    def start_ticks(self) -> int:
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[19])

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"pid {self.pid} stays in state {self.state}"
            time.sleep(0.005)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_for(lambda: self.state == "T")


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """`start(code, *args)`: a Python child that must print one line when ready; ended by pid, whatever its state."""
    children: list[subprocess.Popen[bytes]] = []

    def run(code: str, *args: object, **how: Any) -> Started:
        command = [sys.executable, "-c", code, *map(str, args)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
        children.append(child)
        assert child.stdout
        first = child.stdout.readline().decode().strip()
        assert first, "the child died before it was ready"
        return Started(child, first)

    yield run
    for child in reversed(children):  # a tracer before what it traces: until it lets go, that one cannot be collected
        child.kill()
        child.wait(10)
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it drops to another user, or enters a namespace")
