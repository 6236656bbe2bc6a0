"""One rule at a time: what breaks stays with the rule, what it took is told only when asked, and advice is added where it is apt."""

from __future__ import annotations

import dataclasses

import pytest

from forensics.analysis import analyze, ingest, topology
from forensics.analysis.rules import Rule, Text
from forensics.analysis.run import advice, run_rule
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Grade, TimeRange
from forensics.report.json import to_json
from tests.analysis.scene import IN_STEP

REF = EvidenceRef(source="a", locator="line 1")
TEXT = Text(
    says="A claim made up for a test.", establishes="Nothing.", next_steps=("look",), while_lasts=("capture",), over_nodes=("all nodes",)
)


def told(view, **kw):
    yield view.finding("made-up", Grade.SUPPORTED, title="x", because=[REF], **kw)


RULE = Rule(name="made", texts={"made-up": TEXT}, about="A test.", evaluate=told)


@pytest.fixture
def view(scene):
    case = ingest.read_inputs([scene().bundle()])
    topology.build(case)
    return View(case, case.engines[0])


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words either")


def raising(error):
    def anywhere(view):
        raise error

    return anywhere


def endless(view):
    return endless(view)


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), MemoryError(), RecursionError("deep"), SystemExit(0), Wordless(), KeyError("k")])
@pytest.mark.parametrize("part", ["evaluate", "applies"])
def test_whatever_a_rule_raises_makes_it_errored_and_no_more(view, part, error):
    made, result = run_rule(dataclasses.replace(RULE, **{part: raising(error)}), view)
    assert not made and result.status.value == "ERRORED" and result.reason.startswith(type(error).__name__)


def test_a_rule_that_recurses_without_end_is_errored(view):
    assert run_rule(dataclasses.replace(RULE, evaluate=endless), view)[1].reason.startswith("RecursionError")


def test_a_source_that_cannot_be_told_breaks_only_the_rule_that_asks_for_it(view, monkeypatch):
    monkeypatch.setattr(View, "outcome", raising_outcome)
    assert run_rule(dataclasses.replace(RULE, requires=("log",)), view)[1].status.value == "ERRORED"
    assert run_rule(RULE, view)[1].status.value == "FIRED"


def raising_outcome(self, source):
    raise RuntimeError("the grid is torn")


def test_what_is_no_finding_is_errored(view):
    assert run_rule(dataclasses.replace(RULE, evaluate=lambda view: ["made-up"]), view)[1].status.value == "ERRORED"


def test_an_interrupt_is_not_held_up(view):
    with pytest.raises(KeyboardInterrupt):
        run_rule(dataclasses.replace(RULE, evaluate=raising(KeyboardInterrupt())), view)


def test_a_rule_emits_what_it_has_texts_for():
    assert RULE.emits == ("made-up",)


def test_a_finding_without_steps_of_its_own_gets_those_of_its_text(view):
    assert run_rule(RULE, view)[0][0].next_steps == ("look", "capture")
    own = dataclasses.replace(RULE, evaluate=lambda v: told(v, next_steps=["mine"]))
    assert run_rule(own, view)[0][0].next_steps == ("mine", "capture")


def test_what_is_refuted_is_no_ground_for_advice(view):
    refuted = dataclasses.replace(RULE, evaluate=lambda v: [v.finding("made-up", Grade.REFUTED, title="x", because=[REF], against=[REF])])
    assert run_rule(refuted, view)[0][0].next_steps == ()


def test_advice_for_all_nodes_is_given_where_there_are_several_and_it_lasts(view):
    over = TimeRange(earliest_ns=1, latest_ns=2, basis="logged")
    lasting, ended = next(iter(told(view))), next(iter(told(view, until=over)))
    assert advice(RULE, lasting, over_nodes=True) == ("look", "capture", "all nodes")
    assert advice(RULE, lasting, over_nodes=False) == ("look", "capture")
    assert advice(RULE, ended, over_nodes=True) == ("look",)


def test_an_engine_on_one_node_is_not_told_to_restart_its_nodes_together(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    stalled = tell(s).by_id["engine-stalled"]
    assert any("capture every node" in step for step in stalled.next_steps)
    assert not any("all nodes of the engine together" in step for step in stalled.next_steps)


def test_an_engine_over_two_nodes_is(scene, tell):
    s = scene()
    s.lines[0] = s.lines[0].replace("'tensor_parallel_size': 2", "'tensor_parallel_size': 2, 'nnodes': 2")
    s.hang(1, IN_STEP)
    told = tell(s)
    assert told.report.coverage.unseen_node_count == 1
    steps = told.by_id["engine-stalled"].next_steps
    assert any("all nodes of the engine together" in step for step in steps)
    assert any("rendezvous race" in step for step in steps)


def test_times_are_told_when_asked_and_left_out_otherwise(scene):
    bundle = scene().bundle()
    assert to_json(analyze([bundle])) == to_json(analyze([bundle]))
    assert all(r.seconds is None for r in analyze([bundle]).rules)
    assert all(r.seconds is not None and r.seconds >= 0 for r in analyze([bundle], timing=True).rules)
