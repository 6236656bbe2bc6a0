"""The incident store: what counts as the same cause, what as the same incident, and what happens to a store that is broken."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from forensics.cli.history import evidence_keys, with_history
from forensics.history import HistoryError, Store, fingerprint, from_report, state_file
from forensics.model import Build, EngineReport, EvidenceRef, Finding, FindingRole, Grade, Report, Root, Severity, Verdict
from forensics.report import render

SECOND = 10**9
T0 = 1_788_256_800 * SECOND
REF = EvidenceRef(source="server.log", locator="line 1", quote="x")
RAISED = (
    "rank {rank} (worker TP{rank}, pid {pid} on {node}) raised {error} in prepare_inputs (connector.py:{line}) at 2026-09-0{day}T10:00:00Z"
)


def report(
    *,
    rank=1,
    pid=4243,
    node="gpu-1",
    day=1,
    line=25,
    error="RuntimeError",
    finding="worker-exception-swallowed",
    torch="2.8.0",
    state="dead",
) -> Report:
    at_ns = T0 + (day - 1) * 86400 * SECOND
    root = Root(finding=finding, grade=Grade.ESTABLISHED, node=node, rank=rank, pid=pid, since_ns=at_ns) if finding else Root()
    verdict = Verdict(state=state, sentence=f"It is {state}.")
    builds = (Build(component="vllm", version="0.10.1", via="metadata"), Build(component="torch", version=torch, via="metadata"))
    engine = EngineReport(
        id="e0", kind="vllm", verdict=verdict, root=root, coverage=msgspec.convert({}, _coverage()), nodes=(node,), builds=builds
    )
    claim = Finding(
        id=finding or "engine-stalled",
        grade=Grade.ESTABLISHED,
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        title=RAISED.format(rank=rank, pid=pid, node=node, error=error, line=line, day=day),
        because=(REF,),
        engine="e0",
        nodes=(node,),
        ranks=(rank,),
        pids=(pid,),
    )
    return Report(verdict=verdict, root=root, engines=(engine,), findings=(claim,), inputs=(f"{node}.tar.gz",))


def _coverage():
    from forensics.model import Coverage

    return Coverage


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("FORENSICS_STATE_DIR", str(tmp_path / "state"))
    return Store()


def put(store: Store, made: Report, *evidence: str):
    incident = from_report(made, evidence)
    assert incident is not None
    return store.record(incident, evidence)


def seen(store: Store, made: Report, *evidence: str):
    incident = from_report(made, evidence)
    assert incident is not None
    return store.seen_before(incident, evidence)


# ---- the same cause


@pytest.mark.parametrize(
    "other",
    [{"rank": 3}, {"pid": 99}, {"node": "decode-7.example.com"}, {"day": 5}, {"line": 31}, {"rank": 12, "pid": 1, "node": "b", "day": 3}],
    ids=str,
)
def test_who_where_and_when_are_not_part_of_it(other):
    assert fingerprint(report(**other)) == fingerprint(report())


@pytest.mark.parametrize("other", [{"error": "queue.Full"}, {"finding": "worker-exception-fatal"}], ids=str)
def test_another_mechanism_is_another_cause(other):
    mine, others = fingerprint(report()), fingerprint(report(**other))
    assert mine and others and mine.cause != others.cause and mine.fingerprint != others.fingerprint


def test_other_versions_are_another_fingerprint_of_the_same_cause():
    mine, others = fingerprint(report()), fingerprint(report(torch="2.9.0"))
    assert mine and others and mine.cause == others.cause and mine.fingerprint != others.fingerprint
    assert mine.versions == {"vllm": "0.10.1", "torch": "2.8.0"}
    assert mine.names == ("RuntimeError", "connector.py", "prepare_inputs")


def test_it_is_the_same_in_every_run_of_this_version():
    made = fingerprint(report())
    assert made and (made.fingerprint, made.cause) == ("9d244690902a", "cb257376f9bc")


def test_where_no_root_is_named_nothing_is_the_same(store):
    made = report(finding=None, state="stalled")
    assert fingerprint(made) is None
    put(store, made, "a")
    put(store, report(finding=None, state="stalled", day=2), "b")
    assert seen(store, made, "c") is None
    assert len(store.incidents()) == 2


@pytest.mark.parametrize("state", ["healthy", "starting", "stopped", "unknown"])
def test_what_is_well_is_no_incident(state):
    assert from_report(report(finding=None, state=state)) is None


# ---- the same incident


def test_seen_before_counts_the_others(store):
    for day in (1, 2, 4):
        put(store, report(day=day, pid=day), f"bundle{day}")
    put(store, report(day=3, pid=7, torch="2.9.0"), "bundle3")
    found = seen(store, report(day=6, pid=9), "bundle6")
    assert (found.times, found.last_ns) == (3, T0 + 3 * 86400 * SECOND)
    assert (found.other_versions, found.other_last_ns) == (1, T0 + 2 * 86400 * SECOND)
    told = msgspec.structs.replace(report(day=6), seen_before=found)
    words = "seen before: 3 times, last on 2026-09-04; with other versions once, last on 2026-09-03"
    for fmt in ("terminal", "markdown", "html"):
        assert words in render(told, fmt).replace("\\", "")
    assert json.loads(render(told, "json"))["seen_before"]["times"] == 3


def test_the_same_evidence_is_the_same_incident_even_when_better_rules_find_another_root(store):
    first = put(store, report(), "bundle")
    again = put(store, report(finding="bounded-queue-overflow", error="queue.Full"), "bundle", "second-node")
    assert again.id == first.id
    assert [i.finding for i in store.incidents()] == ["bounded-queue-overflow"]
    assert seen(store, report(finding="bounded-queue-overflow", error="queue.Full"), "second-node").times == 0


def test_a_second_photograph_of_one_standstill_is_no_second_incident(store):
    put(store, report(), "first")
    assert seen(store, report(), "second").times == 0
    put(store, report(), "second")
    assert len(store.incidents()) == 1
    put(store, report(pid=5000), "third")  # started again, and broke again
    assert len(store.incidents()) == 2


def test_a_packed_bundle_and_its_folder_are_one_evidence_and_another_capture_is_not(tmp_path):
    from tests.analysis.scene import Scene

    folder = Scene(tmp_path / "a").bundle()
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    other = Scene(tmp_path / "b", node="beta3").bundle()
    assert evidence_keys([str(folder)]) == evidence_keys([str(packed)]) != evidence_keys([str(other)])


def test_a_log_that_has_grown_is_other_evidence(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("INFO one\n")
    before = evidence_keys([str(log)])
    assert before == evidence_keys([str(log)]) and len(before) == 1
    log.write_text("INFO one\nINFO two\n")
    assert evidence_keys([str(log)]) != before
    assert evidence_keys(["-"]) == []


# ---- at once


WRITER = """
import sys
from pathlib import Path
from tests.history.test_history import report
from forensics.history import Store, from_report
me = int(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for n in range(10):
    made = report(pid=1 + 100 * me + n, day=1 + n % 9)
    key = f"bundle-{me}-{n}"
    Store().record(from_report(made, [key]), [key])
"""


def test_processes_that_record_at_once_lose_nothing(store):
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        for n in range(4)
    ]
    try:
        for w in writers:
            assert w.stdout and w.stdout.readline() == "ready\n"
        for w in writers:
            assert w.stdin
            w.stdin.write("go\n")
            w.stdin.flush()
        assert [w.wait(120) for w in writers] == [0] * 4
    finally:
        for w in writers:
            w.kill()
            w.communicate()
    assert len(store.incidents()) == 40
    assert seen(store, report(pid=1, day=20 % 9), "fresh").times == 40


# ---- trouble


def test_the_file_is_the_operators_alone(store):
    put(store, report(), "a")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_the_state_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("FORENSICS_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_file() == tmp_path / "forensics" / "history.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_file() == tmp_path / "home" / ".local" / "state" / "forensics" / "history.sqlite"


def corrupt(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database at all, and it is longer than a header of one hundred bytes would be" * 3)


def newer(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("CREATE TABLE t (x)")


def not_a_folder(path: Path) -> None:
    path.parent.write_text("a file where the state directory should be")


def damaged_row(path: Path) -> None:
    put(Store(path), report(), "a")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE incidents SET versions = '{broken'")


@pytest.mark.parametrize("break_it", [corrupt, newer, not_a_folder])
def test_a_store_that_cannot_be_used_never_costs_the_report(store, break_it):
    break_it(store.path)
    kept = store.path.read_bytes() if store.path.is_file() else None
    made, trouble = with_history(report(), [], keep=True)
    assert made.verdict == report().verdict and made.seen_before is None
    assert str(store.path) in trouble and "not recorded" in trouble and "\n" not in trouble
    assert (store.path.read_bytes() if store.path.is_file() else None) == kept  # nothing was overwritten


def test_a_locked_store_is_said_after_a_while(store, monkeypatch):
    put(store, report(), "a")
    monkeypatch.setattr("forensics.history.store.WAIT_S", 0.05)
    with sqlite3.connect(store.path, isolation_level=None) as db:
        db.execute("BEGIN EXCLUSIVE")
        assert "locked" in with_history(report(day=2), [], keep=True)[1]
        db.execute("ROLLBACK")
    assert with_history(report(day=2), [], keep=True)[1] == ""


def test_a_row_that_somebody_damaged_is_said(store, capfd):
    damaged_row(store.path)
    with pytest.raises(HistoryError, match=r"history\.sqlite"):
        store.incidents()


def test_a_file_system_that_takes_nothing_and_a_full_one_are_said(store, monkeypatch):
    monkeypatch.setenv("FORENSICS_STATE_DIR", "/proc/forensics")  # nobody can make a folder there, root neither
    assert "not recorded" in with_history(report(), [], keep=True)[1]
    monkeypatch.setenv("FORENSICS_STATE_DIR", str(store.path.parent))
    put(store, report(), "a")
    grown = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    code = f"{grown}; from tests.history.test_history import *; print(with_history(report(day=2, pid=1), [], keep=True)[1])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0 and "not recorded" in done.stdout, done.stderr
    assert len(store.incidents()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_said_and_can_be_read(store):
    put(store, report(), "a")
    store.path.chmod(0o400)
    store.path.parent.chmod(0o500)
    try:
        made, trouble = with_history(report(day=2, pid=8), [], keep=True)
        assert "not recorded" in trouble and made.seen_before and made.seen_before.times == 1
    finally:
        store.path.parent.chmod(0o700)


# ---- the command


def forensics(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forensics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment})


def test_list_show_and_forget(store):
    assert "no incident is recorded" in forensics("history").stdout
    put(store, report(), "a")
    put(store, report(day=4, pid=5), "b")
    put(store, report(day=2, finding="host-oom-kill", error="\x1b[31mSystem_Exit\u202e", node="gpu-\x1b]0;owned\x07"), "c")
    listed = forensics("history").stdout
    assert listed.index("2026-09-04") < listed.index("2026-09-02") < listed.index("2026-09-01")
    assert max(map(len, listed.splitlines())) <= 80 and "\x1b" not in listed
    assert "2026-09-04" in (one := forensics("history", "--limit", "1").stdout) and "2026-09-01" not in one
    mark = fingerprint(report()).fingerprint
    shown = forensics("history", "show", mark[:8]).stdout
    assert shown.count("worker-exception-swallowed") == 2 and "torch 2.8.0" in shown and max(map(len, shown.splitlines())) <= 80
    whole = json.loads(forensics("history", "--format", "json").stdout)
    assert whole["schema"] == "forensics.history/1"
    assert [i["fingerprint"] == mark for i in whole["incidents"]] == [True, False, True]
    hostile = forensics("history", "show", whole["incidents"][1]["id"]).stdout
    assert "System_Exit" in hostile and "\x1b" not in hostile and "\u202e" not in hostile
    assert forensics("history", "forget", mark).stdout == "forgotten: 2 incidents\n"
    assert [i.finding for i in store.incidents()] == ["host-oom-kill"]
    assert forensics("history", "forget", mark).returncode == 4
    assert forensics("history", "show", "ab").returncode == 2


def test_analyze_records_a_capture_once_and_says_when_it_was_seen_before(store, tmp_path):
    from tests.analysis.scene import CORE_WAITS, IN_COLLECTIVE, Scene

    def stalled(name: str, at_s: float):
        scene = Scene(tmp_path / name, node=name)
        scene.hang(1, IN_COLLECTIVE)
        scene.everywhere(5200, CORE_WAITS)
        scene.traceback(at_s, "Worker_TP1", 5301, "Exception in thread Thread-3 (_offload):", "queue.Full")
        return str(scene.bundle())

    first, other = stalled("alpha7", -60), stalled("beta3", -30)
    made = json.loads(forensics("analyze", first, "--format", "json").stdout)
    assert made["root"]["finding"] and made["seen_before"]["times"] == 0
    again = json.loads(forensics("analyze", first, "--format", "json").stdout)
    assert again["seen_before"]["times"] == 0 and len(store.incidents()) == 1
    said = forensics("analyze", other, "--no-record").stdout
    assert "history    seen before: once, last on 2026-09-01" in said
    assert len(store.incidents()) == 1
    forensics("analyze", other)
    assert len(store.incidents()) == 2


def test_bare_logs_are_recorded_when_that_is_asked_for(store, tmp_path):
    log = tmp_path / "node0.log"
    log.write_text(
        "(Worker_TP1 pid=301) ERROR 09-01 10:00:00 [x.py:1] Traceback (most recent call last):\n"
        '(Worker_TP1 pid=301) ERROR 09-01 10:00:00 [x.py:1]   File "/opt/app/connector.py", line 40, in offload\n'
        "(Worker_TP1 pid=301) ERROR 09-01 10:00:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "(EngineCore_0 pid=300) ERROR 09-01 10:00:01 [core.py:1] EngineCore encountered a fatal error.\n"
    )
    forensics("analyze", str(log))
    assert store.incidents() == []
    forensics("analyze", str(log), "--record")
    assert len(store.incidents()) == 1


def test_hostile_numbers_and_damaged_archives_cost_no_report(store, tmp_path):
    made, trouble = with_history(report(pid=2**80), [], keep=True)
    assert made.verdict.state == "dead" and "not recorded" in trouble
    for name, head in (("a.log.gz", b"\x1f\x8b\x08\x00"), ("b.log.xz", b"\xfd7zXZ\x00"), ("c.log.bz2", b"BZh9")):
        (tmp_path / name).write_bytes(head + bytes(range(200)))
    paths = [str(tmp_path / n) for n in ("a.log.gz", "b.log.xz", "c.log.bz2", "gone.log")]
    assert with_history(report(), paths, keep=True)[1] == ""
