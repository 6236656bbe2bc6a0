"""`forensics peek` as somebody types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from forensics.cli.peek import peek_command

from .conftest import needs_root

PROGRAM = """
import os, posix, queue, sys
class Word(str): pass
class Secret:
    def __init__(self, value): self._value = value
class Scheduler:
    def __init__(self):
        self.queue = queue.Queue(3); self.queue.put(1); self.queue.put(2)
        self.api_key = "hello-my-secret-key"
        self.prompt = "tell me a story about a cat"
        self.name = "a\\x1b[31mred\\u202e"
        self.big = list(range(5000))
        self.tokens = {"hf_token": "hf_" + "a" * 34}
        self.headers = {b"api_key": b"hello-my-secret-key", "n": 1}
        self.mixed = {"n": 1, b"api_key": "hello-my-secret-key", Word("password"): "hello-my-secret-key"}
        self.password = Secret("hello-my-secret-key")
        self.env = dict(os.environ)
        self.spawn = {"env": os.environb.copy(), "args": ["x"]}
        self.log = "words " * 50
        self.odd = {"$type": "hello", "env": {"$type": "some value"}}
    def run(self):
        posix_environ, copied = posix.environ, dict(os.environ)
        print("ready", flush=True)
        sys.stdin.read()
other = Scheduler()
def main(peer): Scheduler().run()
main(other)
"""
Target = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def pid(target: Target) -> int:
    secret = {"HF_TOKEN": "hf_" + "b" * 34, "PEEK_UNKNOWN": "some value", "VLLM_LOGGING_LEVEL": "DEBUG"}
    return target(PROGRAM, env={**os.environ, **secret}).pid


def peek(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forensics", "peek", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_depth_of_a_queue(pid: int) -> None:
    done = peek(pid, "len(main.queue.queue)")
    assert done.returncode == 4, "main is a function here"
    done = peek(pid, "len(self.queue.queue)")
    assert done.returncode == 0, done.stderr
    assert "2" in done.stdout.splitlines() and "held by 'self' in" in done.stdout


def test_as_json(pid: int) -> None:
    done = peek(pid, "self.queue", "--json")
    record = json.loads(done.stdout)
    assert record["schema"] == "forensics.peek/1" and record["pid"] == pid and record["type"] == "queue.Queue"
    assert record["python"] == "{}.{}".format(*sys.version_info) and record["torn"] is False
    assert record["value"]["depth"] == 2 and record["value"]["attributes"]["maxsize"] == 3
    assert int(record["address"], 16)


def test_two_objects_of_a_class_need_a_choice(pid: int) -> None:
    done = peek(pid, "Scheduler.queue.maxsize")
    assert done.returncode == 2 and "may be 2 objects" in done.stderr and "--at" in done.stderr
    rows = json.loads(peek(pid, "--json").stdout)["roots"]
    addresses = [row["address"] for row in rows if row["type"] == "__main__.Scheduler"]
    assert len(addresses) == 2
    for address in addresses:
        done = peek(pid, "Scheduler.queue.maxsize", "--at", address, "--thread", "MainThread")
        assert done.returncode == 0 and done.stdout.endswith("\n3\n")
    assert peek(pid, "Scheduler", "--at", "nonsense").returncode == 2
    assert peek(pid, "Scheduler", "--thread", "nobody").returncode == 4


def test_without_an_expression_it_says_what_one_may_begin_with(pid: int) -> None:
    done = peek(pid)
    assert done.returncode == 0 and done.stdout.count("__main__.Scheduler at 0x") == 2


def test_secrets_are_not_shown(pid: int, capsys: pytest.CaptureFixture[str]) -> None:
    for expr in (
        *("self", "self.api_key", "self.prompt", "self.tokens", "self.tokens['hf_token']", "os.environ", "os.environ['HF_TOKEN']"),
        *("self.headers", "self.headers[b'api_key']", "self.mixed", "self.mixed[b'api_key']", "self.mixed['password']"),
        *("self.password", "self.password._value", "self.spawn", "self.env['HF_TOKEN']", "os.environ._data[b'HF_TOKEN']"),
    ):
        for as_json in (False, True):
            assert peek_command(pid, expr, items=1000, as_json=as_json) == 0
            shown = capsys.readouterr().out
            for secret in ("hello-my-secret-key", "story about", "a" * 30, "b" * 30):
                assert secret not in shown, expr
            assert "<redacted:" in shown


def test_the_environment_passes_by_allow_list(pid: int, capsys: pytest.CaptureFixture[str]) -> None:
    whole = ("os.environ", "os.environ._data", "posix.environ", "posix_environ", "copied", "self.env", "self.spawn['env']")
    for expr in whole:
        assert peek_command(pid, expr, items=1000, as_json=True) == 0
        value = json.loads(capsys.readouterr().out)["value"]
        shown = value["environ"]
        assert value["$type"] in ("dict", "os._Environ"), expr
        assert shown["VLLM_LOGGING_LEVEL"] == "DEBUG"
        assert shown["PEEK_UNKNOWN"].startswith("<redacted:env:") and shown["HF_TOKEN"].startswith("<redacted:secret:"), expr
    keys = (
        "os.environ['{}']",
        "os.environ._data[b'{}']",
        "posix_environ[b'{}']",
        "copied['{}']",
        "self.env['{}']",
        "self.spawn['env'][b'{}']",
    )
    for expr in keys:
        assert peek_command(pid, expr.format("PEEK_UNKNOWN")) == 0
        assert "<redacted:env:" in capsys.readouterr().out, expr
        assert peek_command(pid, expr.format("VLLM_LOGGING_LEVEL")) == 0
        assert '"VLLM_LOGGING_LEVEL": "DEBUG"' in capsys.readouterr().out, expr
    assert peek_command(pid, "self", items=3, depth=9) == 0
    assert "some value" not in capsys.readouterr().out
    assert peek_command(pid, "self", items=1000, as_json=True) == 0
    shown = capsys.readouterr().out
    assert "some value" not in shown
    attributes = json.loads(shown)["value"]["attributes"]
    assert attributes["env"]["$type"] == attributes["spawn"]["env"]["$type"] == "dict"
    assert attributes["password"]["$type"] == "__main__.Secret" and attributes["odd"]["entries"]["$type"] == "hello"


def test_long_texts_are_shown_when_asked_for(pid: int, capsys: pytest.CaptureFixture[str]) -> None:
    for expr in ("self.log", "self"):
        assert peek_command(pid, expr, items=1000) == 0
        shown = capsys.readouterr().out
        assert "<text of 300 characters: --text shows it>" in shown and "words words" not in shown
        assert peek_command(pid, expr, items=1000, text=True) == 0
        assert "words words" in capsys.readouterr().out
    assert peek(pid, "self.log", "--text").stdout.count("words") == 50


def test_nothing_shown_can_act_on_the_terminal(pid: int) -> None:
    done = peek(pid, "self.name")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert "red" in done.stdout and "\\u202e" in done.stdout
    done = peek(pid, "self.\x1b[31m")
    assert done.returncode == 2 and "\x1b" not in done.stderr


def test_what_is_cut_says_so(pid: int) -> None:
    done = peek(pid, "self.big", "--items", 3)
    assert done.returncode == 0 and '"length": 5000' in done.stdout and "--items" in done.stdout
    assert len(json.loads(peek(pid, "self.big", "--items", 10_000, "--json").stdout)["value"]) == 5000


@pytest.mark.parametrize(
    ("expr", "status", "says"), [("self.q.qsize()", 2, "len(X)"), ("self.nope", 4, "it holds"), ("Nobody", 4, "Scheduler")]
)
def test_errors_teach(pid: int, expr: str, status: int, says: str) -> None:
    done = peek(pid, expr)
    assert done.returncode == status and says in done.stderr and not done.stdout
    assert "Traceback" not in done.stderr


def test_no_such_process_and_no_python() -> None:
    one = subprocess.Popen(["sleep", "1000"])
    try:
        done = peek(one.pid, "os.environ")
        assert done.returncode == 4 and "runs no CPython" in done.stderr
    finally:
        one.kill()
        one.wait()
    done = peek(one.pid, "os.environ")
    assert done.returncode == 4 and "no process" in done.stderr


def test_without_py_spy_names_of_modules_still_work(pid: int) -> None:
    done = peek(pid, "queue.Queue.maxsize", "--py-spy", "/nonexistent")
    assert done.returncode == 4 and "only names of modules can be read" in done.stderr
    done = peek(pid, "sys.version_info", "--py-spy", "/nonexistent")
    assert done.returncode == 0 and "sys.version_info" in done.stdout


@needs_root
def test_without_permission_it_names_the_cure(pid: int) -> None:
    code = (
        "import os, sys\n"
        "import collectors._cpython, collectors._pyspy, forensics.cli.app, forensics.cli.peek, forensics.bundle.redact, forensics.report.terminal\n"
        "from forensics.report import safe\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from forensics.cli import main\n"
        f"sys.argv = ['forensics', 'peek', '{pid}', 'self']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and "not permitted" in done.stderr and "CAP_SYS_PTRACE" in done.stderr, done.stderr
