"""What holds for every rule, whoever wrote it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from forensics.analysis.catalogue import entries
from forensics.analysis.rules import SOURCES, rules
from forensics.analysis.signatures import signatures

TOY = re.compile(r"toy|ple_connector|kv-transfer-writer|ple-offload", re.I)


def code_lines(source: str) -> int:
    """Lines of a rule without the texts of its findings and the empty line after them."""
    import ast

    texts = [n for n in ast.parse(source).body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "TEXTS"]
    return len(source.splitlines()) - sum((n.end_lineno or n.lineno) - n.lineno + 2 for n in texts)


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.name)
def test_every_finding_of_a_rule_is_explained(rule):
    for entry in [e for e in entries() if e.rule is rule]:
        text = entry.text
        assert text, f"{entry.id} has no text in {rule.name}.py"
        assert text.says.endswith(".") and text.establishes.endswith(".") and len(text.says) > 20
        assert not text.lower or text.lower.endswith(".")
        assert text.false_positives or rule.false_positives
        for step in (*text.next_steps, *text.while_lasts, *text.over_nodes):
            assert not step.endswith("."), step
    assert set(rule.texts) <= set(rule.emits)


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.name)
def test_a_rule_is_a_document(rule):
    path = Path(inspect.getsourcefile(rule.evaluate) or "")
    assert rule.name == path.stem
    assert rule.emits and rule.about.endswith(".")
    assert {*rule.requires, *rule.any_of, *rule.optional} <= set(SOURCES)
    assert code_lines(path.read_text()) <= 180
    assert not TOY.search(path.read_text())


def test_no_two_rules_emit_the_same_finding():
    seen: dict[str, str] = {}
    for rule in rules():
        for id in rule.emits:
            assert seen.setdefault(id, rule.name) == rule.name


def test_a_rule_that_makes_an_undeclared_finding_is_errored(scene, monkeypatch):
    import dataclasses

    from forensics.analysis import analyze, engine
    from forensics.model import EvidenceRef, Grade

    def odd(view):
        yield view.finding("made-up", Grade.POSSIBLE, title="x", because=[EvidenceRef(source="a", locator="b")])

    monkeypatch.setattr(engine, "rules", lambda: (dataclasses.replace(rules()[0], evaluate=odd, requires=(), any_of=()),))
    report = analyze([scene().bundle()])
    assert [r.status.value for r in report.rules] == ["ERRORED"]
    assert not report.findings


def test_a_finding_without_evidence_cannot_be_made(scene):
    from forensics.analysis import ingest, topology
    from forensics.analysis.view import View
    from forensics.model import Grade

    case = ingest.read_inputs([scene().bundle()])
    topology.build(case)
    with pytest.raises(ValueError, match="because"):
        View(case, case.engines[0]).finding("engine-stalled", Grade.ESTABLISHED, title="x", because=[])


def test_every_signature_feeds_a_finding_of_the_catalogue_s_shape():
    for signature in signatures():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", signature.feeds)
