"""Stretches of time in which an engine's own stats lines or counters stood still, with both of their edges.

`stall` asks for the standstill at the end of the evidence; here are those that ended, and those in which nothing runs and
requests wait, which is no stall of a step: the loop turns, and lets nobody in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from forensics.analysis.progress import STATS_WINDOW_NS, Interval
from forensics.analysis.rotated import base_of
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, LogHit, ProgressSample, TimeRange

GAP_S = 30.0
"""A shorter hole between two stretches of movement is a slow step, not a stall worth a name."""
SILENT_S = 60.0
"""An engine that falls silent after a line without movement has not moved for as long as it prints none."""
FILLS = 0.02
"""A cache that is fuller by this after a hole was filled by a prompt that was computed meanwhile."""


@dataclass(frozen=True)
class Parked:
    """Nothing runs, requests wait, no token moves."""

    lines: tuple[ProgressSample, ...]
    since: TimeRange
    """The first line that shows it."""
    until: TimeRange | None
    """When something moved again, the queue was empty, or the engine was stopped; None: to the end of the evidence."""
    span_s: float
    silent: bool
    """One line only, and silence after it."""

    @property
    def refs(self) -> tuple[EvidenceRef, ...]:
        return tuple(s.ref for s in (*self.lines[:2], *self.lines[-1:]))

    @property
    def kv(self) -> tuple[float, float] | None:
        """Least and greatest fill of the cache (0..1), None where the lines do not tell."""
        known = [s.kv_usage for s in self.lines if s.kv_usage is not None]
        return (min(known), max(known)) if known else None

    @property
    def deferred(self) -> bool:
        """Whether the newest line counts requests that were put off for something that is not there yet (0.20 and later)."""
        return bool(re.search(r"Deferred: [1-9]", self.lines[-1].ref.quote))

    @property
    def waiting(self) -> float:
        return self.lines[-1].waiting or 0


@dataclass(frozen=True)
class Hole:
    """A standstill with work held that ended by itself."""

    since: TimeRange
    until: TimeRange
    seconds: float
    refs: tuple[EvidenceRef, ...]
    seen: bool
    """A line or a counter shows the standstill itself, not only a wait inside a hole between two lines."""
    prompt: bool
    """A long prompt may have been computed meanwhile."""


Told = tuple[Interval, ProgressSample]
"""A stats line: what it says of the time before it, and its figures."""


def point(ns: int, basis: str = "logged") -> TimeRange:
    return TimeRange(earliest_ns=ns, latest_ns=ns, basis=basis)


def told(view: View) -> list[list[Told]]:
    """The stats lines of each log and replica in order of time, each with what it says; none from after a stop."""
    if view not in _TOLD:
        _TOLD[view] = _told(view)
    return _TOLD[view]


_TOLD: WeakKeyDictionary[View, list[list[Told]]] = WeakKeyDictionary()
"""Many rules ask, and a log may hold ten thousands of lines."""


def _told(view: View) -> list[list[Told]]:
    samples = {(s.node, s.ref.source, s.ref.locator): s for s in view.progress.samples if s.via == "log"}
    by_ref = {(source, locator): s for (_, source, locator), s in samples.items()}
    groups: dict[tuple[str, str, str], list[Told]] = defaultdict(list)
    for interval in view.progress.log:
        s = by_ref.get((interval.refs[0].source, interval.refs[0].locator))
        if s and interval.until_ns is not None and not (view.stopped_ns is not None and interval.until_ns > view.stopped_ns + SECOND):
            # the parts of a rotated log are one log
            groups[s.node, base_of(s.ref.source)[0], interval.replica].append((interval, s))
    return list(groups.values())


def parked(view: View) -> list[Parked]:
    """Every stretch in which nothing ran while requests waited, in order of time."""
    found = []
    for lines in told(view):
        run: list[Told] = []
        for interval, s in lines:
            if not interval.moved and not s.running and s.waiting:
                run.append((interval, s))
                continue
            found += _parked(view, run, interval)
            run = []
        found += _parked(view, run, None)
    for replica in view.progress.replicas:
        found += _scraped(view, [i for i in view.progress.metrics if i.replica == replica])
    return sorted(found, key=lambda p: p.since.earliest_ns)


def _parked(view: View, run: list[Told], after: Interval | None) -> list[Parked]:
    if not run:
        return []
    first, last = run[0][0].until_ns or 0, run[-1][0].until_ns or 0
    over = [view.stopped_ns, view.replaced_ns, *(h.at.earliest_ns for h in view.events("fatal") if h.at)]
    ended = min((ns for ns in over if ns is not None and ns >= last), default=None)
    edge = after.since_ns if after else ended if ended is not None else view.ended_ns
    silence = ((edge or last) - last) / SECOND
    if len(run) == 1 and silence < SILENT_S:
        return []
    until = None
    if after and after.until_ns is not None:
        until = TimeRange(earliest_ns=max(last, after.since_ns or last), latest_ns=after.until_ns, basis="logged")
    elif ended is not None:
        until = point(ended)
    seconds = (last - first) / SECOND if len(run) > 1 else silence
    return [Parked(tuple(s for _, s in run), run[0][1].at or point(first), until, seconds, len(run) == 1)]


def _scraped(view: View, intervals: list[Interval]) -> Iterator[Parked]:
    """The same told by scrapes at the end of the evidence: counters equal, a queue, and nothing that runs."""
    by_ref = {(s.ref.source, s.ref.locator): s for s in view.progress.samples if s.via == "metrics"}
    run: list[Interval] = []
    for i in reversed(intervals):
        if i.moved or i.running or not i.waiting:
            break
        run.append(i)
    lines = [s for i in reversed(run) for r in i.refs if (s := by_ref.get((r.source, r.locator)))]
    if len(run) > 1 and lines and lines[0].at and lines[-1].at and lines[-1].waiting and lines[0].waiting:
        seconds = (lines[-1].at.latest_ns - lines[0].at.earliest_ns) / SECOND
        yield Parked(tuple(lines), lines[0].at, None, seconds, silent=False)


def holes(view: View) -> list[Hole]:
    """Every standstill that ended by itself within this life, in order of time."""
    found = [h for lines in told(view) for h in _between(view, lines)]
    found += [h for replica in view.progress.replicas for h in _counted([i for i in view.progress.metrics if i.replica == replica])]
    return sorted(found, key=lambda h: h.since.earliest_ns)


def _between(view: View, lines: list[Told]) -> Iterator[Hole]:
    moved: Told | None = None
    still: list[Told] = []
    for interval, s in lines:
        if interval.held is False:
            moved, still = None, []
        elif not interval.moved:
            still.append((interval, s))
        else:
            if moved and (hole := _hole(view, moved, still, (interval, s))):
                yield hole
            moved, still = (interval, s), []


def _hole(view: View, before: Told, still: list[Told], after: Told) -> Hole | None:
    left, right = before[0].until_ns, after[0].since_ns
    if left is None or right is None or after[0].until_ns is None or (right - left) / SECOND < GAP_S:
        return None
    waits = [h for h in view.events("wait", "hang") if _began(h) >= left - STATS_WINDOW_NS and _at(h) <= right + SECOND]
    if any(left <= _at(h) <= right for h in view.hits_of("vllm-asleep")):
        return None
    if not still and not (waits and before[1].running):
        return None
    first = still[0][0].until_ns if still else None
    since = TimeRange(earliest_ns=left, latest_ns=min(first or right, right), basis="inferred")
    marks = [_began(h) for h in waits] + [_at(h) for h in view.feeding("jit-compile-during-serving")]
    marks = [m for m in marks if since.earliest_ns <= m <= since.latest_ns]
    if marks:
        since = TimeRange(earliest_ns=min(marks), latest_ns=min(marks) + SECOND - 1, basis="logged")
    kv = [s.kv_usage for _, s in (still[-1:] or [before]) if s.kv_usage is not None]
    filled = bool(kv) and (after[1].kv_usage or 0.0) - kv[0] >= FILLS and bool(after[1].prompt_tps)
    return Hole(
        since=since,
        until=TimeRange(earliest_ns=max([right, *(_at(h) for h in waits)]), latest_ns=after[0].until_ns, basis="logged"),
        seconds=(right - left) / SECOND,
        refs=(before[1].ref, *(s.ref for _, s in still[:2]), *(h.ref for h in waits[:2]), after[1].ref),
        seen=bool(still),
        prompt=filled or after[0].prompt_only,
    )


def _counted(intervals: list[Interval]) -> Iterator[Hole]:
    """Runs of equal counters between two that moved."""
    run: list[Interval] = []
    moved = False
    for i in intervals:
        if not i.moved and i.held:
            run.append(i)
            continue
        if i.moved and moved and run and run[0].since_ns is not None and run[-1].until_ns is not None:
            seconds = (run[-1].until_ns - run[0].since_ns) / SECOND
            if seconds >= GAP_S:
                refs = (*run[0].refs, *run[-1].refs[-1:], *i.refs[-1:])
                yield Hole(point(run[0].since_ns, "sampled"), point(run[-1].until_ns, "sampled"), seconds, refs, seen=True, prompt=False)
        moved, run = i.moved or (moved and not i.held), []


def _at(hit: LogHit) -> int:
    return hit.at.earliest_ns if hit.at else 0


def _began(hit: LogHit) -> int:
    """When a wait began that a line reports after its limit."""
    limit = hit.limit_s if hit.limit_s is not None else float(hit.fields.get("seconds", "0"))
    return _at(hit) - round(limit * SECOND)
