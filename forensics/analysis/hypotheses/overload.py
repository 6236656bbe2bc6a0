"""Overload: was more asked of the engine than it can do? A full engine moves: load alone explains no standstill."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.analysis.times import SECOND, duration
from forensics.model import ProgressSample

QUEUE, CACHE, PROBE = "the queue", "the KV cache", "the API"
WINDOW_S = 300.0
CLOSE_S = 60.0
"""The last look at the queue before the onset must be as close as this to refute."""
FULL = 0.95


def evaluate(ask: Ask) -> Iterator[Told]:
    stall = ask.view.stall
    standing = (stall is not None and stall.until is None) or bool(ask.view.ends)
    samples = _before(ask)
    full = [s for s in samples if (s.kv_usage or 0) >= FULL and s.waiting]
    queued = ask.of("queue-waiting-behind-capacity", "backlog-before-onset")
    late = ask.of("health-probe-timeout-under-load")
    # a queue that stands and a second witness agree; of a standstill the queue may as well be the effect
    agree = bool(queued) and bool(full or late) and not standing
    for f in queued:
        yield "for", entry(f.title, part=QUEUE, decides=agree, finding=f.id, ref=f.because[0])
    for f in late:
        yield "for", entry(f.title, part=PROBE, finding=f.id, ref=f.because[0])
    if full:
        yield (
            "for",
            entry(f"the KV cache was {full[-1].kv_usage or 0:.0%} full with {full[-1].waiting:g} waiting", part=CACHE, ref=full[-1].ref),
        )
    for f in ask.of("scheduler-head-of-line-unschedulable"):
        yield "against", entry(f"{f.title}: that request fits at no load", part=QUEUE, finding=f.id, ref=f.because[0])
    yield from _light(ask, samples)


def _light(ask: Ask, samples: list[ProgressSample]) -> Iterator[Told]:
    known = [s for s in samples if s.waiting is not None]
    if not known:
        yield unread("how many requests waited before the onset" if ask.troubled else "how many requests wait", part=QUEUE)
        return
    waiting, running = max(s.waiting or 0 for s in known), max(s.running or 0 for s in known)
    kv = max((s.kv_usage for s in known if s.kv_usage is not None), default=None)
    cache = f", KV cache at most {kv:.0%} full" if kv is not None else ""
    last = known[-1]
    gap = (ask.onset.earliest_ns - last.at.latest_ns) / SECOND if ask.troubled and ask.onset and last.at else 0.0
    text = f"{_most(waiting)} waited and {_most(running)} ran{cache}, in {len(known)} look(s)"
    text += f", the last {duration(max(gap, 0))} before the onset" if ask.troubled else ""
    if waiting > 0 or (kv or 0) >= FULL:
        if not ask.of("queue-waiting-behind-capacity", "backlog-before-onset"):
            yield "against", entry(f"no queue stood for long: {text}", part=QUEUE, ref=last.ref)
            yield unread("whether the queue was growing", part=QUEUE)
        return
    yield "against", entry(text, part=QUEUE, decides=gap <= CLOSE_S, ref=last.ref)
    if gap > CLOSE_S:
        yield unread("the queue in the last minute before the onset", part=QUEUE)


def _most(count: float) -> str:
    return f"at most {count:g}" if count else "nothing"


def _before(ask: Ask) -> list[ProgressSample]:
    """What was said of the queue in the minutes before the onset: of a sound engine all of it, in order of time.

    While nothing moves the gauges keep what the last step before the onset left in them.
    """
    dated = sorted((s for s in ask.view.progress.samples if s.at), key=lambda s: s.at.earliest_ns if s.at else 0)
    if not ask.troubled:
        return dated or [s for s in ask.view.progress.samples if s.waiting is not None]
    if ask.onset is None:
        return []
    first, last = ask.onset.earliest_ns - round(WINDOW_S * SECOND), ask.onset.latest_ns
    said = [s for s in dated if s.at and first <= s.at.earliest_ns <= last]
    stands = ask.view.stall is not None and ask.view.stall.live and not ask.view.progress.moving_metrics()
    return said or ([s for s in dated if s.via == "metrics"] if stands else [])


SUSPICION = Suspicion(
    name="overload",
    claim="More was asked of the engine than it can do",
    evaluate=evaluate,
    of_nodes=False,
    does_not_show="that load began the trouble: many engines carry a queue for hours",
)
