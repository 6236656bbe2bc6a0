"""What was asked of the engine just before it stopped, and whether a queue had been growing."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.progress import Interval
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, TimeRange

WINDOW_S = 300.0
BACKLOG_S = 120.0
"""Requests that wait this long without a break are a backlog; shorter ones are a burst."""


def evaluate(view: View) -> Iterator[Finding]:
    onset = _onset(view)
    if onset is None:
        return
    before = [i for i in view.progress.log if i.until_ns is not None and i.until_ns <= onset + SECOND and i.moved]
    window = [i for i in before if (i.until_ns or 0) >= onset - WINDOW_S * SECOND]
    held = [h for h in view.events("held") if h.at and h.at.earliest_ns >= onset]
    if window:
        yield view.finding(
            "load-at-onset",
            grade(observed=True),
            title=f"Load in the {duration(WINDOW_S)} before: {_between([i.running for i in window])} running, "
            f"{_between([i.waiting for i in window])} waiting, {_between([i.rate for i in window])} tokens/s out",
            because=[*window[0].refs, *window[-1].refs, *(h.ref for h in held[:1])],
            since=_range(window[0].since_ns),
            until=_range(onset),
            does_not_show="the mix of prompt lengths and aborts",
        )
    # replicas have queues of their own
    replicas = dict.fromkeys(i.replica for i in before)
    backlog = max((_backlog([i for i in before if i.replica == r]) for r in replicas), key=len, default=[])
    if backlog:
        first, last = backlog[0], backlog[-1]
        seconds = ((last.until_ns or 0) - (first.since_ns or 0)) / SECOND
        yield view.finding(
            "backlog-before-onset",
            grade(observed=True),
            title=f"Requests had been waiting without a break for {duration(seconds)} before "
            f"({_between([i.waiting for i in backlog])} waiting)",
            because=[*first.refs, *last.refs],
            since=_range(first.since_ns),
            until=_range(last.until_ns),
            does_not_show="that load caused the trouble: many engines carry a backlog for hours",
        )


def _onset(view: View) -> int | None:
    if view.stall:
        return view.stall.since.latest_ns
    if runs := episodes.parked(view):
        return runs[-1].since.latest_ns
    ends = [h.at.earliest_ns for h in view.events("exception", "worker-death", "fatal") if h.at]
    return min(ends, default=None)


def _backlog(before: list[Interval]) -> list[Interval]:
    run: list[Interval] = []
    for interval in reversed(before):
        if not interval.waiting:
            break
        run.append(interval)
    run.reverse()
    return run if run and ((run[-1].until_ns or 0) - (run[0].since_ns or 0)) / SECOND >= BACKLOG_S else []


def _between(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "?"
    low, high = min(known), max(known)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _range(ns: int | None) -> TimeRange | None:
    return TimeRange(earliest_ns=ns, latest_ns=ns, basis="logged") if ns is not None else None


TEXTS = {
    "load-at-onset": Text(
        says="What the engine had to do before the trouble began: running, waiting, KV use, token rates, aborts. Context, never a cause.",
        establishes="Stats lines or counters of the window before.",
    ),
    "backlog-before-onset": Text(
        says="The queue grew for minutes before the trouble began: it was slow before it stood still.",
        establishes="Waiting requests that grow over the window in repeated stats.",
        lower="Supported: few samples.",
        next_steps=("look for what became slow at the start of the backlog, not at its end",),
    ),
}

RULE = Rule(
    name="load",
    texts=TEXTS,
    about="Running, waiting and token rates in the minutes before the trouble began, and how long requests had queued.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Load is there before most incidents: it is a circumstance, and never named as a cause.",
    references=("vllm v1/metrics/loggers.py: a line every ten seconds",),
)
