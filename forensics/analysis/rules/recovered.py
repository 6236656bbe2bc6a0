"""Progress stopped with work outstanding, and came back: told with both edges, and no verdict about the present."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity

MOST = 8


def evaluate(view: View) -> Iterator[Finding]:
    if not view.progress.samples:
        raise CannotTell("no counter and no stats line was read", "metrics")
    for hole in episodes.holes(view)[-MOST:]:
        others = ["a long prompt was computed meanwhile: the cache is fuller after it"] if hole.prompt else []
        yield view.finding(
            "transient-stall-recovered",
            # without a line from inside, only the wait that a process reports tells of the standstill
            grade(observed=hole.seen, alternatives=others, agreeing=0 if others else 2) if not others else grade(),
            title=f"Progress stopped for {duration(hole.seconds)} with requests held, and came back by itself",
            because=hole.refs,
            severity=Severity.WARNING,
            role=FindingRole.CONTEXT,
            since=hole.since,
            until=hole.until,
            does_not_show="; ".join(others) or "what held it up: a line at its beginning says more than this",
        )


TEXTS = {
    "transient-stall-recovered": Text(
        says="Progress stopped while requests were held, and came back by itself.",
        establishes="Both edges: the last movement before, the first after.",
        lower="Supported: a line is missing at one of the edges.",
        next_steps=(
            "nothing needs a restart; look at what the logs say at its beginning",
            "let a watchdog capture the next one: it leaves nothing behind once it is over",
        ),
    ),
}

RULE = Rule(
    name="recovered",
    texts=TEXTS,
    about="Between two stretches of movement nothing moved for at least half a minute while requests were held.",
    any_of=("log", "metrics"),
    evaluate=evaluate,
    false_positives="A stats line is missing where the log was cut; without a line or a wait from inside the hole nothing is said.",
    references=("vllm v1/metrics/loggers.py: after one line without movement it prints none until something moves",),
)
