"""Whole captures: of real processes, with real collectors and with ones that misbehave."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forensics.capture import _procfs as procfs
from forensics.capture import session
from forensics.capture.errors import BadRequest, NothingFound, OutputUnusable
from forensics.capture.session import CaptureOptions, CaptureResult, Quiet, capture
from forensics.model import Attempt, Outcome

from .conftest import Grow, Tree, generic, until_state, vllm

FAKE = """
import json, os, signal, sys, time
request = json.load(sys.stdin)
def say(**record): print(json.dumps(record), flush=True)
def attempt(target, outcome="OK", **more): say(type="attempt", target=target, outcome=outcome, **more)
def sample_all(name, outcome="OK"):
    for number in range(request["first_sample"], request["first_sample"] + request["samples"]):
        for target in request["targets"]:
            say(type="evidence", name=f"{name}/pid-{target['pid']}.{number}.json", kind="fileset", text="{}", pid=target["pid"], sample=number)
            attempt(f"pid {target['pid']}", outcome, pid=target["pid"], sample=number, evidence=[f"{name}/pid-{target['pid']}.{number}.json"])
"""


def fakes(**scripts: str) -> Callable[[str], list[str]]:
    """Collectors that say what the script says; those not named say that everything was fine."""

    def command(name: str) -> list[str]:
        return [sys.executable, "-I", "-c", FAKE + scripts.get(name, f"sample_all({name!r})\nif not request['targets']: attempt('node')")]

    return command


def metrics(steps: str, running: int) -> str:
    """A queues collector whose counter stands at `steps` (an expression over the sample number)."""
    return f"""
for number in range(request["first_sample"], request["first_sample"] + request["samples"]):
    pid = next(target["pid"] for target in request["targets"] if target["ports"])
    text = f"steps_total {{{steps}}}\\nnum_requests_running {running}\\n"
    say(type="evidence", name=f"queues/metrics.{{number}}.prom", kind="prometheus", text=text, pid=pid, sample=number)
    attempt("metrics", pid=pid, sample=number)
"""


def take(tree: Tree, tmp_path: Path, command: Callable[[str], list[str]] | None = None, **more: Any) -> CaptureResult:
    fields: dict[str, Any] = {"pids": (tree.root,), "out": tmp_path / "out", "window_s": 3.0, "keep_directory": True, **more}
    if command:
        fields["command"] = command
    return capture(CaptureOptions(**fields))


def manifest(result: CaptureResult) -> dict[str, Any]:
    folder = result.path.with_name(result.path.name.removesuffix(".tar.gz"))
    for line in (folder / "manifest-sha256.txt").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    return json.loads((folder / "manifest.json").read_text())


def samples(result: CaptureResult, collector: str) -> set[int]:
    return {attempt.sample for attempt in result.attempts if attempt.collector == collector}


def of(attempts: tuple[Attempt, ...], collector: str) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.collector == collector]


def test_a_stopped_rank_end_to_end_with_the_real_collectors(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    os.kill(tree.pids["rank1"], signal.SIGSTOP)
    until_state(tree.pids["rank1"], "T")  # on a full machine it takes its signal late
    result = take(tree, tmp_path, incident="night")
    told = manifest(result)
    assert told["incident"] == "night" and told["node"] in result.path.name and "-night" in result.path.name
    with tarfile.open(result.path) as packed:
        names = {member.name.partition("/")[2] for member in packed}
    assert {"manifest.json", "manifest-sha256.txt", "attempts.jsonl", "discovery/processes.json"} <= names
    assert {record["path"] for record in told["evidence"]} <= names
    table = json.loads(packed_text(result.path, "discovery/processes.json"))
    assert {row["pid"] for row in table} >= set(tree.pids.values())
    assert next(row for row in table if row["pid"] == tree.pids["rank1"])["state"] == "T"
    # it offers no counters, so it is watched to the end of the window
    assert samples(result, "stacks") == {1, 2, 3} and samples(result, "process") == {1, 2, 3}
    stacks = {(attempt.sample, attempt.origin.pid): attempt for attempt in of(result.attempts, "stacks") if attempt.origin}
    assert stacks[1, tree.pids["rank1"]].outcome is Outcome.OK and "stopped" in stacks[1, tree.pids["rank1"]].reason
    rank = stacks[2, tree.pids["rank0"]].origin
    assert rank and rank.rank and rank.rank.rank == 0 and rank.process and rank.process.start_ticks
    assert "rank_loop" in packed_text(result.path, f"stacks/pid-{tree.pids['rank0']}.1.json")
    assert procfs.stat_of(tree.pids["rank1"]).state == "T", "a capture neither stops nor continues anybody"
    assert procfs.stat_of(tree.pids["rank0"]).state in ("S", "R")
    assert oct(result.path.stat().st_mode & 0o777) == "0o600"


def packed_text(path: Path, name: str) -> str:
    with tarfile.open(path) as packed:
        member = next(member for member in packed if member.name.endswith("/" + name))
        file = packed.extractfile(member)
        assert file
        return file.read().decode()


def test_environment_of_the_engine_is_not_in_the_bundle(grow: Grow, tmp_path: Path) -> None:
    tree = grow(vllm())
    result = take(tree, tmp_path, window_s=0.0)
    folder = result.path.with_name(result.path.name.removesuffix(".tar.gz"))
    leaked = [file for file in folder.rglob("*") if file.is_file() and b"planted-secret" in file.read_bytes()]
    assert not leaked
    assert samples(result, "stacks") == {1, 2}


@pytest.mark.parametrize(
    ("steps", "running", "expected"),
    [("5", 0, {1, 2}), ("5", 2, {1, 2, 3}), ("number", 2, {1, 2})],
    ids=["idle: done after two looks", "standing: looks again", "moving: done after two looks"],
)
def test_looking_again(grow: Grow, tmp_path: Path, steps: str, running: int, expected: set[int]) -> None:
    result = take(grow(generic()), tmp_path, fakes(queues=metrics(steps, running)))
    assert samples(result, "queues") == expected
    assert samples(result, "stacks") == expected


def test_every_collector_leaves_an_attempt_however_it_ends(grow: Grow, tmp_path: Path) -> None:
    command = fakes(
        stacks="sample_all('stacks', 'DENIED')",
        process="sys.exit(9)",
        cpu="print('garbage')",
        health="say(type='evidence', name='health/half.json', kind='http', text='half', more=True)\nos.kill(os.getpid(), signal.SIGKILL)",
        memory="say(type='evidence', name='../../etc/passwd', kind='fileset', text='{}'); attempt('x')",
        rpclogs="raise OSError('disk')",
    )
    tree = grow(generic())
    result = take(tree, tmp_path, command, window_s=0.0)
    told = manifest(result)
    assert {attempt.collector for attempt in result.attempts} >= {
        "discovery", "stacks", "rings", "queues", "process", "cpu", "health",
        "memory", "clock", "gpu", "thermal", "patches", "kernel", "rpclogs", "cores", "builds",
    }  # fmt: skip
    half = next(record for record in told["evidence"] if record["collector"] == "health")
    assert half["truncated"] and half["path"] in of(result.attempts, "health")[0].evidence
    assert "SIGKILL" in of(result.attempts, "health")[0].reason
    assert not any(".." in record["path"] for record in told["evidence"])
    text = "\n".join(result.incomplete)
    assert "stacks pid" in text and "exit status 9" in text and "rpclogs" in text and "health" not in text


def test_deadline_seals_what_there_is(grow: Grow, tmp_path: Path) -> None:
    hang = "sample_all({name!r})\ntime.sleep(600)"
    command = fakes(**{name: hang.format(name=name) for name in ("stacks", "memory", "rpclogs")})
    result = take(grow(generic()), tmp_path, command, deadline_s=2.0)
    told = manifest(result)
    assert any(record["path"].startswith("stacks/") for record in told["evidence"])
    assert of(result.attempts, "stacks")[-1].outcome is Outcome.TIMEOUT
    assert any("stacks" in line for line in result.incomplete)


def test_interrupt_seals_what_there_is(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    (tmp_path / "out").mkdir()
    code = f"""
import sys
from pathlib import Path
from forensics.capture.session import CaptureOptions, Quiet, capture
class Show(Quiet):
    def attempt(self, attempt):
        if attempt.collector == "stacks":
            print("stacks", flush=True)
command = lambda name: [sys.executable, "-I", "-c", {FAKE!r} + ("sample_all(%r); time.sleep(600)" % name)]
result = capture(CaptureOptions(pids=({tree.root},), out=Path({str(tmp_path / "out")!r}), command=command), Show())
print(result.path, result.interrupted, *result.incomplete, sep="|")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "stacks\n"
        child.send_signal(signal.SIGTERM)
        rest = child.stdout.read().splitlines()
    assert child.returncode == 0
    path, interrupted, *missing = rest[-1].split("|")
    assert interrupted == "True" and missing[0] == "capture: interrupted by SIGTERM"
    with tarfile.open(path) as packed:
        assert any(member.name.endswith("manifest.json") for member in packed)


def test_target_that_dies_meanwhile(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())

    class Show(Quiet):
        def attempt(self, attempt: Attempt) -> None:
            if attempt.collector == "stacks" and attempt.sample == 1:
                for pid in tree.pids.values():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue

    result = capture(CaptureOptions(pids=(tree.root,), out=tmp_path / "out", window_s=0.0, keep_directory=True), Show())
    assert manifest(result)["evidence"]
    second = [attempt for attempt in of(result.attempts, "stacks") if attempt.sample == 2]
    assert second and all(attempt.outcome in (Outcome.ABSENT, Outcome.EMPTY, Outcome.UNSUPPORTED) for attempt in second)
    assert not [line for line in result.incomplete if line.startswith("stacks")], "a target that has gone is an observation"


def test_between_two_samples_the_engine_comes_first(grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = grow(generic())
    turns: list[tuple[bool, int]] = []

    class Told(session.Priority):
        def prompt(self, wanted: bool) -> None:
            if not turns or turns[-1][0] != wanted:
                turns.append((wanted, time.time_ns()))
            super().prompt(wanted)

    monkeypatch.setattr(session, "Priority", Told)
    result = capture(CaptureOptions(pids=(tree.root,), out=tmp_path / "out", window_s=0.0, keep_directory=True))
    assert [wanted for wanted, _ in turns[:4]] == [True, False, True, False]
    first, second = ([a for a in of(result.attempts, "stacks") if a.sample == sample] for sample in (1, 2))
    lowered, raised = turns[1][1], turns[2][1]
    assert max(a.ended_ns for a in first) <= lowered < raised
    assert raised <= max(a.ended_ns for a in second), "on a full host it may come late, but not after the look"


def test_somebody_left_stopped_is_noticed(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    stop = f"sample_all('stacks'); os.kill({tree.pids['rank0']}, signal.SIGSTOP)"
    result = take(tree, tmp_path, fakes(stacks=stop), window_s=0.0)
    note = next(attempt for attempt in result.attempts if attempt.target == "targets left running")
    assert note.outcome is Outcome.PARTIAL and str(tree.pids["rank0"]) in note.reason
    assert procfs.stat_of(tree.pids["rank0"]).state == "T", "not ours to continue"


def test_our_own_reader_killed_while_holding_a_target_is_undone(grow: Grow, tmp_path: Path) -> None:
    tree = grow(generic())
    hold = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); sample_all('stacks'); os.kill({tree.pids['rank0']}, signal.SIGSTOP); time.sleep(600)"
    result = take(tree, tmp_path, fakes(stacks=hold), window_s=0.0, deadline_s=2.0)
    note = next(attempt for attempt in result.attempts if attempt.target == "targets left running")
    assert "continued" in note.reason
    for _ in range(1000):
        if procfs.stat_of(tree.pids["rank0"]).state != "T":
            return
        threading.Event().wait(0.005)
    raise AssertionError("still stopped")


NOBODY = 65534
UNPRIVILEGED = ("--bounding-set", "-sys_ptrace,-dac_override,-dac_read_search,-sys_admin", "--inh-caps", "-all")


def test_without_permission_the_capture_goes_on_and_says_what_would_help(tmp_path: Path) -> None:
    """Processes of another user, seen without CAP_SYS_PTRACE."""
    python, setpriv = shutil.which("python3", path="/usr/bin:/bin"), shutil.which("setpriv")
    if os.geteuid() != 0 or not python or not setpriv:
        pytest.skip("needs root, setpriv and a python3 in /usr/bin, to start a process of another user")
    code = "import os, sys, time; print('ready', flush=True); os.fork() if sys.argv[-1] == '0' else None; time.sleep(600)"
    command = [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", python, "-c", code, "--rank", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/", start_new_session=True) as target:
        try:
            assert target.stdout and target.stdout.readline() == b"ready\n"
            capture_it = [sys.executable, "-m", "forensics", "capture", "--pid", str(target.pid), "--out", str(tmp_path), "--window", "0"]
            done = subprocess.run([setpriv, *UNPRIVILEGED, *capture_it], capture_output=True, text=True, timeout=100, check=False)
        finally:
            os.killpg(target.pid, signal.SIGKILL)
    assert done.returncode == 3, done.stderr
    assert "DENIED" in done.stderr and "CAP_SYS_PTRACE" in done.stderr and "Traceback" not in done.stderr
    told = packed_text(Path(done.stdout.splitlines()[-1]), "manifest.json")
    outcomes = {(attempt["collector"], attempt["outcome"]) for attempt in json.loads(told)["attempts"]}
    assert ("stacks", "DENIED") in outcomes
    assert {"memory", "clock", "process", "cpu"} <= {collector for collector, _ in outcomes}


def test_logs_alone_when_the_engine_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "old.log"
    log.write_text("(EngineCore pid=7) ERROR it died\n")
    (tmp_path / "root" / "proc").mkdir(parents=True)
    told: list[dict[str, Any]] = []
    script = "attempt('node'); say(type='evidence', name='rpclogs/options.json', kind='log', text=json.dumps(request['options']))"
    result = capture(
        CaptureOptions(
            logs=(log,), out=tmp_path / "out", sysroot=str(tmp_path / "root"), keep_directory=True, command=fakes(rpclogs=script)
        )
    )
    told.append(json.loads(packed_text(result.path, "rpclogs/options.json")))
    assert told[0]["logs"] == [str(log)] and result.engines == ()
    assert {attempt.collector for attempt in result.attempts} >= {"discovery", "memory", "kernel", "rpclogs"}
    assert not {attempt.collector for attempt in result.attempts} & {"stacks", "queues"}


def test_nothing_to_photograph(tmp_path: Path) -> None:
    (tmp_path / "root" / "proc").mkdir(parents=True)
    with pytest.raises(NothingFound) as caught:
        capture(CaptureOptions(out=tmp_path / "out", sysroot=str(tmp_path / "root")))
    assert "vllm serve" in caught.value.message and "torchrun" in caught.value.message and "--log" in caught.value.cure
    assert caught.value.exit_code == 4
    assert not list((tmp_path / "out").iterdir())


def test_output_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(OutputUnusable) as caught:
            capture(CaptureOptions(out=out, sysroot="/nonexistent"))
        assert "--out" in caught.value.cure and caught.value.exit_code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "nope"},
        {"profile": "nope"},
        {"deadline_s": 0.0},
        {"logs": (Path("/nonexistent/log"),)},
        {"patches": Path("/nonexistent/patches.toml")},
        {"patches": Path(__file__)},
    ],
)
def test_options_that_cannot_be_meant(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadRequest) as caught:
        capture(CaptureOptions(out=tmp_path, **wrong))
    assert caught.value.cure and caught.value.exit_code == 2


def test_patches_reach_the_collector_and_the_bundle(grow: Grow, tmp_path: Path) -> None:
    toml = tmp_path / "patches.toml"
    toml.write_text('[[patch]]\nname = "p"\nmodule = "a.b"\ncontains = "x"\n')
    script = "attempt('node'); say(type='evidence', name='patches/seen.json', kind='patch-witness', text=json.dumps(request['options']))"
    result = take(grow(generic()), tmp_path, fakes(patches=script), window_s=0.0, patches=toml)
    assert json.loads(packed_text(result.path, "patches/seen.json"))["patches"] == [{"name": "p", "module": "a.b", "contains": "x"}]
    assert packed_text(result.path, "patches/patches.toml") == toml.read_text()
