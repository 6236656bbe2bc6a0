"""How fast an engine moves, told by its stats lines: crawling, or computing a long prompt."""

from __future__ import annotations

from forensics.analysis.episodes import Told, told
from forensics.analysis.rules._contract import grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import Finding, Severity

CRAWLS = 8.0
"""Tokens a second for each running request below which a queue behind it takes the engine for dead."""
ALONE = 2.0
"""The same where nobody waits: large models on small machines are as slow as five and well."""
BUSY = 60.0
"""Tokens a second in all from which on nobody calls an engine slow: a large batch is slow for each of its requests."""
CRAWL_S = 50.0
PREFILL_LINES = 3
PREFILL_S = 19.0
FEW = 2
"""With more requests running, several prompts in a row may look like one."""
RISES = 0.01
"""The cache fills by so much while a long prompt is computed; on an engine that only does prompts it goes up and down."""


def crawling(view: View) -> list[Told]:
    """The last lines of a log, as far back as tokens came slowly without a break; [] where that is less than a minute."""
    found: list[Told] = []
    for lines in told(view):
        run: list[Told] = []
        for interval, s in reversed(lines):
            rate = (s.generation_tps or 0.0) / (s.running or 1)
            slow = 0 < rate < (CRAWLS if s.waiting else ALONE) and (s.generation_tps or 0.0) < BUSY
            # a step that also computes prompts is not slow
            if interval.rate is None or not (interval.moved and s.running and slow and (s.prompt_tps or 0) < 1):
                break
            run.append((interval, s))
        if _span_s(run) >= CRAWL_S and len(run) > len(found):
            found = run[::-1]
    return found


def prefilling(view: View) -> tuple[list[Told], Told | None]:
    """The newest run of lines without an output token over which the cache filled, and the line after it (None: it goes on)."""
    best: tuple[list[Told], Told | None] = ([], None)
    for lines in told(view):
        run: list[Told] = []
        for line in (*lines, None):
            if line and _prompt(line) and _fills(run, line):
                run.append(line)
                continue
            if _long(run):
                best = (run, line)
            run = [line] if line and _prompt(line) else []
    return best


def _prompt(line: Told) -> bool:
    # a line that is printed with a step of a prompt counts those that decode, and none may
    return line[0].prompt_only and bool(line[1].running or line[1].step)


def _long(run: list[Told]) -> bool:
    if len(run) < PREFILL_LINES or _span_s(run) < PREFILL_S or (run[-1][1].kv_usage or 0) - (run[0][1].kv_usage or 0) < RISES:
        return False
    few = all((s.running or 0) <= FEW for _, s in run)
    return few or (len(run) >= 2 * PREFILL_LINES and not any(s.step for _, s in run))


def crawls(view: View, run: list[Told]) -> Finding:
    (_, first), (_, last) = run[0], run[-1]
    return view.finding(
        "slow-progress",
        grade(observed=True),
        title=f"The engine advances, but slowly: {last.generation_tps or 0:g} tokens/s for {last.running or 0:g} running requests, "
        f"{last.waiting or 0:g} waiting",
        because=[first.ref, last.ref],
        severity=Severity.WARNING,
        since=first.at,
        does_not_show="why it is slow: a long context, a small machine, or something that holds every step up",
    )


def prefill(view: View, run: list[Told], after: Told | None) -> Finding:
    (begun, first), (_, last) = run[0], run[-1]
    long = [h for h in view.hits_of("vllm-request-received") if h.at and begun.since_ns and h.at.earliest_ns >= begun.since_ns - SECOND]
    asked = [h for h in long if h.at and first.at and h.at.earliest_ns <= first.at.latest_ns]
    fill = f"from {first.kv_usage or 0:.1%} to {last.kv_usage or 0:.1%}"
    return view.finding(
        "long-prefill",
        grade(observed=True),
        title=f"A long prompt {'was' if after else 'is being'} computed: no output token, and the cache fills {fill}",
        because=[*(h.ref for h in asked[:1]), first.ref, last.ref],
        since=asked[0].at if asked else first.at,
        until=after[1].at if after else None,
    )


def _fills(run: list[Told], line: Told) -> bool:
    return not run or (line[1].kv_usage or 0.0) >= (run[-1][1].kv_usage or 0.0)


def _span_s(run: list[Told]) -> float:
    if not run:
        return 0.0
    return abs((run[0][0].until_ns or 0) - (run[-1][0].until_ns or 0)) / SECOND
