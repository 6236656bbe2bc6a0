"""Code objects are hashed as they were compiled, whatever the interpreter has made of their instructions since."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors._cpython import Unsupported
from collectors._cpython._code import Body, Code, digest, read_code
from collectors._cpython._layouts import FUNCTION_CODE
from collectors._cpython._opcodes import as_compiled

from .conftest import Child, python_of

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = (
    "argparse",
    "ast",
    "asyncio.base_events",
    "collections",
    "dataclasses",
    "decimal",
    "inspect",
    "json.decoder",
    "typing",
    "zipfile",
)
"""Every kind of statement and constant stands in these."""
DEFINE = f"""
import importlib, types
def functions():
    modules = [importlib.import_module(name) for name in {LIBRARY!r}]
    scopes = [scope for module in modules for scope in (module, *(v for v in vars(module).values() if isinstance(v, type)))]
    return [f for scope in scopes for f in vars(scope).values() if isinstance(f, types.FunctionType)]
"""
REFERENCE = """
import sys
sys.path.insert(0, sys.argv[1])
from collectors._cpython._code import compiled_body, digest
for f in functions():
    print(digest(compiled_body(f.__code__)).hex(), f.__code__.co_firstlineno, f.__code__.co_filename)
"""
HOT = """
import argparse, json
for _ in range(300):
    json.loads('[1, 2.5, {"a": [null, true]}]')
    argparse.ArgumentParser(prog="x").format_help()
"""


def read(child: Child, function: int) -> Code:
    return read_code(child.process.heap, child.process.memory.word(function + FUNCTION_CODE))


def test_every_function_of_the_library_reads_as_it_was_compiled(child: Child) -> None:
    """The reference is `co_code` itself, asked in a fresh process of the same version; ours is read where the code has run hot."""
    if child.version > (3, 13):
        with pytest.raises(Unsupported, match="code objects are not known"):
            read(child, child.make("__import__('ast').parse"))
        return
    child.make(DEFINE)
    child.make(HOT)
    if child.version >= (3, 11):
        changed = child.read("[f.__code__._co_code_adaptive != f.__code__.co_code for f in functions()].count(True)")
        assert changed > 20, "nothing ran hot: the test would prove nothing"
    functions = child.process.items(child.make("functions()"), 5000)
    python = python_of(child.version)
    assert python
    done = subprocess.run([python, "-c", DEFINE + REFERENCE, str(ROOT)], capture_output=True, text=True, check=True, timeout=120)
    wanted = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(wanted) == len(functions) > 500
    found = [read(child, function) for function in functions]
    assert [[code.sha256, str(code.line), code.file] for code in found] == wanted
    assert len({code.sha256 for code in found}) > 450, "functions are told apart"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lambda: 1", "lambda: 2"),
        ("lambda: 1", "lambda: True"),
        ("lambda: 1", "lambda: 1.0"),
        ("lambda: 0.0", "lambda: -0.0"),
        ("lambda: 'x'", "lambda: b'x'"),
        ("lambda q: q.get()", "lambda q: q.put()"),
        ("lambda a: a", "lambda *, a: a"),
        ("lambda: [x for x in (1, 2)]", "lambda: [x for x in (1, 3)]"),
        ("lambda v: v in {1, 2}", "lambda v: v in {1, 3}"),
        ("lambda: (1, (2, ...))", "lambda: (1, (2, None))"),
        ("lambda: 1j", "lambda: 2j"),
        ("lambda: 10 ** 30", "lambda: 10 ** 31"),
    ],
)
def test_what_does_something_else_has_another_hash(child: Child, one: str, other: str) -> None:
    if child.version > (3, 13):
        pytest.skip("its code objects are not read")
    same = read(child, child.make(one)), read(child, child.make(f"(\n\n{one})"))
    assert same[0].sha256 == same[1].sha256
    assert read(child, child.make(other)).sha256 != same[0].sha256


def test_code_under_a_debugger_is_not_hashed(fresh: Callable[..., Child]) -> None:
    python = python_of((3, 12))
    if python is None:
        pytest.skip("no Python 3.12 on this machine")
    child = fresh(python)
    child.make("import sys\ndef f(): return len([1])")
    function = child.make("f")
    assert read(child, function).sha256
    child.make("sys.monitoring.use_tool_id(0, 'debugger')")
    child.make("sys.monitoring.set_local_events(0, f.__code__, sys.monitoring.events.LINE)")
    code = read(child, function)
    assert code.sha256 == "" and "debugger" in code.why and code.line > 0


def test_only_known_versions_have_a_table() -> None:
    with pytest.raises(KeyError):
        as_compiled((3, 14), b"\0\0")


def test_constants_of_no_function_are_refused() -> None:
    with pytest.raises(TypeError):
        digest(Body((0, 0, 0), b"", b"", (), ([],)))
