"""Run rules over one engine: what is missing, what broke, how long it took, and the advice that goes with each finding."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from forensics.analysis.rules import CannotTell, Rule
from forensics.analysis.view import View
from forensics.model import Finding, Grade, Outcome, RuleResult, RuleStatus

_REASON_CHARS = 500


def run_rules(view: View, which: Sequence[Rule]) -> tuple[list[Finding], list[RuleResult]]:
    """Run rules over one engine. A rule that breaks becomes ERRORED and the others go on."""
    findings: list[Finding] = []
    results = []
    for rule in which:
        made, result = run_rule(rule, view)
        findings += made
        results.append(result)
    return findings, results


def run_rule(rule: Rule, view: View) -> tuple[list[Finding], RuleResult]:
    """What one rule says. Nothing that it raises gets through, SystemExit of an operator's rule among it; only an interrupt does."""
    begun = time.perf_counter()
    try:
        made, status, reason, missing = _asked(rule, view)
        made = [_finished(f, rule, view) for f in made]
    except (Exception, SystemExit) as error:
        made, status, reason, missing = [], RuleStatus.ERRORED, said(error), ()
    took = time.perf_counter() - begun
    return made, RuleResult(
        rule=rule.name,
        status=status,
        engine=view.engine.id,
        reason=reason,
        missing=tuple(missing),
        origin=rule.origin,
        seconds=took if view.case.timing else None,
    )


def said(error: BaseException) -> str:
    """An exception in words; also one that cannot tell them."""
    try:
        return f"{type(error).__name__}: {error}"[:_REASON_CHARS]
    except Exception:
        return type(error).__name__


def _asked(rule: Rule, view: View) -> tuple[list[Finding], RuleStatus, str, Sequence[str]]:
    if reason := rule.applies(view):
        return [], RuleStatus.NOT_APPLICABLE, reason, ()
    outcomes = {s: view.outcome(s) for s in (*rule.requires, *rule.any_of)}
    readable = {s for s, o in outcomes.items() if o in (Outcome.OK, Outcome.PARTIAL, Outcome.EMPTY)}
    lacking = [s for s in rule.requires if s not in readable]
    if rule.any_of and not readable & set(rule.any_of):
        lacking += list(rule.any_of)
    if lacking:
        # no such source on this node: the question does not arise; anything else: nobody looked
        absent = all(outcomes[s] is Outcome.ABSENT for s in lacking)
        words = ", ".join(f"{s} {o.value if (o := outcomes[s]) else 'never collected'}" for s in dict.fromkeys(lacking))
        return [], RuleStatus.NOT_APPLICABLE if absent else RuleStatus.INCONCLUSIVE, words, () if absent else lacking
    try:
        made = list(rule.evaluate(view))
    except CannotTell as why:
        return [], RuleStatus.INCONCLUSIVE, str(why), why.missing
    if undeclared := {f.id for f in made if f.id.split("/")[0] not in rule.emits}:
        return [], RuleStatus.ERRORED, f"made findings that it does not declare: {', '.join(sorted(undeclared))}", ()
    if made:
        return made, RuleStatus.FIRED, ", ".join(dict.fromkeys(f.id for f in made)), ()
    partial = [s for s in rule.requires if not (o := outcomes[s]) or not o.seen]
    if rule.any_of and not any((o := outcomes[s]) and o.seen for s in rule.any_of):
        partial += list(rule.any_of)
    if partial:
        return [], RuleStatus.INCONCLUSIVE, "not all of it was seen: " + ", ".join(partial), partial
    return [], RuleStatus.CLEAR, "", ()


def _finished(finding: Finding, rule: Rule, view: View) -> Finding:
    """A finding with the advice of its text, and with the mark of an operator's rule."""
    if rule.origin:
        finding = msgspec.structs.replace(finding, origin=rule.origin, title=f"{finding.title} (by your own rule {rule.name})")
    if finding.grade.strength < Grade.POSSIBLE.strength:
        return finding
    steps = advice(rule, finding, over_nodes=_spans_nodes(view))
    return msgspec.structs.replace(finding, next_steps=steps) if steps != finding.next_steps else finding


def advice(rule: Rule, finding: Finding, *, over_nodes: bool) -> tuple[str, ...]:
    """What to do about a finding: its rule's own steps, else those of its text; and those that are apt as long as it lasts.

    over_nodes: the engine spans several nodes.
    """
    text = rule.texts.get(finding.id.split("/")[0])
    if text is None:
        return finding.next_steps
    lasts = finding.until is None
    own = finding.next_steps or text.next_steps
    return tuple(dict.fromkeys((*own, *(text.while_lasts if lasts else ()), *(text.over_nodes if lasts and over_nodes else ()))))


def _spans_nodes(view: View) -> bool:
    if not view.engine.id:
        return False
    seen = view.coverage
    return len(set(seen.expected_nodes)) + seen.unseen_node_count > 1
