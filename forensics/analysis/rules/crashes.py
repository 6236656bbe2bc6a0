"""A crash that nobody asked about, or none at all: said of every engine, and only for the nodes and times that were really read."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import coverage
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogSpan, Severity

CRASHES = (
    "engine-died",
    "worker-process-died",
    "worker-start-failed",
    "worker-exception-fatal",
    "ray-actor-died",
    "native-crash",
    "sigsegv",
    # what ends a process, whether its last words were read or not
    "cuda-illegal-access",
    "cuda-device-assert",
    "host-oom-kill",
    "ray-oom-kill",
    "kernel-panic",
)
EXHAUSTED = ("gpu-oom", "shm-exhausted")
"""What an engine may outlive: where it is the root, it did not."""
FAILED_STARTS = ("rendezvous-peer-missing", "address-in-use")
"""No crash, but the end of an engine all the same where they are grave."""
LAST_WORDS_NS = 60 * 10**9


def evaluate(view: View) -> Iterator[Finding]:
    mine = view.engine.id
    crashed = {id: made for id, found in view.case.judged.items() if (made := [f for f in found if _crash(f)])}
    others = {id: made for id, made in crashed.items() if id != mine}
    if mine not in crashed:
        for found in others.values():
            first = min(found, key=lambda f: f.since.earliest_ns if f.since else 0)
            nodes = tuple(dict.fromkeys(n for f in found for n in f.nodes if n not in view.nodes))
            if nodes:
                yield view.finding(
                    "crash-on-other-node",
                    max((f.grade for f in found), key=lambda g: g.strength),  # as certain as that crash
                    title=f"Another engine crashed, on {', '.join(nodes)}: {first.title[:100]}",
                    because=[ref for f in found[:3] for ref in f.because[:2]],
                    severity=Severity.WARNING,
                    role=FindingRole.CONTEXT,
                    nodes=nodes,
                    since=first.since,
                    until=first.until,
                    does_not_show="whether the two have anything to do with each other",
                )
    ended = any(f.id in FAILED_STARTS and f.severity is Severity.CRITICAL for found in view.case.judged.values() for f in found)
    if not crashed and not ended:
        yield _none(view)


def _crash(f: Finding) -> bool:
    ended = f.id in CRASHES or (f.id in EXHAUSTED and f.role is FindingRole.ROOT)
    return ended and f.grade.strength >= Grade.SUPPORTED.strength


def _none(view: View) -> Finding:
    spans = [s for s in view.on_nodes(LogSpan) if s.first_ns is not None and s.last_ns is not None]
    if not spans:
        raise CannotTell("no dated line tells which time the logs cover", "logs with times")
    windows = {}
    for node in sorted({s.node for s in spans}):
        own = [s for s in spans if s.node == node]
        windows[node] = (min(s.first_ns or 0 for s in own), max(s.last_ns or 0 for s in own))
    for hit in view.hits:
        last = windows.get(hit.node, (0, 0))[1]
        if "exc_type" in hit.fields and (hit.at is None or last - hit.at.latest_ns <= LAST_WORDS_NS):
            raise CannotTell(
                f"a log ends in an exception ({hit.fields['exc_type'][:80]}): what followed was not read", "the rest of the log"
            )
    unread = sorted(set(view.nodes) - set(windows))
    gap = coverage.gap(view.coverage)
    return view.finding(
        "no-crash-found",
        grade(observed=True, whole=not unread and not gap),
        title="No crash in the logs of " + ", ".join(f"{node} ({iso(first)} to {iso(last)})" for node, (first, last) in windows.items()),
        because=[s.ref for s in spans[:6]],
        nodes=tuple(windows),
        does_not_show="; ".join(
            [
                *([f"anything about {', '.join(unread)}, whose logs were not read"] if unread else []),
                *([f"the whole engine: {gap}"] if gap else []),
                "a death that left no line, or one outside these times",
            ]
        ),
    )


TEXTS = {
    "crash-on-other-node": Text(
        says="Something crashed on a node, or in an engine, that nobody asked about. It may be older than the incident.",
        establishes="A crash finding of that node's own log or kernel log.",
        next_steps=("compare its time with the first event here before joining the two",),
    ),
    "no-crash-found": Text(
        says="No crash was found, in the nodes and times that were read. It says nothing of any other.",
        establishes="It is never more than a statement about what was read.",
        lower="Supported: a log was cut or begins late.",
    ),
}

RULE = Rule(
    name="crashes",
    texts=TEXTS,
    about="Whether anything crashed on any node that was read, this engine's or another's.",
    requires=("log",),
    across=True,
    evaluate=evaluate,
    false_positives="A kill leaves no line of its own: an engine that is simply gone is found by its process, not by its log.",
    references=("the findings of every engine of the case",),
)
