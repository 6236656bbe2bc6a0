"""Functions and constants as real processes have them in memory: replaced at run time, changed on disk, decorated, of another Python."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected
from live_programs import interpreter

from collectors._definitions import Source

Collect = Callable[..., Collected]

LIBRARY = '''\
"""What somebody monkeypatches."""
import contextlib
import functools
from json import dumps

LIMIT_S = 300
NAME = "a name"


class Base:
    def shared(self):
        return 1


class Spin(Base):
    pace_s = 1.5

    def __init__(self, busy_loop_s=1):
        self.busy_loop_s = busy_loop_s

    def wait(self, timeout_ms=None):
        return [timeout_ms, self.busy_loop_s]

    @contextlib.contextmanager
    def held(self):
        yield self

    @staticmethod
    def pause():
        return 0

    @property
    def left_s(self):
        return 0.5


def step(batch):
    return sum(batch)


if hasattr(dumps, "fast"):
    from fast import run
else:

    def run():
        return "slow"
'''
PROGRAM = """\
import sys
sys.path.insert(0, {folder!r})
import enginelib
{change}

class Queue:
    def __init__(self):
        self.condition = enginelib.Spin()
        self.others = [enginelib.Spin(2)]

def serve(queue):
    print("ready", flush=True)
    sys.stdin.read()

queue = Queue()
{then}
serve(queue)
"""
PLUGIN = """\
import functools


def wait(self, timeout_ms=None):
    return None


def tuned(original):
    @functools.wraps(original)
    def step(batch):
        return original(batch) + 1

    return step
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "enginelib.py"
    path.write_text(LIBRARY)
    (tmp_path / "plugin.py").write_text(PLUGIN)
    return path


@pytest.fixture
def run(library: Path) -> Iterator[Callable[..., int]]:
    """`run(change, then, python)`: a program that loads the library, changes it, makes its objects and waits. Returns its pid."""
    children: list[subprocess.Popen[bytes]] = []

    def start(change: str = "", then: str = "", python: tuple[str, ...] = (sys.executable,)) -> int:
        code = PROGRAM.format(folder=str(library.parent), change=textwrap.dedent(change), then=textwrap.dedent(then))
        child = subprocess.Popen([*python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
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


def ask(collect: Collect, pid: int, *patches: dict[str, Any], **options: Any) -> dict[str, Any]:
    found = collect("patches", {"targets": [{"pid": pid}], "options": {"patches": list(patches), **options}})
    live = found.json(f"patches/live-{pid}.json")
    assert found.heads[f"patches/live-{pid}.json"]["kind"] == "patch-live" and isinstance(live, dict)
    return live


def functions(collect: Collect, pid: int, *names: str, **options: Any) -> dict[str, dict[str, Any]]:
    patches = [{"name": name, "module": "enginelib", "function": name} for name in names]
    return {one["function"]: one for one in ask(collect, pid, *patches, **options)["code"]}


def line_of(source: str, text: str) -> int:
    return source.splitlines().index(text) + 1


def test_code_as_its_file_says(collect: Collect, run: Callable[..., int], library: Path) -> None:
    found = functions(collect, run(), "Spin.wait", "step", "Spin.pause", "Spin.left_s", "Base.shared")
    for name, one in found.items():
        assert one["status"] == "read" and one["module_file"] == str(library), one
        (live,) = one["chain"]
        assert live["own_file"] is True and live["file"] == str(library)
        (defined,) = one["disk"]["defined"]
        assert (live["sha256"], live["line"]) == (defined["code_sha256"], defined["line"]), name
        assert one["disk"]["compiled"] and not one["disk"]["error"] and not one["disk"]["rebound"]
    assert found["Spin.wait"]["chain"][0]["line"] == line_of(LIBRARY, "    def wait(self, timeout_ms=None):")


def test_a_function_that_was_replaced(collect: Collect, run: Callable[..., int], library: Path) -> None:
    pid = run("import plugin; enginelib.Spin.wait = plugin.wait; enginelib.step = plugin.tuned(enginelib.step)")
    found = functions(collect, pid, "Spin.wait", "step")
    (live,) = found["Spin.wait"]["chain"]
    assert (live["file"], live["own_file"]) == (str(library.parent / "plugin.py"), False)
    assert live["line"] == line_of(PLUGIN, "def wait(self, timeout_ms=None):")
    # what it wraps is named as well, and that is the original
    outer, inner = found["step"]["chain"]
    assert outer["own_file"] is False and inner["own_file"] is True
    assert inner["sha256"] == found["step"]["disk"]["defined"][0]["code_sha256"]


def test_code_that_claims_to_lie_in_the_file(collect: Collect, run: Callable[..., int]) -> None:
    change = """
    source = open(enginelib.__file__).read().replace("return sum(batch)", "return sum(batch) + 1")
    exec(compile(source, enginelib.__file__, "exec"), enginelib.__dict__)
    """
    one = functions(collect, run(change), "step")["step"]
    assert one["chain"][0]["own_file"] is True
    assert one["chain"][0]["sha256"] != one["disk"]["defined"][0]["code_sha256"]


def test_what_a_decorator_and_what_the_file_itself_make(collect: Collect, run: Callable[..., int]) -> None:
    found = functions(collect, run(), "Spin.held", "run", "dumps", "Spin.shared")
    held = found["Spin.held"]
    assert held["chain"][0]["file"].endswith("contextlib.py") and held["chain"][1]["own_file"] is True
    assert held["disk"]["defined"][0]["decorated"] and held["disk"]["rebound"] == []
    assert found["run"]["disk"]["rebound"] == [line_of(LIBRARY, "    from fast import run")]
    assert found["dumps"]["chain"][0]["own_file"] is False and found["dumps"]["disk"]["defined"] == []
    assert found["Spin.shared"]["inherited_from"] == "enginelib.Base" and found["Spin.shared"]["disk"] is None


@pytest.mark.parametrize(("head", "decorated"), [("class C:", False), ("@made\nclass C:", True), ("class C(metaclass=M):", True)])
def test_what_a_class_may_make_of_its_methods(head: str, decorated: bool) -> None:
    (found,) = Source(f"{head}\n    def f(self): pass\n".encode()).definitions("C.f")
    assert found["decorated"] is decorated and found["line"] == head.count("\n") + 2


def test_names_that_are_not_there(collect: Collect, run: Callable[..., int]) -> None:
    pid = run()
    patches = [{"name": "a", "module": "elsewhere", "function": "f"}, {"name": "b", "module": "enginelib", "function": "Spin.nothing"}]
    patches += [{"name": "c", "module": "enginelib", "function": "LIMIT_S"}, {"name": "d", "module": "time", "function": "sleep"}]
    assert [one["status"] for one in ask(collect, pid, *patches)["code"]] == ["not-imported", "not-there", "not-python", "not-python"]


def test_a_file_that_changed_after_the_start(collect: Collect, run: Callable[..., int], library: Path) -> None:
    pid = run()
    library.write_text(LIBRARY.replace("return sum(batch)", "return sum(batch) + 1"))
    found = ask(collect, pid, {"name": "p", "module": "enginelib", "function": "step"})
    (one,) = found["code"]
    assert one["disk"]["changed_ns"] > found["image_started_ns"]
    assert one["chain"][0]["sha256"] != one["disk"]["defined"][0]["code_sha256"], "memory holds what was there before"


@pytest.mark.parametrize("level", ["-O", "-OO"])
def test_the_level_of_optimisation_is_that_of_the_process(collect: Collect, run: Callable[..., int], library: Path, level: str) -> None:
    text = 'def checked(x):\n    """Text."""\n    assert x\n    return x\n'
    library.write_text(LIBRARY + text)
    one = functions(collect, run(python=(sys.executable, level)), "checked")["checked"]
    assert one["chain"][0]["sha256"] == one["disk"]["defined"][0]["code_sha256"]
    plain = functions(collect, run(), "checked")["checked"]
    assert plain["chain"][0]["sha256"] != one["chain"][0]["sha256"]


@pytest.mark.parametrize("version", [v for v in ("3.10", "3.11", "3.12", "3.13") if v != "{}.{}".format(*sys.version_info)])
def test_another_python_is_read_and_not_compiled(collect: Collect, run: Callable[..., int], library: Path, version: str) -> None:
    pid = run("import plugin; enginelib.Spin.wait = plugin.wait", python=(interpreter(version),))
    found = ask(collect, pid, *({"name": n, "module": "enginelib", "function": n} for n in ("Spin.wait", "step")))
    wait, step = found["code"]
    assert found["python"].startswith(version + ".") and not found["ours"].startswith(version + ".")
    assert wait["chain"][0]["file"] == str(library.parent / "plugin.py") and wait["disk"]["defined"][0]["code_sha256"] is None
    assert step["chain"][0]["own_file"] is True and not step["disk"]["compiled"] and len(step["chain"][0]["sha256"]) == 64


def test_declared_functions_are_looked_at_without_patches_and_their_files_left_alone(collect: Collect, run: Callable[..., int]) -> None:
    declared = [{"module": "enginelib", "function": name, "role": None, "engine": None} for name in ("step", "Spin.wait")]
    pid = run("import plugin; enginelib.Spin.wait = plugin.wait")
    step, wait = ask(collect, pid, functions=declared)["code"]
    assert step["chain"][0]["own_file"] is True and step["disk"] is None, "nothing is parsed where nothing is strange"
    assert wait["disk"]["defined"] and not wait["disk"]["compiled"]
    step, _ = ask(collect, pid, functions=declared, compare=True)["code"]
    assert step["disk"]["compiled"]


def constants(collect: Collect, pid: int, *wanted: tuple[str, Any], module: str = "enginelib") -> dict[str, dict[str, Any]]:
    patches = [{"name": n, "module": module, "live": {"object": n, **({} if v is None else {"equals": v})}} for n, v in wanted]
    return {one["object"]: one for one in ask(collect, pid, *patches)["constants"]}


def test_constants_of_objects_classes_and_modules(collect: Collect, run: Callable[..., int]) -> None:
    pid = run(then="queue.condition.busy_loop_s = 0.002\nenginelib.LIMIT_S = 600")
    wanted = [("Spin.busy_loop_s", 0.002), ("Spin.pace_s", 1.5), ("LIMIT_S", 600.0), ("enginelib.NAME", "a name"), ("Spin.left_s", 0.5)]
    found = constants(collect, pid, *wanted, ("Queue.condition.busy_loop_s", None), ("Nothing.x", 1), ("Spin.nothing", 1))
    busy = {r["value"]: (r["count"], r["equal"]) for r in found["Spin.busy_loop_s"]["readings"]}
    assert busy == {0.002: (1, True), 2: (1, False)}, "two objects, and the one that was changed"
    assert found["Spin.busy_loop_s"]["searched"]
    (pace,) = found["Spin.pace_s"]["readings"]
    assert (pace["value"], pace["count"], pace["equal"]) == (1.5, 2, True)
    (limit,) = found["LIMIT_S"]["readings"]
    assert (limit["value"], limit["equal"], found["LIMIT_S"]["searched"]) == (600, True, False)
    (name,) = found["enginelib.NAME"]["readings"]
    assert name["equal"] is True and name["value"] == "…", "a text may be anybody's; that it is the wanted one may leave"
    assert found["Spin.left_s"]["readings"] == [] and "property" in found["Spin.left_s"]["error"]
    (unjudged,) = found["Queue.condition.busy_loop_s"]["readings"]
    assert (unjudged["value"], unjudged["equal"]) == (0.002, None)
    assert found["Nothing.x"]["status"] == found["Spin.nothing"]["status"] == "not-there"
    assert constants(collect, pid, ("Nothing.x", 1), module="elsewhere")["Nothing.x"]["status"] == "not-imported"


@pytest.mark.parametrize("asked", ["len(Spin.x)", "Spin.x[0]", "Spin.f()", "1 + 1", ""])
def test_what_is_no_name_of_a_constant_is_refused(collect: Collect, run: Callable[..., int], asked: str) -> None:
    (one,) = constants(collect, run(), (asked, 1)).values()
    assert one["status"] == "not-there" and one["error"] and one["readings"] == []


def test_a_process_that_is_not_python(collect: Collect) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        declared = [{"module": "enginelib", "function": "step", "role": None, "engine": None}]
        found = collect("patches", {"targets": [{"pid": child.pid}], "options": {"functions": declared}})
        (attempt,) = found.attempts
        assert attempt["outcome"] == "ABSENT" and not found.content
        assert child.stdin
        child.stdin.close()
