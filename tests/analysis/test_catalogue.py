"""The catalogue against what rules make, and the two commands that show it."""

from __future__ import annotations

import json
import re

import pytest

from forensics.analysis import catalogue
from forensics.analysis.compare import asymmetric
from forensics.analysis.rules import rules
from forensics.analysis.signatures import signatures
from forensics.cli.rules import INCOMPLETE, OK, USAGE, explain_command, rules_command

ENTRIES = catalogue.entries()


def test_every_id_stands_once_and_what_a_rule_makes_is_implemented():
    ids = [e.id for e in ENTRIES]
    assert len(ids) == len(set(ids))
    made = {id for rule in (*rules(), asymmetric.RULE) for id in rule.emits}
    assert made == {e.id for e in ENTRIES if e.status == "IMPLEMENTED"}
    assert all(re.fullmatch(r"(evidence-missing:)?[a-z0-9]+(-[a-z0-9]+)*", id) for id in ids)


def test_what_no_rule_makes_says_why_and_what_it_would_mean():
    for entry in ENTRIES:
        assert entry.text, entry.id
        assert bool(entry.reason) == (entry.rule is None)


def test_the_reason_goes_when_a_rule_comes():
    from forensics.analysis.rules import Rule

    own = Rule(name="recorder", emits=("input-overwritten",), about="A test.", evaluate=lambda view: [])
    entry = catalogue.find("input-overwritten", [own])
    assert entry and entry.status == "IMPLEMENTED" and not entry.reason and entry.text
    assert catalogue.find("input-overwritten").status == "UNIMPLEMENTED"


def test_what_needs_a_recorder_is_not_pretended():
    for id in ("shared-event-reuse", "input-overwritten"):
        entry = catalogue.find(id)
        assert entry.status == "IMPLEMENTED" or "recorder" in entry.reason


def test_every_signature_feeds_an_id_of_the_catalogue():
    known = {e.id for e in ENTRIES}
    assert {s.feeds for s in signatures()} <= known


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)
def test_every_finding_is_explained(entry, capsys):
    assert explain_command(entry.id, [], "text") == OK
    out = capsys.readouterr().out
    assert entry.id in out and entry.status in out and "means" in out and "established when" in out
    assert (entry.rule is None) or f"rule {entry.rule.name}:" in out
    assert explain_command(entry.id, [], "json") == OK
    told = json.loads(capsys.readouterr().out)
    assert told["says"] == entry.text.says and told["signatures"] == list(entry.signatures)


@pytest.mark.parametrize("id", ["evidence-missing:log/node1", "evidence-missing:SOURCE", "evidence-missing:ras"])
def test_forms_of_missing_evidence_are_explained(id, capsys):
    assert explain_command(id, [], "text") == OK
    assert "evidence-missing:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("id", "near"), [("engine-stald", "engine-stalled"), ("stalled", "engine-stalled"), ("zzz", ""), ("a\x1b[31m", "")]
)
def test_an_unknown_id_names_the_nearest_and_is_wrong_usage(id, near, capsys):
    assert explain_command(id, [], "text") == USAGE
    out, err = capsys.readouterr()
    assert not out and near in err and "\x1b" not in err


def test_rules_lists_every_id_with_its_status(capsys):
    assert rules_command([], [], "text") == OK
    out = capsys.readouterr().out
    for entry in ENTRIES:
        assert re.search(rf"^  {re.escape(entry.id)} +{entry.status} ", out, re.M), entry.id
    assert rules_command([], [], "json") == OK
    assert [f["id"] for f in json.loads(capsys.readouterr().out)["findings"]] == [e.id for e in ENTRIES]


def test_rules_of_inputs_tell_status_and_time(scene, capsys):
    bundle = str(scene().bundle())
    assert rules_command([bundle], [], "json") == OK
    told = json.loads(capsys.readouterr().out)["rules"]
    assert {r["rule"] for r in told} == {r.name for r in rules()}
    assert all(r["seconds"] is not None for r in told)
    assert rules_command([bundle], [], "text") == OK
    assert re.search(r"^serving +e0 +FIRED +[\d.]+ ms  ", capsys.readouterr().out, re.M)


def test_wrong_usage(tmp_path, capsys):
    assert rules_command([], [], "yaml") == USAGE
    assert rules_command([str(tmp_path / "no")], [], "text") == USAGE
    assert rules_command([str(tmp_path)], [], "text") == 4 and INCOMPLETE == 3
