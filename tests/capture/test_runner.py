"""The runner against collectors that misbehave: real children, each a few lines of Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forensics.capture import _child as module
from forensics.capture import runner as runner_module
from forensics.capture.plan import Step
from forensics.capture.runner import AttemptLine, EvidenceLine, Runner, collector_command
from forensics.model import Outcome

SAY = """
import json, os, signal, sys, time
def say(**record): print(json.dumps(record), flush=True)
def evidence(name, text, more=False): say(type="evidence", name=name, kind="log", text=text, more=more)
def attempt(outcome="OK", **more): say(type="attempt", target="node", outcome=outcome, **more)
request = json.load(sys.stdin)
"""


class Sink:
    """Keeps everything, as the recorder would."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, AttemptLine]] = []
        self.texts: dict[str, bytes] = {}
        self.open: set[str] = set()
        self.over: list[str] = []

    def evidence(self, step: Step, line: EvidenceLine) -> None:
        self.texts[line.name] = self.texts.get(line.name, b"") + line.data
        self.open = self.open | {line.name} if line.more else self.open - {line.name}

    def attempt(self, step: Step, line: AttemptLine) -> None:
        self.attempts.append((step.collector, line))

    def ended(self, step: Step, seconds: float) -> list[str]:
        self.over.append(step.collector)
        cut, self.open = sorted(self.open), set()
        return cut


def run(*scripts: str, deadline_s: float = 20.0, max_bytes: int = 1 << 24, request: dict[str, Any] | None = None) -> tuple[Sink, Runner]:
    """Run one fake collector for each script, to the end."""
    sink = Sink()
    runner = Runner(sink, lambda name: [sys.executable, "-I", "-c", SAY + scripts[int(name)]])
    for index in range(len(scripts)):
        runner.start(Step(str(index), deadline_s, max_bytes=max_bytes), request or {})
    limit = time.monotonic() + 60
    while runner.busy and time.monotonic() < limit:
        runner.turn()
    assert not runner.busy
    runner.close()
    return sink, runner


def only(sink: Sink) -> AttemptLine:
    assert len(sink.attempts) == 1, sink.attempts
    return sink.attempts[0][1]


def test_evidence_and_attempts_arrive_in_order_and_the_request_reaches_the_child() -> None:
    sink, _ = run(
        'evidence("a", "1", more=True); evidence("a", request["x"])\n'
        'say(type="evidence", name="b", kind="raw", b64="AAH/"); attempt(evidence=["a"])',
        request={"x": "y" * 300_000},
    )
    assert sink.texts == {"a": b"1" + b"y" * 300_000, "b": b"\x00\x01\xff"}
    assert only(sink).outcome is Outcome.OK and only(sink).evidence == ["a"] and sink.over == ["0"]


def test_hanging_child_is_ended_at_its_deadline_and_keeps_what_it_said() -> None:
    sink, runner = run('evidence("a", "kept"); attempt(); evidence("b", "half", more=True); time.sleep(600)', deadline_s=3.0)
    first, last = (line for _, line in sink.attempts)
    assert first.outcome is Outcome.OK
    assert last.outcome is Outcome.TIMEOUT and "within 3 s" in last.reason and "1 attempts" in last.reason and last.evidence == ["b"]
    assert sink.texts == {"a": b"kept", "b": b"half"}
    assert not runner.forced, "it went at SIGTERM"


def test_child_that_ignores_sigterm_is_killed_with_everything_below_it(tmp_path: Path) -> None:
    script = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import subprocess
helper = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); print(1, flush=True); time.sleep(600)"], stdout=-1)
helper.stdout.readline()
open({str(tmp_path / "pid")!r}, "w").write(str(helper.pid))
attempt()
time.sleep(600)
"""
    # two interpreters have to start within it, on whatever machine
    sink, runner = run(script, deadline_s=5.0)
    assert [step.collector for step in runner.forced] == ["0"]
    assert sink.attempts[-1][1].outcome is Outcome.TIMEOUT
    helper = int((tmp_path / "pid").read_text())
    assert _gone(helper), "a helper in another process group must not be left behind"


def _gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_stopped_child_is_killed_too() -> None:
    sink, _ = run("attempt(); os.kill(os.getpid(), signal.SIGSTOP)", deadline_s=3.0)
    assert sink.attempts[-1][1].outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sys.exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise ValueError('boom')", "ValueError: boom"),
        ("pass", "without a word"),
        ("os.close(1); os.close(2); os._exit(3)", "exit status 3"),
    ],
)
def test_every_end_leaves_an_attempt(script: str, words: str) -> None:
    line = only(run(script)[0])
    assert line.outcome is Outcome.FAILED and words in line.reason and line.started_ns and line.ended_ns


def test_garbage_is_counted_and_quoted_and_good_lines_between_are_kept() -> None:
    sink, _ = run(
        'print("Traceback \\x1b[31m"); attempt(); print("[1,2]"); print(json.dumps({"type":"attempt"}))\n'
        'evidence("a", "x"); print("no end", end="")'
    )
    good, bad = (line for _, line in sink.attempts)
    assert good.outcome is Outcome.OK and sink.texts == {"a": b"x"}
    assert bad.outcome is Outcome.FAILED and "4 lines were no records, the first: Traceback" in bad.reason


def test_flood_of_garbage_is_stopped() -> None:
    began = time.monotonic()
    sink, _ = run("attempt()\nblock = b'x' * 999 + b'\\n'\nwhile True: os.write(1, block * 1000)", deadline_s=50.0)
    assert time.monotonic() - began < 40, "it must not run into its deadline"
    assert "no records" in sink.attempts[-1][1].reason and sink.attempts[-1][1].outcome is Outcome.FAILED


def test_endless_line_is_stopped() -> None:
    sink, _ = run("attempt()\nwhile True: os.write(1, b'x' * 1000000)", deadline_s=50.0)
    assert sink.attempts[-1][1].outcome is Outcome.FAILED


def test_flood_of_evidence_is_cut_at_the_bound() -> None:
    sink, _ = run(
        'attempt()\nline = dict(type="evidence", name="a", kind="log", text="y" * 100000, more=True)\n'
        'block = json.dumps(line).encode() + b"\\n"\nwhile True: os.write(1, block)',
        deadline_s=50.0,
        max_bytes=1_000_000,
    )
    last = sink.attempts[-1][1]
    assert last.outcome is Outcome.PARTIAL and "more than its bound" in last.reason and last.evidence == ["a"]
    assert 900_000 <= len(sink.texts["a"]) <= 1_000_000


def test_stderr_flood_does_not_block_and_its_tail_is_kept() -> None:
    line = only(run("os.write(2, b'noise ' * 500000); sys.stderr.write('the end'); sys.exit(1)")[0])
    assert line.reason.endswith("the end") and len(line.reason) < 2000


def test_grandchild_that_holds_the_pipe_does_not_hold_the_capture(tmp_path: Path) -> None:
    script = f"""
import subprocess
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "pid")!r}, "w").write(str(helper.pid))
attempt()
os._exit(0)
"""
    sink, _ = run(script, deadline_s=50.0)
    try:
        assert only(sink).outcome is Outcome.OK
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_child_that_eats_memory_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 256 << 20)
    sink, _ = run("attempt()\nkept = [b'x' * (1 << 26) for _ in range(1 << 20)]", deadline_s=50.0)
    assert sink.attempts[-1][1].outcome is Outcome.FAILED and "MemoryError" in sink.attempts[-1][1].reason


def test_one_bad_child_does_not_disturb_the_others() -> None:
    sink, _ = run("time.sleep(600)", 'evidence("a", "x" * 3000000); attempt()', "os.abort()", deadline_s=2.0)
    outcomes = {name: line.outcome for name, line in sink.attempts}
    assert outcomes == {"0": Outcome.TIMEOUT, "1": Outcome.OK, "2": Outcome.FAILED}
    assert len(sink.texts["a"]) == 3_000_000


def test_abort_ends_everything_and_says_why() -> None:
    sink = Sink()
    runner = Runner(sink, lambda name: [sys.executable, "-I", "-c", SAY + 'evidence("a", "x", more=True); time.sleep(600)'])
    runner.start(Step("stacks", 600.0), {})
    limit = time.monotonic() + 30
    while not sink.texts and time.monotonic() < limit:
        runner.turn()
    runner.abort("interrupted by SIGINT", Outcome.SKIPPED)
    runner.close()
    line = only(sink)
    assert line.outcome is Outcome.SKIPPED and line.reason.startswith("interrupted by SIGINT") and line.evidence == ["a"]
    assert not runner.active


def test_abort_leaves_a_word_of_a_child_whose_flood_is_still_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Sink):
        def evidence(self, step: Step, line: EvidenceLine) -> None:
            super().evidence(step, line)
            time.sleep(0.05)

    monkeypatch.setattr(runner_module, "WRITING_S", 0.0)
    sink = Slow()
    script = SAY + "for _ in range(2000): evidence('a', 'x', more=True)\ntime.sleep(600)"
    runner = Runner(sink, lambda name: [sys.executable, "-I", "-c", script])
    runner.start(Step("cpu", 600.0), {})
    limit = time.monotonic() + 30
    while not (sink.texts and runner.active[0].pending) and time.monotonic() < limit:
        runner.turn()
    pid = runner.active[0].pid
    runner.abort("the deadline was spent")
    runner.close()
    line = only(sink)
    assert line.outcome is Outcome.TIMEOUT and "could not be written in time" in line.reason and line.evidence == ["a"]
    assert not runner.active and not Path(f"/proc/{pid}").exists() and sink.over == ["cpu"]


def test_unkillable_child_is_left_behind_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uninterruptible sleep cannot be made without help from the kernel: here every signal is lost on the way instead."""
    lost: list[int] = []
    monkeypatch.setattr(module.Child, "signal", lambda self, number: lost.append(number))
    began = time.monotonic()
    sink, runner = run('evidence("a", "kept"); attempt(); time.sleep(600)', deadline_s=3.0)
    try:
        assert time.monotonic() - began < 30
        line = sink.attempts[-1][1]
        assert line.outcome is Outcome.TIMEOUT and "cannot be killed" in line.reason and "/stat:" in line.reason
        assert sink.texts == {"a": b"kept"} and signal.SIGKILL in lost
        assert len(runner.abandoned) == 1
    finally:
        for child in runner.abandoned:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def _no_processes(*args: object, **kwargs: object) -> int:
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_without_room_for_a_child_proc_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("collectors.memory")
    monkeypatch.setattr(module.os, "posix_spawn", _no_processes)
    sink = Sink()
    runner = Runner(sink)
    for name in ("memory", "stacks"):
        runner.start(Step(name, 10.0), {"targets": []})
    while runner.busy:
        runner.turn()
    runner.close()
    outcomes = {(name, line.target): line for name, line in sink.attempts}
    assert any("MemTotal" in text.decode() for text in sink.texts.values())
    assert outcomes["memory", "memory"].outcome is Outcome.PARTIAL and "this process" not in outcomes["stacks", "stacks"].reason
    assert outcomes["stacks", "stacks"].outcome is Outcome.SKIPPED and "ulimit" in outcomes["stacks", "stacks"].cure


def test_our_own_package_is_run_whatever_lies_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "collectors").mkdir()
    (tmp_path / "collectors" / "__init__.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        collector_command("memory"), cwd=tmp_path, input=json.dumps({}), capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert "shadowed" not in done.stderr and done.returncode == 0, done.stderr
