"""Structured output: a grammar's matcher that was asked after its end, and a step that never gets past it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, KernelEvent, LogHit, Severity

_SPECULATIVE = re.compile(
    r"speculative_config\W+(?:SpeculativeConfig\(|\{)|num_speculative_tokens\W+[1-9]|speculative_algorithm\W+[A-Z]|speculative_model\W+\w{5,}"
)
NEAR_NS = 15 * SECOND
"""A line counts as the last sign before a standstill within this of the last movement, the width of a stats line and a bit."""

BELOW_NS = 600 * SECOND
"""What the kernel reported this shortly before is another reading."""


def evaluate(view: View) -> Iterator[Finding]:
    hits = view.feeding("grammar-matcher-after-termination")
    # the matcher warns at the end of many good answers: where the engine went on after it, there is nothing to tell
    last = [h for h in hits if not _went_on(view, h)]
    if last:
        yield from _after_end(view, last)


def _went_on(view: View, hit: LogHit) -> bool:
    """Whether tokens flowed after this line, or nothing was left to do."""
    if hit.at is None:
        return True
    witnesses = (*view.progress.log, *view.progress.metrics)
    if any(i.moved and i.since_ns is not None and i.since_ns >= hit.at.latest_ns for i in witnesses):
        return True
    # its request may have been the last one
    return any(i.held is False and i.until_ns is not None and i.until_ns >= hit.at.latest_ns for i in witnesses)


def _after_end(view: View, hits: list[LogHit]) -> Iterator[Finding]:
    first = hits[0]
    stall = view.stall
    stands = (stall is not None and stall.until is None) or bool(view.events("timeout", "fatal"))
    yield view.finding(
        "grammar-matcher-after-termination",
        grade(observed=True),
        title="A grammar's matcher was given a token after it had accepted the stop token",
        because=[h.ref for h in hits[:3]],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        nodes=[first.node],
        since=first.at,
        does_not_show="that it did harm: with speculative decoding many good answers end with this line",
    )
    speculative = _speculative(view)
    if not (stall and stands and first.at and speculative) or not _last_sign(view, first):
        return
    yield view.finding(
        "grammar-spec-livelock",
        grade(agreeing=2),
        title="Tokens stopped right after a draft was offered to a grammar that had ended: the step never gets an accepted token",
        because=[first.ref, *stall.because[:2], *speculative[:1]],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        nodes=[first.node],
        since=first.at,
        does_not_show="the loop itself: a stack inside the matcher would",
        would_settle=["stacks of the core, twice"],
    )


def _last_sign(view: View, hit: LogHit) -> bool:
    """Whether the line stands between the last movement and the standstill, with no other trouble before it."""
    assert hit.at and view.stall
    since = view.stall.since
    if not since.earliest_ns - NEAR_NS <= hit.at.latest_ns <= since.latest_ns + NEAR_NS:
        return False
    troubles = [*view.raised, *view.events("worker-death", "exception")]
    below = [e for e in view.on_nodes(KernelEvent) if e.role == "root" and e.at and 0 <= since.latest_ns - e.at.earliest_ns <= BELOW_NS]
    return not below and not any(view.before(t, hit) for t in troubles)


def _speculative(view: View) -> list[EvidenceRef]:
    """Where the evidence says that tokens are drafted."""
    told = view.hits_of("vllm-spec-decode-stats", "vllm-grammar-draft-refused")
    texts = [h for h in view.hits if h.event in ("start", "core-start", "held") or h.signature == "vllm-config-dump"]
    return [h.ref for h in (*told, *(h for h in texts if _SPECULATIVE.search(" ".join((h.text, *h.fields.values())))))]


TEXTS = {
    "grammar-matcher-after-termination": Text(
        says="A structured-output grammar was advanced after it had ended. Fatal only where the engine does not handle it.",
        establishes="The matcher's line as the last thing before tokens stopped.",
        lower="Possible: the warning stands in the log, and other requests went on.",
        next_steps=("turn speculative decoding off for structured output, or use another grammar backend",),
    ),
    "grammar-spec-livelock": Text(
        says="Structured output with speculative decoding: draft tokens are rejected again and again and the request never ends.",
        establishes="The exact lines, and steps that turn while tokens do not come.",
        lower="Supported: the lines were seen, the steps were not.",
        next_steps=("turn speculative decoding off for structured output, or use another grammar backend",),
    ),
}

RULE = Rule(
    name="grammar",
    texts=TEXTS,
    about="A grammar for structured output was driven past its end, right before tokens stopped.",
    requires=("log",),
    optional=("stacks",),
    evaluate=evaluate,
    false_positives="The warning about the stop token is ordinary under speculative decoding: followed by traffic it is not told.",
    references=("xgrammar cpp/grammar_matcher.cc", "vllm v1/structured_output/__init__.py grammar_bitmask"),
)
