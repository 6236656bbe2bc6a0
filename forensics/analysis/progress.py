"""Did the engine move, was work held, and since when does it stand still? Every progress witness is heard separately.

Witnesses: counters of the metrics endpoint, the engine's own stats line, and the timeouts that its waits print (each says
that nothing came for as long as its limit). Gauges refresh only when a step completes: requests that arrive during a stall
are invisible in them, so "nothing running" is never by itself a proof of idleness.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from forensics.analysis.times import SECOND
from forensics.model import EvidenceRef, ProgressSample

STATS_WINDOW_NS = 10 * SECOND
"""A stats line speaks of the interval before it (VLLM_LOG_STATS_INTERVAL, 10 s)."""
STILL_ENOUGH_S = 12.0
"""Shorter stillness is an ordinary slow step on a large model or a loaded machine."""
STEPS_ENOUGH = 5.0
"""…and so is stillness shorter than this many mean steps."""
PAUSE_NS = 30 * SECOND
"""Lines that are printed with a step come every few seconds as long as there is work."""
KV_STEP = 0.002
"""A rise of the cache's fill between two stats lines that is more than its rounding (0.1 %)."""
COUNTERS = ("steps", "generation_tokens", "prompt_tokens")
"""Counters that show the engine at work. `requests` also moves when a client gives up."""
EACH_STEP = {"steps", "generation_tokens"}
"""Those of which one moves with every step: a long generation leaves the prompt tokens alone."""
SLOW_GAP_S = 1.0
"""More than a second from one token of a request to its next is slow for any engine."""


@dataclass(frozen=True)
class Interval:
    """What one witness says of one stretch of time."""

    since_ns: int | None
    until_ns: int | None
    moved: bool
    held: bool | None
    refs: tuple[EvidenceRef, ...]
    via: str
    replica: str = ""
    rate: float | None = None
    """Generated tokens a second."""
    running: float | None = None
    waiting: float | None = None
    prompt_only: bool = False
    """Only prompt tokens or steps moved, no generated ones."""
    mean_step_s: float | None = None
    """Mean time between the tokens of a request since the engine started."""
    token_gap_s: float | None = None
    """The same within this interval."""
    sampled: tuple[int, int] = (0, 0)

    @property
    def seconds(self) -> float:
        return (self.until_ns - self.since_ns) / SECOND if self.since_ns is not None and self.until_ns is not None else 0.0

    @property
    def slow(self) -> bool:
        """Moving, with work held, at more than a second from one token of a request to its next."""
        if not self.moved or not self.held or self.prompt_only:
            return False
        if self.token_gap_s is not None:
            return self.token_gap_s > SLOW_GAP_S
        # the rate of a short interval is off by a step: two slow steps in two seconds look quick
        return 0 < (self.rate or 0.0) < (self.running or 0.0) / SLOW_GAP_S


@dataclass
class Progress:
    """All that the progress witnesses of one engine say, in order of time."""

    metrics: list[Interval] = field(default_factory=list)
    log: list[Interval] = field(default_factory=list)
    samples: list[ProgressSample] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        return bool(self.metrics or self.log)

    def last_moved(self, before_ns: int | None = None) -> Interval | None:
        """The latest interval in which anything moved (that began before `before_ns`)."""
        moved = [
            i
            for i in (*self.log, *self.metrics)
            if i.moved and (before_ns is None or i.until_ns is None or i.since_ns is None or i.since_ns < before_ns)
        ]
        return max(moved, key=lambda i: i.until_ns or 0, default=None)

    def moving_metrics(self) -> list[Interval]:
        return [i for i in self.metrics if i.moved]

    def still_run(self, replica: str | None = None) -> list[Interval]:
        """The unbroken run of still metric intervals at the end of the evidence, of one replica (or of all)."""
        run: list[Interval] = []
        for interval in reversed([i for i in self.metrics if replica is None or i.replica == replica]):
            if interval.moved:
                break
            run.append(interval)
        return run[::-1]

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(i.replica for i in self.metrics))


def build(samples: Sequence[ProgressSample]) -> Progress:
    """Pair up samples of the same witness, process and replica into intervals."""
    progress = Progress(samples=list(samples))
    groups: dict[tuple[str, str], list[ProgressSample]] = defaultdict(list)
    lines: dict[tuple[str, str], list[ProgressSample]] = defaultdict(list)
    for s in samples:
        if s.via == "metrics":
            groups[s.node, s.dp_rank].append(s)
        else:
            lines[s.node, s.dp_rank].append(s)
    for said in lines.values():
        said.sort(key=lambda s: s.at.earliest_ns if s.at else 0)
        before: ProgressSample | None = None
        for s in said:
            progress.log.append(_stats(s, before))
            before = s
    for (_, replica), group in groups.items():
        group.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.sample))
        # several API servers serve the same counters: one scrape of each sample number is enough
        unique = list({(s.sample, s.ref.source.rsplit("/", 1)[-1] if not s.sample else ""): s for s in group}.values())
        progress.metrics += [i for a, b in itertools.pairwise(unique) if (i := _pair(a, b, replica))]
    progress.log.sort(key=lambda i: i.until_ns or 0)
    return progress


def _stats(s: ProgressSample, before: ProgressSample | None) -> Interval:
    until = s.at.latest_ns if s.at else None
    prompt, generated = s.prompt_tps or 0.0, s.generation_tps or 0.0
    held = (s.running or 0) + (s.waiting or 0) > 0
    # a long prefill shows in none of the two rates until it completes, but it fills the cache
    filling = before is not None and held and (s.kv_usage or 0) - (before.kv_usage or 0) >= KV_STEP
    since = until - STATS_WINDOW_NS if until is not None else None
    if s.step and since is not None and before is not None and before.at:
        since = max(since, before.at.earliest_ns)
    return Interval(
        since_ns=since,
        until_ns=until,
        moved=s.step or prompt > 0 or generated > 0 or filling,
        held=held,
        refs=(s.ref,),
        via="log",
        replica=s.dp_rank,
        rate=None if s.step and _paused(before, until) else generated,
        running=s.running,
        waiting=s.waiting,
        prompt_only=(prompt > 0 or filling) and generated == 0,
    )


def _paused(before: ProgressSample | None, until: int | None) -> bool:
    """Whether the line before is so old that nothing was done in between: the rate of a line spreads its tokens over the pause."""
    return before is None or before.at is None or until is None or until - before.at.latest_ns > PAUSE_NS


def _pair(a: ProgressSample, b: ProgressSample, replica: str) -> Interval | None:
    """What two scrapes say; None where they hold no counter that every step moves: then equal values prove nothing."""
    deltas = {name: b.counters[name] - a.counters[name] for name in COUNTERS if name in a.counters and name in b.counters}
    if not any(deltas.values()) and not deltas.keys() & EACH_STEP:
        return None
    since = a.at.earliest_ns if a.at else None
    until = b.at.latest_ns if b.at else None
    seconds = (until - since) / SECOND if since is not None and until is not None else 0.0
    known = [v for s in (a, b) for v in (s.running, s.waiting) if v is not None]
    generated = deltas.get("generation_tokens", 0.0)
    return Interval(
        since_ns=since,
        until_ns=until,
        # a counter that fell belongs to a restarted engine: that is movement too
        moved=any(d != 0 for d in deltas.values()),
        held=sum(known) > 0 if known else None,
        refs=(a.ref, b.ref),
        via="metrics",
        replica=replica,
        rate=generated / seconds if seconds > 0 else None,
        running=max(a.running or 0, b.running or 0),
        waiting=max(a.waiting or 0, b.waiting or 0),
        prompt_only=generated == 0 and (deltas.get("prompt_tokens", 0) > 0 or deltas.get("steps", 0) > 0),
        mean_step_s=b.mean_step_s,
        token_gap_s=_token_gap_s(a, b),
        sampled=(a.sample, b.sample),
    )


def _token_gap_s(a: ProgressSample, b: ProgressSample) -> float | None:
    """Mean time between tokens from `a` to `b`, out of the means since start and their weights."""
    if b.mean_step_s is None or a.token_gaps is None or b.token_gaps is None or b.token_gaps <= a.token_gaps:
        return None
    return (b.mean_step_s * b.token_gaps - (a.mean_step_s or 0.0) * a.token_gaps) / (b.token_gaps - a.token_gaps)
