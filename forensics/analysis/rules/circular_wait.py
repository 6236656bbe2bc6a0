"""A cycle in the wait-for graph: everybody in it waits for somebody in it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, NO_LONGER_LIMIT
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, Severity
from forensics.model.graph import cycles


def evaluate(view: View) -> Iterator[Finding]:
    for edges in cycles(view.waits):
        weakest = min((w.grade for w in edges), key=lambda g: g.strength)
        names = [w.waiter for w in edges]
        who = [p for p in view.engine.processes if any(w.waiter_at == (p.info.node, p.pid) for w in edges)]
        # where ranks wait for each other in collectives, nobody knows which of them is at the right one
        among_ranks = any(w.via == "collective" for w in edges)
        yield view.finding(
            "circular-wait",
            grade(observed=weakest is Grade.ESTABLISHED, agreeing=2 if weakest is Grade.SUPPORTED else 0),
            title=_title(view, names, who),
            because=[w.ref for w in edges],
            severity=Severity.CRITICAL if weakest.strength >= Grade.SUPPORTED.strength else Severity.WARNING,
            role=FindingRole.CASCADE if among_ranks else FindingRole.ROOT,
            processes=who,
            since=view.stall.since if view.stall else None,
            does_not_show="how the circle was closed: for that the order of events is needed",
            would_settle=[] if weakest is Grade.ESTABLISHED else ["every edge of the circle seen twice, with the lock's own owner"],
        )


def _title(view: View, names: list[str], who: list[EngineProcess]) -> str:
    where = ""
    if len(who) == 1:  # its name need not be said with each of its threads
        own = view.name(who[0])
        where, names = f" in {own}", [n.replace(f" of {own}", "").replace(own, "the main thread") for n in names]
    return f"A circle of waits{where} that nothing inside it can end: " + " → ".join([*names, names[0]])


TEXTS = {
    "circular-wait": Text(
        says="Threads or ranks wait for each other in a circle: none of them can go on by itself.",
        establishes=(
            "Every edge of the circle was observed: a lock with its holder, a queue with its consumer, a collective with the missing rank."
        ),
        lower="Possible: at least one edge of the circle is only likely.",
        next_steps=("break the circle at the edge that the code can do without", NO_LONGER_LIMIT),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="circular_wait",
    texts=TEXTS,
    about="Threads or ranks wait for each other in a circle.",
    requires=("stacks",),
    optional=("objects",),
    evaluate=evaluate,
    false_positives="Edges that are only possible make a circle that is only possible.",
    references=("Coffman, Elphick, Shoshani 1971: circular wait is the one of the four conditions that evidence can show",),
)
