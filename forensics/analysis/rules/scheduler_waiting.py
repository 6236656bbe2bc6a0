"""Requests wait and nothing runs: whom the scheduler does not let in, and why."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.episodes import Parked
from forensics.analysis.rules._advice import EVIDENCE_FIRST
from forensics.analysis.rules._capacity import tokens, too_big
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._transfers import connector, transfer_troubles
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity

REPEATED_S = 19.0
"""Three lines in a row: two may fall into one slow hand-over."""
HOLDS = 0.004
"""Fill of the cache below which it holds nothing but rounding."""


def evaluate(view: View) -> Iterator[Finding]:
    runs = [r for r in episodes.parked(view) if not _asleep(view, r)]
    for run in runs[-4:]:
        big = too_big(view, run)
        yield _alive(view, run)
        if big:
            yield _unschedulable(view, run, *big)
        elif run.kv and run.kv[1] - run.kv[0] < HOLDS and (run.kv[0] > HOLDS or (run.deferred and run.kv[0] > 0)):
            yield _on_kv(view, run)


def _asleep(view: View, run: Parked) -> bool:
    """Whether the engine had been put to sleep and not woken: then it lets nobody in on purpose."""
    told = [h for h in view.hits_of("vllm-asleep", "vllm-awake") if h.at and h.at.earliest_ns <= run.since.latest_ns]
    return bool(told) and told[-1].signature == "vllm-asleep"


def _alive(view: View, run: Parked) -> Finding:
    where = f" in replica {run.lines[-1].dp_rank}" if view.engine.dp_size > 1 else ""
    return view.finding(
        "engine-alive-not-progressing",
        Grade.ESTABLISHED if run.span_s >= REPEATED_S and not run.silent else Grade.SUPPORTED,
        title=f"Nothing ran while {run.waiting:g} request(s) waited{where}, for {duration(run.span_s)}: nobody is let in",
        because=run.refs,
        severity=Severity.WARNING if run.until else Severity.CRITICAL,
        role=FindingRole.CASCADE,
        since=run.since,
        until=run.until,
        does_not_show="which request or which resource is waited for",
        would_settle=["request logging (lengths of prompts)", "stacks and live queues of the core"],
    )


def _unschedulable(view: View, run: Parked, request: LogHit, size: LogHit, aborts: list[LogHit]) -> Finding:
    empty = run.kv is not None and run.kv[1] <= HOLDS
    return view.finding(
        "scheduler-head-of-line-unschedulable",
        grade(observed=empty and run.span_s >= REPEATED_S, agreeing=2),
        title=f"Request {request.fields['request']} needs {tokens(request):,} tokens of cache for its prompt, all there is are "
        f"{tokens(size):,}: it can never be let in, and all others wait behind it",
        because=[request.ref, size.ref, *run.refs, *(a.ref for a in aborts[:1])],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        since=run.since,
        until=run.until,
        does_not_show="" if empty else "what holds the blocks that are in use",
    )


def _on_kv(view: View, run: Parked) -> Finding:
    end = run.until.latest_ns if run.until else view.ended_ns or run.since.latest_ns
    troubles = transfer_troubles(view.case, run.since.earliest_ns - 60 * SECOND, end + 60 * SECOND)
    uses = connector(view)
    outside = bool(uses) or "External prefix cache" in run.lines[-1].ref.quote
    share = run.kv[0] if run.kv else 0
    return view.finding(
        "scheduler-parked-on-kv-load",
        # the engine's own count of what it put off, on an engine with a connector, is a witness of its own
        grade(agreeing=1 + bool(troubles) + bool(run.deferred and outside)),
        title=f"{run.waiting:g} request(s) hold {share:.1%} of the cache and none runs: they wait for blocks from elsewhere",
        because=[*run.refs, *(h.ref for h in troubles[:3]), *(h.ref for h in uses[:1])],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE if troubles else FindingRole.ROOT,
        since=run.since,
        until=run.until,
        does_not_show="whether the other side died, cannot be reached, or was never asked",
        would_settle=["the connector's lines of both sides at DEBUG", "the log of the other side"],
    )


TEXTS = {
    "engine-alive-not-progressing": Text(
        says="The loop turns or answers, but a class of requests never advances.",
        establishes="Waiting above zero with none running in repeated stats, or one request parked while others go on.",
        lower="Supported: it was seen once.",
        next_steps=("look at the first request in the queue: what it needs, and who holds it",),
        while_lasts=(EVIDENCE_FIRST,),
    ),
    "scheduler-head-of-line-unschedulable": Text(
        says="The first waiting request can never fit, and everything behind it waits.",
        establishes="Needed blocks above the total number of blocks.",
        next_steps=("abort that request", "keep the greatest length of a request (max model len) below the size of the cache"),
    ),
    "scheduler-parked-on-kv-load": Text(
        says="Requests are parked until their KV blocks arrive, and they do not arrive.",
        establishes="The connector's lines or counters on both sides.",
        lower="Supported: only this side was seen.",
        next_steps=("look at the sending side and at the transfer, not at this scheduler",),
    ),
}

RULE = Rule(
    name="scheduler_waiting",
    texts=TEXTS,
    about="Stats lines say that requests wait and none runs, and the numbers in the log say why.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="An engine that was told to pause or to sleep lets nobody in either.",
    references=("vllm v1/core/sched/scheduler.py: the first waiting request that gets no blocks ends the admission",),
)
