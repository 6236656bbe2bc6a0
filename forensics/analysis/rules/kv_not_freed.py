"""Blocks of the cache that stay in use although no request is left to own them."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, ProgressSample, Severity

HELD = 0.01
"""Less than this is rounding, or a few shared blocks."""
LONGER_S = 600.0
"""A prefill engine keeps blocks for the decode side that long (480 s by default at most) and owns no request meanwhile."""


def evaluate(view: View) -> Iterator[Finding]:
    aborts = view.hits_of("vllm-request-aborted", "vllm-request-client-gone")
    leaks = [h for h in view.feeding("kv-blocks-not-freed-after-abort") if h.role == "root"]
    if leaks:
        yield view.finding(
            "kv-blocks-not-freed-after-abort",
            # the engine's own count at idle; that aborts are what lost them is told only where aborts were seen
            grade(observed=True, alternatives=[] if any(view.before(a, leaks[0]) for a in aborts) else ["blocks lost in another way"]),
            title="The engine's own count at idle: blocks of its KV cache did not come back",
            because=[*(h.ref for h in leaks[:2]), *(a.ref for a in aborts[:1])],
            severity=Severity.WARNING,
            role=FindingRole.ROOT,
            since=leaks[0].at,
            does_not_show="which request lost them",
        )
        return
    if not view.progress.samples:
        raise CannotTell("no counter and no stats line was read", "metrics")
    for run in _idle_and_full(view):
        first, last = run[0], run[-1]
        if not first.at or not last.at:
            continue
        seconds = (last.at.latest_ns - first.at.earliest_ns) / SECOND
        before = [a for a in aborts if a.at and a.at.earliest_ns <= first.at.latest_ns]
        if seconds < LONGER_S:
            continue
        yield view.finding(
            "kv-blocks-not-freed-after-abort",
            grade(agreeing=1 + bool(before)),
            title=f"Nothing runs or waits and {first.kv_usage or 0:.0%} of the KV cache stays in use, for {duration(seconds)}",
            because=[first.ref, last.ref, *(a.ref for a in before[-1:])],
            severity=Severity.WARNING,
            role=FindingRole.ROOT,
            since=first.at,
            does_not_show="whose blocks they are" + ("" if before else ": no abort was seen before"),
            would_settle=["request logging (aborts)", "the connector's lines of both sides"],
        )


def _idle_and_full(view: View) -> Iterator[list[ProgressSample]]:
    """Longest tails of samples of one replica with nothing outstanding and the same share of the cache in use."""
    groups: dict[tuple[str, str, str], list[ProgressSample]] = {}
    for s in view.progress.samples:
        groups.setdefault((s.node, s.via, s.dp_rank), []).append(s)
    for samples in groups.values():
        run: list[ProgressSample] = []
        for s in sorted(samples, key=lambda s: s.at.earliest_ns if s.at else 0, reverse=True):
            same = not run or abs((s.kv_usage or 0) - (run[-1].kv_usage or 0)) < HELD / 4
            if s.running or s.waiting or s.running is None or (s.kv_usage or 0) < HELD or not same or s.generation_tps or s.prompt_tps:
                break
            run.append(s)
        if len(run) > 1:
            yield run[::-1]


TEXTS = {
    "kv-blocks-not-freed-after-abort": Text(
        says="Blocks of the KV cache did not come back after their requests ended or were aborted: capacity shrinks until nothing fits.",
        establishes="KV use that stays above zero with no request running or waiting, in repeated stats, or the engine's own leak line.",
        lower="Supported: it was seen once.",
        next_steps=(
            "count aborts before it: clients that give up during a transfer are the usual way in",
            "a restart gives the blocks back; note how fast they go again",
        ),
    ),
}

RULE = Rule(
    name="kv_not_freed",
    texts=TEXTS,
    about="The KV cache stays partly in use long after the last request, or the engine counts blocks that did not come back.",
    any_of=("log", "metrics"),
    evaluate=evaluate,
    false_positives="A prefill engine keeps the blocks of finished requests until they are fetched or their time is over.",
    references=("vllm v1/core/sched/scheduler.py _connector_finished", "sglang managers/scheduler.py check at idle"),
)
