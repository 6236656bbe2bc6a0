"""A limit was raised: whatever stands still is noticed that much later, and no sooner cured."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import settings
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.settings.risks import raised
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole


def evaluate(view: View) -> Iterator[Finding]:
    if view.stall is None and not view.events("timeout", "hang"):
        return
    for setting in settings.of_engine(view):
        in_force = [r for r in setting.readings if r.via == setting.via and (not setting.value or r.value == setting.value)]
        if (found := raised(setting.name, [r.value for r in in_force])) is None:
            continue
        value, default = found
        yield view.finding(
            "time-limit-raised",
            grade(observed=True),
            title=f"{setting.name} is {duration(value)}, its default is {duration(default)}",
            because=[r.ref for r in in_force[:4]],
            role=FindingRole.CONTEXT,
            does_not_show="that the limit did harm: it only says when a standstill is noticed, not whether there is one",
        )


TEXTS = {
    "time-limit-raised": Text(
        says="A limit on work under way is above its default. For a deadlock that only delays the symptom, and the capture with it.",
        establishes="The limit's value in the command line, environment or log, and something that stood still.",
        next_steps=("put it back: a higher limit delays the line that names the standstill, and cures nothing",),
    ),
}

RULE = Rule(
    name="time_limits",
    texts=TEXTS,
    about="A limit on work under way is above its default, and something stood still.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Long limits are legitimate where single steps are long; the finding is a circumstance, never a cause.",
    references=("vllm envs.py", "SGLang server_args.py watchdog_timeout", "torch ProcessGroupNCCL.hpp"),
)
