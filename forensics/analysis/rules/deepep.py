"""Experts in parallel: a rank waited for the tokens of the others until its limit."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity


def evaluate(view: View) -> Iterator[Finding]:
    hits = view.feeding("deepep-dispatch-timeout")
    if not hits:
        return
    first = min(hits, key=lambda h: h.began.earliest_ns if h.began else 0)
    ranks = sorted({int(h.fields["rank"]) for h in hits if h.fields.get("rank")} | {h.rank for h in hits if h.rank is not None})
    earlier = [h for h in view.hits if h.feeds != "deepep-dispatch-timeout" and _failure(h) and view.before(h, first)]
    ended = any(view.before(e, first) for e in view.events("stop"))
    role = FindingRole.TEARDOWN if ended else FindingRole.CASCADE if earlier else FindingRole.ROOT
    yield view.finding(
        "deepep-dispatch-timeout",
        grade(observed=True),
        title=f"Exchange between experts timed out after {duration(first.limit_s or 100.0)}"
        + (f"; rank(s) {', '.join(map(str, ranks[:8]))} waited" if ranks else ""),
        because=[h.ref for h in hits[:4]],
        severity=Severity.CRITICAL,
        role=role,
        nodes=dict.fromkeys(h.node for h in hits),
        since=first.began,
        until=first.at,
        does_not_show="which rank did not come: those that print it are the ones that waited"
        + ("; something else had failed before" if earlier else ""),
        would_settle=["the logs of the ranks that do not print it", "stacks of every rank"],
    )


def _failure(hit: LogHit) -> bool:
    return hit.event in ("exception", "worker-death", "fatal") or hit.signature in ("python-traceback", "cuda-error")


TEXTS = {
    "deepep-dispatch-timeout": Text(
        says="DeepEP's dispatch or combine waited for other ranks until its limit ran out.",
        establishes="DeepEP's own line. The ranks that print it are victims.",
        next_steps=("look at the ranks that are silent, and at kernels compiled in their first dispatch",),
    ),
}

RULE = Rule(
    name="deepep",
    texts=TEXTS,
    about="DeepEP's dispatch or combine reached its limit on some ranks.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="None for the line; the ranks that it names are victims.",
    references=("DeepEP csrc/deep_ep.cpp, csrc/kernels",),
)
