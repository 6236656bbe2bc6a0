"""`forensics analyze`: what goes to stdout, what to stderr, what into files, and which exit status each case has."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from forensics.analysis.ingest import NothingToAnalyze
from forensics.cli.analyze import FOUND, INCOMPLETE, NOTHING, OK, USAGE, analyze_command, fails, incomplete
from forensics.model import Outcome, Report, RuleStatus
from forensics.report import render

from .hostile import PAYLOADS, poisoned
from .samples import SAMPLES


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """run(report, …) analyses a stand-in path, with `report` as what the analysis makes of it: (status, stdout, stderr)."""

    def call(report: Report | Exception, *, out=None, fmt="terminal", fail_on=None, path="node0.log"):
        def analyze(paths, *, signature_folders=(), hypotheses=(), own_rules=None, timing=False):
            assert list(paths) == [str(tmp_path / path)] and not signature_folders
            if isinstance(report, Exception):
                raise report
            return report

        (tmp_path / path).write_text("x")
        monkeypatch.setattr("forensics.analysis.analyze", analyze)
        monkeypatch.setattr("forensics.cli.history.with_history", lambda report, paths, *, keep: (report, ""))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        status = analyze_command([str(tmp_path / path)], out, fmt, fail_on)
        return (status, *capfd.readouterr())

    return call


def test_an_unknown_hypothesis_is_wrong_usage_and_names_the_known_ones(tmp_path, capfd):
    (tmp_path / "a.log").write_text("x")
    for name in ("gremlins", "patch", "patch:", "memory:more"):
        assert analyze_command([str(tmp_path / "a.log")], None, "json", None, (), [name]) == USAGE
        out, err = capfd.readouterr()
        assert out == "" and repr(name) in err
        assert "cpu, memory, power, thermal, network, overload, patch:NAME" in err


@pytest.mark.parametrize("fmt", ["terminal", "json", "markdown", "html"])
def test_the_report_alone_goes_to_stdout(run, fmt):
    status, out, err = run(SAMPLES["healthy"](), fmt=fmt)
    assert status == OK
    assert out == render(SAMPLES["healthy"](), fmt)
    assert err == ""


def test_out_writes_private_files_and_still_prints(run, tmp_path):
    folder = tmp_path / "deep" / "reports"
    _, out, err = run(SAMPLES["stalled"](), out=folder)
    assert out == render(SAMPLES["stalled"](), "terminal")
    assert str(folder / "report.html") in err
    assert sorted(os.listdir(folder)) == ["report.html", "report.json", "report.md", "stacks.folded", "waits.dot"]
    for name, fmt in (("report.json", "json"), ("report.md", "markdown"), ("report.html", "html")):
        assert (folder / name).read_text(encoding="utf-8") == render(SAMPLES["stalled"](), fmt)
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


def test_out_replaces_an_old_report_and_never_writes_through_a_link(run, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").symlink_to(victim)
    (tmp_path / "out" / "report.md").write_text("old")
    run(SAMPLES["healthy"](), out=tmp_path / "out")
    assert victim.read_text() == "untouched"
    assert json.loads((tmp_path / "out" / "report.json").read_text())["verdict"]["state"] == "healthy"
    assert (tmp_path / "out" / "report.md").read_text().startswith("**Seen:** ")


def test_an_out_that_cannot_be_written_loses_nothing_that_was_found(run, tmp_path):
    (tmp_path / "file").write_text("")
    status, out, err = run(SAMPLES["healthy"](), out=tmp_path / "file" / "below", fmt="json")
    assert status == FOUND
    assert json.loads(out)["verdict"]["state"] == "healthy"
    assert "cannot be written" in err


def test_a_capture_that_lacks_something_exits_3_and_says_what(run):
    status, _, err = run(SAMPLES["one_node_unseen"](), fmt="json")
    assert status == INCOMPLETE
    for words in (
        "ranks 4-7 not seen",
        "node gpu-b not seen",
        "1 node(s) of unknown name",
        "stacks of ranks 0-3 on gpu-a: DENIED",
        "cure: run as root",
        "gpu of gpu-a: TIMEOUT",
        "lost: gpu-a-20260901T120000Z.tar.gz: truncated",
    ):
        assert words in err, words


def test_bare_logs_promised_nothing(run):
    report = msgspec.structs.replace(SAMPLES["dead"](), rules=(), meta={})
    status, _, err = run(report)
    assert status == OK
    assert "not read: node0.notes.bin: not recognised" in err
    # but what was there and was lost is said
    status, _, err = run(msgspec.structs.replace(report, unread=("node0.log: PermissionError",)))
    assert status == INCOMPLETE
    assert "lost: node0.log: PermissionError" in err
    # what was bounded on purpose is not lost
    assert run(msgspec.structs.replace(report, unread=("log/a.log: was cut at capture",)))[0] == OK
    # and a rule that broke is our defect, whatever the input
    assert run(SAMPLES["dead"]())[0] == INCOMPLETE


def test_what_a_capture_never_tried_by_choice_is_complete():
    report = SAMPLES["healthy"]()
    cell = report.coverage.cells[0]

    def gaps(outcome, reason):
        cells = (msgspec.structs.replace(cell, outcome=outcome, reason=reason),)
        coverage = msgspec.structs.replace(report.coverage, cells=cells)
        return incomplete(msgspec.structs.replace(report, coverage=coverage, engines=()), captured=True)

    assert gaps(Outcome.OK, "") == []
    assert gaps(Outcome.ABSENT, "no such device") == []
    assert gaps(Outcome.SKIPPED, "never collected") == []
    assert gaps(Outcome.SKIPPED, "not part of profile minimal") == []
    assert gaps(Outcome.SKIPPED, "the deadline of 60 s was reached") == [
        "stacks of rank 0 on gpu-a: SKIPPED · the deadline of 60 s was reached"
    ]
    assert gaps(Outcome.FAILED, "ValueError") == ["stacks of rank 0 on gpu-a: FAILED · ValueError"]


def test_fail_on_counts_problems_of_that_grade_or_firmer(run):
    for name, grade, expected in (
        ("stalled", "established", True),
        ("healthy", "possible", False),
        ("many_ranks", "supported", True),
        ("many_ranks", "established", False),  # its established finding only informs
        ("unknown", "possible", False),
    ):
        assert fails(SAMPLES[name](), grade) is expected, (name, grade)
    assert run(SAMPLES["stalled"](), fail_on="established")[0] == FOUND
    assert run(SAMPLES["healthy"](), fail_on="possible")[0] == OK


def test_wrong_usage_is_told_before_anything_is_read(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr("forensics.analysis.analyze", lambda paths: pytest.fail("was analysed"))
    (tmp_path / "a.log").write_text("x")
    here = str(tmp_path / "a.log")
    for paths, fmt, fail_on, words in (
        ([here], "sarif", None, "unsupported report format 'sarif': this version writes terminal, json, markdown, html"),
        ([here], "json", "certain", "--fail-on 'certain': expected one of possible, supported, established"),
        ([here, str(tmp_path / "gone")], "json", None, f"no such file or directory: {tmp_path / 'gone'}"),
        ([], "json", None, "nothing was given"),
    ):
        assert analyze_command(paths, None, fmt, fail_on) == USAGE
        out, err = capfd.readouterr()
        assert out == ""
        assert words in err


def test_nothing_recognisable_exits_4(run):
    status, out, err = run(NothingToAnalyze("nothing to analyse in x: \x1b[2J"))
    assert (status, out) == (NOTHING, "")
    assert "nothing to analyse in x: \\x1b[2J" in err


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_stderr_is_as_safe_as_the_report(run, payload):
    report = poisoned(SAMPLES["one_node_unseen"](), payload)
    _, out, err = run(report)
    for text in (out, err):
        assert all(c == "\n" or c.isprintable() or c in "\u00a0" for c in text)


@pytest.mark.parametrize("fmt", ["terminal", "html"])
def test_a_reader_that_leaves_early_is_no_error(tmp_path, fmt):
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import forensics.analysis\n"
        "from report.samples import stalled\n"
        "forensics.analysis.analyze = lambda paths, **kw: stalled()\n"
        "from forensics.cli.analyze import analyze_command\n"
        "sys.stdin.read()\n"  # until the other end of stdout is closed
        "sys.exit(analyze_command([sys.argv[1]], Path(sys.argv[2]), sys.argv[3], None))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path), fmt],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) in (OK, INCOMPLETE)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    assert (tmp_path / "report.html").is_file()


def test_statuses_are_those_of_the_documented_table():
    assert (OK, FOUND, USAGE, INCOMPLETE, NOTHING) == (0, 1, 2, 3, 4)
    assert RuleStatus.ERRORED.value == "ERRORED"
