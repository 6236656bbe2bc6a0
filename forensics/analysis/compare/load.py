"""What each side was asked to do: requests outstanding, tokens a second, and the lengths of prompts and answers.

A rate is also what the engine achieves: a slower engine carries fewer tokens under the same load. So requests outstanding and
lengths decide whether the load was comparable; rates only where no gauge was read on one of the sides.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable

from forensics.analysis.compare.arm import Arm, figure
from forensics.analysis.compare.facts import Fact, Key
from forensics.model import EvidenceRef, Figure, ProgressSample

WHERE = "all engines"
OUTSTANDING, PROMPT, ANSWER, CARRIED = (
    "requests outstanding",
    "prompt tokens a request",
    "generated tokens a request",
    "tokens while it moved",
)
FEWEST_REQUESTS, FEWEST_ENDED = 20, 10
"""Ended requests that tell a mean length: so many, and so many times those under way."""
DECIDE = (OUTSTANDING, PROMPT, ANSWER)


def load_of(arm: Arm) -> dict[Key, Fact]:
    """Figures of the load of one side, as far as counters or stats lines tell them."""
    samples = [s for v in arm.views for s in v.progress.samples]
    scraped = [s for s in samples if s.via == "metrics"]
    chosen = scraped or samples
    found: dict[str, tuple[Figure | None, str, tuple[EvidenceRef, ...]]] = {}
    for what, value in (("running", "running"), ("waiting", "waiting")):
        found[f"requests {what}"] = (_together(chosen, operator.attrgetter(value)), "", _refs(chosen))
    found[OUTSTANDING] = (_together(chosen, _held), "", _refs(chosen))
    found[PROMPT] = (_per_request(scraped, "prompt_tokens"), "tokens", _refs(scraped))
    found[ANSWER] = (_per_request(scraped, "generation_tokens"), "tokens", _refs(scraped))
    moved = [i for v in arm.views for i in (v.progress.metrics or v.progress.log) if i.moved and i.rate is not None]
    carried = figure([i.rate for i in moved if i.rate is not None])
    found[CARRIED] = (carried, "/s", tuple(r for i in moved[-1:] for r in i.refs))
    return {Key("load", WHERE, what): Fact(value, unit, refs=refs[:2]) for what, (value, unit, refs) in found.items() if value}


def _held(s: ProgressSample) -> float | None:
    return None if s.running is None and s.waiting is None else (s.running or 0) + (s.waiting or 0)


def _together(samples: list[ProgressSample], value: Callable[[ProgressSample], float | None]) -> Figure | None:
    """Summed over replicas, sample by sample: scrapes by their number, lines by their second."""
    by_time: dict[object, dict[tuple[str, str], float]] = defaultdict(dict)
    for s in samples:
        one = value(s)
        if one is not None:
            moment = s.sample or (s.at.earliest_ns // 10**10 if s.at else 0)
            by_time[moment][s.node, s.dp_rank] = one
    whole = max((len(v) for v in by_time.values()), default=0)
    return figure(sum(v.values()) for v in by_time.values() if len(v) == whole)


def _per_request(samples: list[ProgressSample], counter: str) -> Figure | None:
    """Mean over the engine's life: what a capture's seconds hold would be a handful of requests.

    None while those under way, of which nobody knows how far they are, could shift it.
    """
    last: dict[tuple[str, str], ProgressSample] = {(s.node, s.dp_rank): s for s in samples if counter in s.counters}
    ended = sum(s.counters.get("requests", 0) for s in last.values())
    under_way = sum(s.running or 0 for s in last.values())
    if ended < max(FEWEST_REQUESTS, FEWEST_ENDED * under_way):
        return None
    return figure([sum(s.counters[counter] for s in last.values()) / ended])


def _refs(samples: list[ProgressSample]) -> tuple[EvidenceRef, ...]:
    return tuple(s.ref for s in (*samples[:1], *samples[-1:]))
