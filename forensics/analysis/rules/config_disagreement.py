"""A setting of which two places say two things: what was asked for is not what runs, or ranks run with different values."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import settings
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity

MOST = 8


def evaluate(view: View) -> Iterator[Finding]:
    known = settings.of_engine(view)
    if not any(len({(r.via, r.asked) for r in s.readings}) > 1 or len(s.readings) > 1 for s in known):
        raise CannotTell("no setting was read in two places", "live objects of the core", "the log's start-up lines")
    differing = [s for s in known if s.disagreement]
    for s in differing[:MOST]:  # all of them stand in the configuration
        among = len({r.value for r in s.readings if r.via == s.via}) > 1
        yield view.finding(
            "config-disagreement",
            grade(observed=True),
            title=f"{s.name}: {s.disagreement}",
            because=s.disagreeing,
            severity=Severity.WARNING if among else Severity.INFO,
            role=FindingRole.CONTEXT,
            does_not_show="that it harms: what was asked for may have been changed on purpose, by the engine or by a plugin",
        )


TEXTS = {
    "config-disagreement": Text(
        says="Two places state different values of one setting, or ranks run with different ones. Context: it may be on purpose.",
        establishes="Both places were read: live object, log, command line or environment.",
        next_steps=("believe the running object: log and command line say what was asked for",),
    ),
}

RULE = Rule(
    name="config_disagreement",
    texts=TEXTS,
    about="Two places state different values of one setting, or ranks run with different ones.",
    any_of=("objects", "log", "process"),
    evaluate=evaluate,
    false_positives="What every process has of its own (ports, ranks, devices) is not compared, nor a word that stands for another (auto).",
    references=("vllm entrypoints: the line of non-default args; v1/engine/core.py: the line of the core's configuration",),
)
