"""Every CPython on the machine, and children that hold objects for us to read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from collectors._cpython import Bounds, attach

HERE = Path(__file__).parent
VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
EVERYTHING = Bounds(depth=60, items=100_000, objects=1_000_000, text=1_000_000, nbytes=1 << 30, seconds=60)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it drops to another user, or enters a namespace")


@cache
def python_of(version: tuple[int, int]) -> str | None:
    """A CPython of this version with a GIL: that which runs the tests, on PATH, or of pyenv."""
    name = "python{}.{}".format(*version)
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("{}.{}.*/bin/{}".format(*version, name)))
    candidates = [sys.executable if sys.version_info[:2] == version else None, *map(str, pyenv), shutil.which(name)]
    asked = "import sys; print(*sys.version_info[:2], getattr(sys, '_is_gil_enabled', lambda: True)())"
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False, timeout=30)
            if done.stdout.split() == [*map(str, version), "True"]:
                return candidate
    return None


class Child:
    """A running CPython that makes what it is told to; `process` reads it."""

    def __init__(self, python: str) -> None:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self.popen = subprocess.Popen(
            [python, str(HERE / "child.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="ascii", env=environment
        )
        assert self.popen.stdout
        major, minor, pid = map(int, self.popen.stdout.readline().split())
        self.version = (major, minor)
        self.pid = pid
        self.process = attach(pid)

    def make(self, source: str) -> int:
        """Address of what the expression makes in the child, which keeps the last 64 of them."""
        assert self.popen.stdin and self.popen.stdout
        self.popen.stdin.write(ascii(source) + "\n")
        self.popen.stdin.flush()
        answer = self.popen.stdout.readline()
        assert answer, "the child died"
        return int(answer)

    def read(self, source: str, bounds: Bounds = EVERYTHING) -> Any:
        snapshot = self.process.snapshot(self.make(source), bounds)
        assert not snapshot.torn
        return snapshot.value

    def end(self) -> None:
        self.process.close()
        self.popen.kill()
        self.popen.wait(10)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe:
                pipe.close()


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda version: "cpython{}.{}".format(*version))
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    """One long-lived child for each version of CPython."""
    version: tuple[int, int] = request.param
    python = python_of(version)
    if python is None:
        pytest.skip("no CPython {}.{} on this machine".format(*version))
    made = Child(python)
    assert made.version == version
    yield made
    made.end()


@pytest.fixture
def fresh() -> Iterator[Callable[..., Child]]:
    """`fresh(python)`: a child for one test, which may do it harm."""
    made: list[Child] = []

    def start(python: str = sys.executable) -> Child:
        made.append(Child(python))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture
def target() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`target(code, python)`: a process that prints "ready" and then does what it does; ended by its pid."""
    made: list[subprocess.Popen[str]] = []

    def start(code: str, python: str = sys.executable, **how: Any) -> subprocess.Popen[str]:
        one = subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)
        made.append(one)
        assert one.stdout
        assert one.stdout.readline().strip() == "ready"
        return one

    yield start
    for one in made:
        one.kill()
        one.wait(10)
        for pipe in (one.stdin, one.stdout):
            if pipe:
                pipe.close()
