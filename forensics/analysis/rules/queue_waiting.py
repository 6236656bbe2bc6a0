"""Requests wait because the engine is full, and it moves: ordinary queueing, which reads like a hang."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import Finding, Grade, ProgressSample

QUEUED_S = 60.0


def evaluate(view: View) -> Iterator[Finding]:
    for lines in episodes.told(view):
        run: list[ProgressSample] = []
        for interval, s in reversed(lines):
            if not (s.waiting and s.running and interval.moved):
                break
            run.append(s)
        if len(run) < 2 or not run[-1].at or not run[0].at or run[0].at.latest_ns - run[-1].at.earliest_ns < QUEUED_S * SECOND:
            continue
        yield view.finding(
            "queue-waiting-behind-capacity",
            Grade.POSSIBLE,
            title=f"{run[0].waiting:g} request(s) wait while {run[0].running:g} run and tokens flow: the engine is full, and moves",
            because=[run[-1].ref, run[0].ref],
            since=run[-1].at,
            does_not_show="which limit is reached: sequences at a time, or blocks of the cache",
        )


TEXTS = {
    "queue-waiting-behind-capacity": Text(
        says="Requests wait because the engine is full, and it moves. Load, not a fault.",
        establishes="Repeated stats with waiting requests and tokens that flow.",
        next_steps=("add capacity or admit less; nothing is broken",),
    ),
}

RULE = Rule(
    name="queue_waiting",
    texts=TEXTS,
    about="The newest stats lines show a queue for a minute or more while tokens flow.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="None that harms: it is a circumstance and names no fault.",
    references=("vllm v1/core/sched/scheduler.py: max_num_seqs and free blocks bound what runs",),
)
