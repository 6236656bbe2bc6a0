"""`forensics show` lists what lies in a bundle: sealed or cut, packed or not, and never acts on what stands in it."""

from __future__ import annotations

import pytest

from forensics.bundle import BundleWriter, NullRedactor
from forensics.cli.show import INCOMPLETE, NOT_A_BUNDLE, OK, show_command
from forensics.model import Attempt, Outcome

from .samples import at


@pytest.fixture
def writer(tmp_path):
    head = {"node": "gpu-a", "incident": "INC-7", "tool": "inference-forensics 0.1.0", "started_ns": at("10:00:00")}
    with BundleWriter(tmp_path, "gpu-a-20260901T100000Z", redactor=NullRedactor(), head=head) as bundle:
        bundle.add("stacks/pid-17.1.json", "pyspy-json", "[]", collector="stacks", pid=17, sample=1, source="py-spy dump --pid 17")
        bundle.add("rpclogs/evil\u202e.log", "log", "x" * 1234, collector="rpclogs", truncated=True, source="/var/log/\x1b[2J.log")
        bundle.attempt(
            Attempt(
                collector="stacks",
                target="pid 17",
                outcome=Outcome.OK,
                started_ns=at("10:00:00"),
                ended_ns=at("10:00:01", 250),
                sample=1,
                evidence=("stacks/pid-17.1.json",),
            )
        )
        bundle.attempt(Attempt(collector="kernel", target="node", outcome=Outcome.DENIED, reason="EPERM \x9b31m", cure="run as root"))
        yield bundle


def test_a_sealed_bundle(writer, capfd):
    writer.seal(ended_ns=at("10:00:30"), profile="standard")
    assert show_command(writer.path) == OK
    out, err = capfd.readouterr()
    assert err == ""
    for line in (
        "node        gpu-a",
        "captured    2026-09-01T10:00:00Z to 2026-09-01T10:00:30Z",
        "incident    INC-7",
        "attempts    2 (1 OK, 1 DENIED)",
    ):
        assert line in out.splitlines(), line
    assert "OK          stacks     pid 17                               sample 1    1.25 s" in out
    assert "DENIED      kernel     node" in out
    assert "EPERM \\x9b31m · cure: run as root" in out
    assert "stacks/pid-17.1.json  pid 17 · sample 1 · from py-spy dump --pid 17" in out
    assert "1,234  log" in out
    assert "cut · from /var/log/\\x1b[2J.log" in out
    assert "rpclogs/evil_.log: was cut at capture" in out
    assert all(c == "\n" or c.isprintable() for c in out)


def test_packed_it_shows_the_same(writer, capfd):
    writer.seal()
    assert show_command(writer.pack()) == OK
    assert "attempts    2 (1 OK, 1 DENIED)" in capfd.readouterr().out


def test_an_unsealed_one_shows_what_there_is_and_says_what_is_lost(writer, capfd):
    writer.close()
    assert show_command(writer.path) == INCOMPLETE
    out = capfd.readouterr().out
    assert "stacks/pid-17.1.json" in out
    assert "attempts    2" in out
    assert "\nnot whole " in out


def test_not_a_bundle(tmp_path, capfd):
    (tmp_path / "empty").mkdir()
    assert show_command(tmp_path / "empty") == NOT_A_BUNDLE
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("forensics show: ")
