"""Frames in memory: which `with` blocks each is in, on whose globals it runs, what it shares."""

from __future__ import annotations

import argparse
import dis
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from collectors._cpython import Process, Running, Unsupported, attach
from collectors._cpython._frames import Frames, handlers

from .conftest import python_of

Target = Callable[..., "subprocess.Popen[str]"]

PROGRAM = """
import sys, threading
class Custom:
    def __enter__(self): return self
    def __exit__(self, *error): pass
a, b, custom = threading.Lock(), threading.RLock(), Custom()
def ready(): print("ready", flush=True); sys.stdin.read()
def generator():
    with custom:
        yield
        ready()
def outer(lock):
    shared = [1]
    def inner():
        with b: pass
        for turn in (1, 2):
            try:
                with lock, b:
                    with a:
                        pass
                    try:
                        for item in generator():
                            shared.append(turn)
                    finally:
                        del item
            except ValueError:
                pass
    inner()
outer(threading.Condition(threading.Lock()))
"""


@pytest.fixture(params=[(3, 10), (3, 11), (3, 12), (3, 13)], ids=str)
def process(request: pytest.FixtureRequest, target: Target) -> Process:
    python = python_of(request.param)
    if python is None:
        pytest.skip("no CPython {}.{} on this machine".format(*request.param))
    return attach(target(PROGRAM, python).pid)


def by_name(frames: Frames) -> dict[str, Running]:
    (state,) = frames.states().values()
    return {frames.names_of(frame.code)[0]: frame for frame in frames.of(state)}


def test_blocks_that_were_entered_and_not_left(process: Process) -> None:
    frames = process.frames()
    found = by_name(frames)
    assert list(found) == ["ready", "generator", "inner", "outer", "<module>"]
    managers = {name: [process.type_name(entry.manager) for entry in frame.entered] for name, frame in found.items()}
    assert managers == {
        "ready": [],
        "generator": ["__main__.Custom"],
        "inner": ["threading.Condition", "_thread.RLock"],  # not `a`, whose method may still lie in an unused slot
        "outer": [],
        "<module>": [],
    }
    assert by_name(process.frames()) == found, "nothing moved"
    for frame in found.values():
        assert all(frames.method_of(entry.method) == ("__exit__", entry.manager) for entry in frame.entered)


def test_what_a_frame_runs_on(process: Process) -> None:
    frames = process.frames()
    found = by_name(frames)
    module = found["<module>"].globals
    assert {frame.globals for frame in found.values()} == {module}
    held = process.globals_in(module, ("a", "custom", "nothing"))
    assert {name: process.type_name(address) for name, address in held.items()} == {"a": "_thread.lock", "custom": "__main__.Custom"}
    shared = frames.shared_by(found["inner"])
    assert {name: process.type_name(address) for name, address in shared.items()} == {"lock": "threading.Condition", "shared": "list"}
    assert process.value(shared["shared"]) == [1, 1]
    words = frames.words_of(found["inner"].code)
    assert {"append", "ValueError", "generator"} <= words and "stdin" not in words
    held_by_outer = [*frames.values_of(found["outer"]), *frames.shared_by(found["outer"]).values()]
    assert {process.type_name(value) for value in held_by_outer} == {"threading.Condition", "list", "function"}


def test_a_version_whose_frames_are_not_known(process: Process) -> None:
    process.heap.layout = process.heap.layout._replace(version=(3, 14))
    with pytest.raises(Unsupported, match=r"3\.14"):
        process.frames()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no exception table")
def test_the_exception_table_is_read_as_the_interpreter_does() -> None:
    todo: list[CodeType] = [compile(Path(str(argparse.__file__)).read_text(encoding="utf-8"), "x", "exec")]
    compared = 0
    while todo:
        code = todo.pop()
        todo += [held for held in code.co_consts if isinstance(held, CodeType)]
        told = [(entry.start // 2, entry.end // 2, entry.depth) for entry in dis.Bytecode(code).exception_entries]
        assert list(handlers(code.co_exceptiontable)) == told
        compared += len(told)
    assert compared > 20
