"""The engine's own hang detector ended it: exit code 137 or SIGQUIT, and nobody ran out of memory."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import NO_LONGER_LIMIT, TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity, TimeRange

HARD = ("sglang-watchdog",)
FOLLOWS_S = 120.0
"""From a watchdog's line to the end that it asks for: 5 s, stacks and core dumps taken before."""


def evaluate(view: View) -> Iterator[Finding]:
    said = [h for h in view.feeding("tool-self-kill") if h.role == "cascade"]
    ended = said or _ended_by_watchdog(view)
    if not ended:
        return
    first = ended[0]
    hangs = [h for h in view.events("hang") if view.before(h, first)]
    crash = [] if hangs else [h for h in view.events("exception") if view.before(h, first)]
    ranks = sorted({h.rank for h in ended if h.rank is not None})
    why = "after an exception in one of its ranks"
    if hangs:
        why = f"after {duration(hangs[0].limit_s or 0.0)} without a step"
    elif not crash:
        why = "for a reason that stands in no line read"
    restarted = view.replaced_ns
    yield view.finding(
        "tool-self-kill",
        # without a line that says so, the order of watchdog and end is what tells
        grade(observed=True) if said else grade(observed=bool(hangs), agreeing=2),
        title=f"The engine ended itself at {iso(first.at.earliest_ns) if first.at else 'an unknown time'} {why}: nobody killed it",
        because=[*(h.ref for h in hangs[:2]), *(h.ref for h in crash[:1]), *(h.ref for h in ended[:4])],
        severity=Severity.WARNING,
        role=FindingRole.TEARDOWN,
        nodes=dict.fromkeys(h.node for h in ended),
        ranks=ranks,
        since=first.at,
        until=TimeRange(earliest_ns=restarted, latest_ns=restarted, basis="logged") if restarted else None,
        does_not_show="what the ranks waited for: exit code 137 is the detector's own doing here",
    )


def _ended_by_watchdog(view: View) -> list[LogHit]:
    """The end that follows a watchdog which does not merely report."""
    # before it could be soft, this watchdog always ended its engine, and did not print which it was
    hangs = [
        h for h in view.events("hang") if h.at and (h.fields.get("soft") == "False" or (h.signature in HARD and "soft" not in h.fields))
    ]
    for hang in hangs:
        after = [h for h in view.events("fatal") if h.at and hang.at and view.before(hang, h)]
        near = [h for h in after if h.at and hang.at and h.at.earliest_ns - hang.at.earliest_ns <= FOLLOWS_S * SECOND]
        if near:
            return near
    return []


TEXTS = {
    "tool-self-kill": Text(
        says="The engine's own hang detector ended it: exit 137 without any OOM.",
        establishes="The detector's own lines.",
        next_steps=(
            "take the stacks that it printed of every rank before it ended them",
            "look at what stood still before: the detector is the messenger",
            NO_LONGER_LIMIT,
        ),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="tool_self_kill",
    texts=TEXTS,
    about="The engine's hang detector or crash guard ended the engine.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="None for the detector's own lines; a watchdog that only reports (soft) ends nothing.",
    references=("TensorRT-LLM _torch/pyexecutor/hang_detector.py", "SGLang utils/watchdog.py"),
)
