"""Every rule on its own fixtures, on everybody else's, and without the evidence that it stands on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from forensics.analysis import NothingToAnalyze, analyze
from forensics.analysis.rules import rules
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, Report, RuleStatus, Severity
from tests.rules.exceptions import NEVER_CLEAR, NEVER_INCONCLUSIVE, NO_FIXTURE_FIRES, NOT_RECORDED
from tests.rules.families import fixtures

ALL = {fixture.name: fixture for fixture in fixtures()}
RULES = {rule.name: rule for rule in rules()}
MAKES = {id: rule.name for rule in rules() for id in rule.emits}
EVERYWHERE = ("execution-mode", "load-at-onset", "startup-completed", "evidence-missing:")
"""What a report repeats of any log: how it was started, what it carried, when it was ready, and what nobody collected."""
OF_WHAT_IS_NOT_THERE = tuple(id for id in MAKES if id.startswith("evidence-missing:"))
ONE_BY_ONE = 3
"""Of so many pieces of evidence each is taken away by itself; of a claim that stands on more, only all of them together."""


def test_no_two_fixtures_have_one_name() -> None:
    assert len(ALL) == len(fixtures())


# ---- everything has its fixtures


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_fixture_where_it_fires_one_where_it_is_clear_and_one_where_it_cannot_tell(rule: str) -> None:
    fires = [f for f in ALL.values() if any(MAKES[id] == rule for id in f.fires)]
    clear = [f for f in ALL.values() if rule in f.clear]
    unclear = [f for f in ALL.values() if rule in f.unclear]
    assert fires
    assert bool(clear) is (rule not in NEVER_CLEAR), "exactly the rules without such a fixture say why"
    assert bool(unclear) is (rule not in NEVER_INCONCLUSIVE), "exactly the rules without such a fixture say why"
    assert any(f.recorded for f in (*fires, *clear, *unclear)) is (rule not in NOT_RECORDED)


@pytest.mark.parametrize("id", MAKES)
def test_a_finding_that_a_rule_may_make_is_made_of_some_fixture(id: str) -> None:
    assert any(id in f.fires for f in ALL.values()) is (id not in NO_FIXTURE_FIRES)


# ---- what a fixture shows


@pytest.mark.parametrize("name", ALL)
def test_a_fixture_shows_what_it_is_there_for(reported: Callable[[str], Report], name: str) -> None:
    fixture, report = ALL[name], reported(name)
    grades = strongest(report.findings)
    assert {id: grades.get(id) for id in fixture.fires} == dict(fixture.fires)
    fired = {r.rule for r in report.rules if r.status is RuleStatus.FIRED}
    ended = {f.id for f in report.findings if f.until is not None}  # of an earlier life too, while rules are listed for the last
    assert {MAKES[id] for id in fixture.fires if id not in ended} <= fired
    statuses: dict[str, set[RuleStatus]] = {}
    for r in report.rules:
        statuses.setdefault(r.rule, set()).add(r.status)
    assert {rule: statuses[rule] for rule in fixture.clear} == {rule: {RuleStatus.CLEAR} for rule in fixture.clear}
    lacking = {r.rule: tuple(r.missing) for r in report.rules if r.status is RuleStatus.INCONCLUSIVE and r.rule in fixture.unclear}
    assert lacking == dict(fixture.unclear)


@pytest.mark.parametrize("name", ALL)
def test_nobody_else_says_a_word_of_it(reported: Callable[[str], Report], name: str) -> None:
    fixture, report = ALL[name], reported(name)
    assert not [r for r in report.rules if r.status is RuleStatus.ERRORED]
    said = {f.id for f in report.findings if f.grade is not Grade.REFUTED and not f.id.startswith(EVERYWHERE)}
    assert said <= {*fixture.fires, *fixture.also}
    assert fixture.also <= said, "nothing is declared that nobody says"


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].healthy])
def test_of_a_healthy_engine_nothing_is_said_to_have_broken(reported: Callable[[str], Report], name: str) -> None:
    report = reported(name)
    assert report.verdict.state in ("healthy", "starting", "stopped", "degraded" if "slow-progress" in ALL[name].fires else "healthy")
    assert report.root.finding is None
    broke = [f for f in report.findings if f.severity is Severity.CRITICAL or f.role in (FindingRole.ROOT, FindingRole.CASCADE)]
    symptoms = [
        f for f in broke if f.id.startswith("symptom-") and f.until is not None
    ]  # a line that was printed, and what it told is over
    assert not [f.title for f in broke if f.grade.strength >= Grade.SUPPORTED.strength and f not in symptoms]


@pytest.mark.parametrize("name", ALL)
def test_no_engine_is_both_well_and_dead(reported: Callable[[str], Report], name: str) -> None:
    report = reported(name)
    down = {e.id for e in report.engines if e.verdict.state in ("dead", "stalled")}
    well = {f.engine for f in report.findings if f.id in ("healthy-serving", "idle-healthy") and f.until is None}
    assert not down & well
    crashed = {f.engine for f in report.findings if f.id == "engine-died" and f.grade is Grade.ESTABLISHED}
    assert not crashed & {f.engine for f in report.findings if f.id == "no-crash-found"}


# ---- what a claim stands on


STANDS = [(name, id) for name in ALL for id in ALL[name].fires if id not in OF_WHAT_IS_NOT_THERE]


@pytest.mark.parametrize(("name", "id"), STANDS)
def test_a_claim_falls_with_its_evidence(reported: Callable[[str], Report], tmp_path: Path, name: str, id: str) -> None:
    made = [f for f in reported(name).findings if f.id == id]
    assert made
    (tmp_path / "whole").mkdir()
    paths = ALL[name].build(tmp_path / "whole")
    if 1 < len(refs := cited(made)) <= ONE_BY_ONE:
        for number, ref in enumerate(refs):
            left = without([ref], [copied(path, tmp_path / str(number)) for path in paths], id)
            assert claims(left) != claims(made), ref
    taken: set[tuple[str, str]] = set()
    left = made
    while max((f.grade.strength for f in left), default=-1) >= max(f.grade.strength for f in made):
        again = cited(left)
        assert taken.isdisjoint((r.source, r.locator) for r in again), "it stands on what is not there any more"
        taken |= {(r.source, r.locator) for r in again}
        left = without(again, paths, id)


def cited(findings: Sequence[Finding]) -> list[EvidenceRef]:
    return list(dict.fromkeys(ref for f in findings for ref in f.because))


def claims(findings: Sequence[Finding]) -> set[tuple[object, ...]]:
    """What is said: how sure, in which words, and on what it stands."""
    return {(f.grade, f.title, frozenset((r.source, r.locator, r.quote) for r in f.because)) for f in findings}


def strongest(findings: Sequence[Finding]) -> dict[str, str]:
    found: dict[str, Grade] = {}
    for f in findings:
        if f.id not in found or f.grade.strength > found[f.id].strength:
            found[f.id] = f.grade
    return {id: grade.value for id, grade in found.items()}


def copied(path: Path, where: Path) -> Path:
    where.mkdir(exist_ok=True)
    return Path(shutil.copytree(path, where / path.name) if path.is_dir() else shutil.copy2(path, where))


def without(refs: Sequence[EvidenceRef], paths: Sequence[Path], id: str) -> list[Finding]:
    """What is said under an id when this is taken out of the evidence."""
    for ref in refs:
        for file in (path / ref.source if path.is_dir() else path for path in paths):
            if file.is_file() and file.name == Path(ref.source).name:
                take_away(file, ref)
    try:
        return [f for f in analyze(paths).findings if f.id == id]
    except NothingToAnalyze:
        return []


def take_away(file: Path, ref: EvidenceRef) -> None:
    """Lines are blanked, so that the others keep their numbers; of anything else its whole file goes."""
    if place := re.fullmatch(r"lines? (\d+)(?:-(\d+))?", ref.locator):
        lines = file.read_text().split("\n")
        first, last = int(place[1]), int(place[2] or place[1])
        _, cut, end = ref.quote.partition(" … ")
        while cut and last < len(lines) and end not in lines[last - 1]:  # a traceback, told by its first line and its last
            last += 1
        lines[first - 1 : last] = [""] * (last - first + 1)
        file.write_text("\n".join(lines))
    elif file.name == "attempts.jsonl":
        # of a sealed bundle, the manifest says how they came out
        manifest = file.with_name("manifest.json")
        told = json.loads(manifest.read_text())
        told["attempts"] = [a for a in told["attempts"] if f"{a['collector']} {a['target']}" != ref.locator]
        manifest.write_text(json.dumps(told))
    else:
        file.unlink()
