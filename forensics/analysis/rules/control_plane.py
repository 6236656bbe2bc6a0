"""A lease in the control plane ran out: processes that were well are told to stop."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity

BEFORE_S = 60.0
"""What the store said this long before a lease was lost speaks of the loss."""


def evaluate(view: View) -> Iterator[Finding]:
    said = [h for h in view.case.of(LogHit) if h.feeds == "control-plane-lease-lost"]
    # a lease that an earlier life lost explains nothing of this one
    lost = [h for h in said if h.role == "root" and h.node in view.nodes and view.lives.of(h.node, h.ref, h.at) == view.life]
    if not lost:
        return
    first = min(lost, key=lambda h: h.at.earliest_ns if h.at else 0)
    # it keeps trying: a lease that was given up is the end of it
    near = [h for h in said if h.role == "context" and h.at and first.at and _before(h, first)]
    stopped = any(view.before(e, first) for e in view.events("fatal", "stop"))
    begun = min((h for h in near), key=lambda h: h.at.earliest_ns if h.at else 0, default=first)
    at = f" at {iso(first.at.earliest_ns)}" if first.at else ""
    yield view.finding(
        "control-plane-lease-lost",
        grade(observed=True),
        title=f"A lease in the control plane was lost{at}: a process that loses its lease ends itself, well or not",
        because=[*(h.ref for h in lost[:3]), *(h.ref for h in near[:3])],
        severity=Severity.WARNING if stopped else Severity.CRITICAL,
        role=FindingRole.TEARDOWN if stopped else FindingRole.ROOT,
        nodes=dict.fromkeys(h.node for h in lost),
        since=begun.at,
        does_not_show="that the engine had a fault of its own" + ("" if near else "; why the store did not answer: its log was not read"),
        would_settle=[] if near else ["the log of the store (etcd)"],
    )


def _before(hit: LogHit, lost: LogHit) -> bool:
    seconds = (lost.at.latest_ns - hit.at.earliest_ns) / SECOND if lost.at and hit.at else -1
    return 0 <= seconds <= BEFORE_S


TEXTS = {
    "control-plane-lease-lost": Text(
        says="A process lost its lease in the control plane's store and was cancelled, whether or not the engine was well.",
        establishes="The process's own line that its lease expired or could not be kept.",
        next_steps=("look at the store: disk latency, leader elections, network to it",),
    ),
}

RULE = Rule(
    name="control_plane",
    texts=TEXTS,
    about="A process lost its lease in the control plane and was cancelled.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A process that starved (no CPU, stopped, a frozen host) loses its lease too: look for what held it up.",
    references=("dynamo lib/runtime/src/transports/etcd/lease.rs",),
)
