"""What holds for every collector, present and future. A new one is covered as soon as its name stands in collectors.NAMES."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import AS_NOBODY, Collected, Started, needs_root, parse_lines

import collectors
from collectors._contract import Emitter, Request
from forensics.model import Outcome

Collect = Callable[..., Collected]
Start = Callable[..., Started]

HOME = Path(str(collectors.__file__)).parent
PROBES = {"gpu": "pynvml"}
"""The one third-party module that a collector may load. py-spy is a program, not a module."""
LARGER: dict[str, int] = {}
"""Collectors over the ceiling of 200 lines, with their own ceiling and the reason."""
ATTEMPT_KEYS = {"type", "target", "pid", "sample", "outcome", "reason", "cure", "started_ns", "ended_ns", "evidence"}
EVIDENCE_KEYS = {"type", "name", "kind", "pid", "sample", "source", "at_ns", "more", "truncated"}
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+~-]*(/[A-Za-z0-9_][A-Za-z0-9_.:@+~-]*)+")

every = pytest.mark.parametrize("name", collectors.NAMES)


@pytest.fixture
def request_of_all(start: Start, tmp_path: Path) -> dict[str, Any]:
    """A request that gives every collector something: a live process that logs into a file, and one that is gone."""
    log = tmp_path / "engine.log"
    code = f"import os, sys; r = os.dup(1); os.dup2(os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT), 1); os.write(r, b'ready\\n'); sys.stdin.read()"
    alive = start(code)
    log.write_text("".join(f"INFO line {i}\n" for i in range(1000)))
    return {
        "targets": [
            {"pid": alive.pid, "start_ticks": alive.start_ticks, "log_files": [str(log)], "ports": [1]},
            {"pid": 2**22 + 1, "start_ticks": 1},
        ],
        "interval_s": 0.05,
        "options": {
            "patches": [{"name": "p", "module": "json.decoder", "contains": "JSONDecoder"}],
            "logs": [str(log), str(tmp_path / "missing.log")],
        },
    }


def check_records(found: Collected, lines: bytes) -> None:
    """The promises of the contract that need no knowledge of the collector."""
    assert lines.endswith(b"\n") and lines.isascii()
    for record in map(json.loads, lines.splitlines()):
        if record["type"] == "attempt":
            assert set(record) == ATTEMPT_KEYS
            assert Outcome(record["outcome"]) is not Outcome.FAILED, record
            assert record["target"] and record["started_ns"] <= record["ended_ns"]
            assert record["outcome"] in ("OK", "EMPTY") or record["reason"], f"{record} does not say why"
            assert record["outcome"] != "DENIED" or record["cure"], f"{record} does not say what would help"
        else:
            assert record["type"] == "evidence" and set(record) - {"text", "b64"} == EVIDENCE_KEYS
            assert ("text" in record) != ("b64" in record) and record["kind"] and SAFE_NAME.fullmatch(record["name"]), record["name"]
    tries = [(a["target"], a["pid"], a["sample"]) for a in found.attempts]
    assert tries and len(set(tries)) == len(tries), f"tried twice, or two attempts for one try: {tries}"
    named = [name for attempt in found.attempts for name in attempt["evidence"]]
    assert set(named) == set(found.content), "evidence without an attempt, or an attempt that names what was not sent"


def run(name: str, request: dict[str, Any], *flags: str) -> Collected:
    command = [sys.executable, "-I", "-m", "collectors", name, *flags]
    done = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, cwd="/", timeout=60, check=False)
    found = parse_lines(done.stdout, done.returncode, done.stderr.decode())
    assert (found.rc, found.stderr) == (0, "")
    check_records(found, done.stdout)
    return found


@every
def test_its_shape(name: str) -> None:
    module = importlib.import_module(f"collectors.{name}")
    hints = {key: str(value) for key, value in inspect.get_annotations(module.collect).items()}
    assert hints == {"request": "Request", "emit": "Emitter", "return": "None"}
    assert list(inspect.signature(module.collect).parameters) == ["request", "emit"]
    source = Path(str(module.__file__)).read_text()
    assert module.__doc__ and len(source.splitlines()) < LARGER.get(name, 200), (
        "a collector is one small file: move what others could use into a _module"
    )


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports out, a child is started by module name"
            found |= {f"{node.module}.{alias.name}" if node.module == "collectors" else str(node.module) for alias in node.names}
    return found


def allowed(module: str, probe: str = "") -> bool:
    top, _, rest = module.partition(".")
    # helpers begin with an underscore, and may import no more than we do: no collector hangs on another
    return top in sys.stdlib_module_names or (top == "collectors" and rest.startswith("_")) or (bool(probe) and top == probe)


@every
def test_it_names_only_the_standard_library_the_contract_and_its_probe(name: str) -> None:
    wrong = {module for module in imported(HOME / f"{name}.py") if not allowed(module, PROBES.get(name, ""))}
    assert not wrong, f"collectors/{name}.py imports {wrong}"


def test_helpers_name_only_the_standard_library_and_each_other() -> None:
    for path in HOME.glob("_*.py"):
        wrong = {module for module in imported(path) if not allowed(module) and module != "collectors.NAMES"}
        assert not wrong, f"{path.name} imports {wrong}"


LOADED = """
import json, sys
before = set(sys.modules)
from collectors.__main__ import main
rc = main(sys.argv[1:])
new = {name: getattr(sys.modules[name], "__file__", None) or "" for name in set(sys.modules) - before}
print(json.dumps(new), file=sys.stderr)
sys.exit(rc)
"""


@every
def test_it_loads_nothing_else_either(name: str, request_of_all: dict[str, Any]) -> None:
    """A real run, because a module may be loaded in ways that no import statement shows."""
    command = [sys.executable, "-I", "-c", LOADED, name]
    done = subprocess.run(command, input=json.dumps(request_of_all).encode(), capture_output=True, cwd="/", timeout=60, check=False)
    loaded = json.loads(done.stderr.splitlines()[-1])
    foreign = {module for module in loaded if not allowed(module, PROBES.get(name, "")) and module.partition(".")[0] != "collectors"}
    # modules of the platform (_sysconfigdata…) carry generated names and lie with the standard library
    stdlib = os.path.dirname(str(os.__file__))
    foreign = {m for m in foreign if not loaded[m].startswith(stdlib) or "site-packages" in loaded[m]}
    assert not foreign, f"collectors/{name}.py loads {foreign}"
    others = {f"collectors.{other}" for other in collectors.NAMES if other != name} & set(loaded)
    assert not others, f"collectors/{name}.py loads {others}"


@every
def test_it_starts_alone_without_a_request(name: str) -> None:
    run(name, {})


@every
def test_a_live_and_a_dead_target(name: str, request_of_all: dict[str, Any]) -> None:
    found = run(name, request_of_all)
    gone = [a for a in found.attempts if a["pid"] == 2**22 + 1]
    assert all(a["outcome"] in ("ABSENT", "SKIPPED") and not a["evidence"] for a in gone)


@every
def test_an_empty_tree_is_absent_and_not_a_crash(name: str, tmp_path: Path) -> None:
    request = {"targets": [{"pid": 4243, "start_ticks": 1, "log_files": ["/var/log/engine.log"]}], "interval_s": 0.01}
    request["options"] = {"patches": [{"name": "p", "module": "a.b"}]}
    found = run(name, request, "--sysroot", str(tmp_path))
    assert {a["outcome"] for a in found.attempts} <= {"ABSENT", "SKIPPED"}, found.attempts
    assert any(a["outcome"] == "ABSENT" for a in found.attempts)


@every
@pytest.mark.parametrize("max_bytes", [0, 700])
def test_its_evidence_keeps_the_byte_bound(name: str, request_of_all: dict[str, Any], max_bytes: int) -> None:
    found = run(name, {**request_of_all, "max_bytes": max_bytes})
    assert sum(map(len, found.content.values())) <= max_bytes
    assert all(head["truncated"] for key, head in found.heads.items() if not found.content[key])


@needs_root
@every
def test_an_unprivileged_user_gets_outcomes_not_crashes(name: str, request_of_all: dict[str, Any]) -> None:
    command = [sys.executable, "-I", "-c", AS_NOBODY, name]
    done = subprocess.run(command, input=json.dumps(request_of_all).encode(), capture_output=True, cwd="/", timeout=60, check=False)
    found = parse_lines(done.stdout, done.returncode, done.stderr.decode())
    assert (found.rc, found.stderr) == (0, "")
    check_records(found, done.stdout)


@every
def test_a_defect_becomes_one_attempt_and_what_was_sent_is_kept(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The entry point catches what a collector does not, and the line of evidence before it is whole."""
    from collectors import __main__ as entry

    def collect(request: Request, emit: Emitter) -> None:
        emit.evidence(f"{name}/early.json", "fileset", "{}")
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(importlib.import_module(f"collectors.{name}"), "collect", collect)
    monkeypatch.setattr("sys.stdin", None)
    assert entry.main([name]) == 1
    found = parse_lines(capsys.readouterr().out.encode())
    assert found.content == {f"{name}/early.json": b"{}"}
    ((outcome, reason),) = [(a["outcome"], a["reason"]) for a in found.attempts]
    assert outcome == "FAILED" and "a defect" in reason


@every
def test_a_parent_that_went_away_is_no_error_to_tell(name: str) -> None:
    """Nobody reads: the child ends by itself and quietly."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-I", "-m", "collectors", name]
    done = subprocess.run(command, input=b"{}", stdout=write, stderr=subprocess.PIPE, cwd="/", timeout=60, check=False)
    os.close(write)
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def test_an_unknown_name_is_wrong_usage() -> None:
    done = subprocess.run([sys.executable, "-I", "-m", "collectors", "nothing"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and all(name in done.stderr for name in collectors.NAMES)
