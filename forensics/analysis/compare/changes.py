"""Direction of each change: a pure function over what both sides say."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.compare.arm import Arm
from forensics.analysis.compare.facts import SOURCES, Fact, Key, facts
from forensics.analysis.compare.load import load_of
from forensics.model import Change, Direction, Figure


def changes(before: Arm, after: Arm) -> Iterator[Change]:
    """Everything that either side says, topic by topic, real changes of a topic first."""
    mine, theirs = facts(before) | load_of(before), facts(after) | load_of(after)
    order = list(SOURCES)
    keys = sorted({*mine, *theirs}, key=lambda k: (order.index(k.topic), k.where, k.what))
    made = [_change(k, mine.get(k), theirs.get(k), before, after) for k in keys]
    yield from sorted(made, key=lambda c: (order.index(c.topic), c.direction is Direction.SAME))


def _change(key: Key, a: Fact | None, b: Fact | None, before: Arm, after: Arm) -> Change:
    one = a or b
    assert one is not None
    return Change(
        topic=key.topic,
        where=key.where,
        what=key.what,
        direction=_direction(key, a, b, before, after),
        before=a.value if a else None,
        after=b.value if b else None,
        unit=one.unit,
        refs=tuple(dict.fromkeys((*(a.refs if a else ()), *(b.refs if b else ())))),
    )


def _direction(key: Key, a: Fact | None, b: Fact | None, before: Arm, after: Arm) -> Direction:
    sources = SOURCES[key.topic]
    if a is None:
        return Direction.APPEARED if before.seen(*sources) and _could_be_seen(key, before) else Direction.ONLY_AFTER
    if b is None:
        return Direction.GONE if after.seen(*sources) and _could_be_seen(key, after) else Direction.ONLY_BEFORE
    if isinstance(a.value, Figure) and isinstance(b.value, Figure):
        return compare_figures(a.value, b.value, max(a.resolution, b.resolution))
    return Direction.SAME if a.value == b.value else Direction.CHANGED


_COMES_AND_GOES = ("state", "thread", "queue", "wait")
"""What may be there or not while its source is read. A setting, a version or a sensor that one side does not tell was not read there."""


def _could_be_seen(key: Key, arm: Arm) -> bool:
    """Whether the side on which it is missing would have told it: its place was looked at."""
    if key.topic not in _COMES_AND_GOES:
        return False
    return key.topic == "state" or key.where in arm.places or key.where in arm.case.nodes


def compare_figures(a: Figure, b: Figure, resolution: float = 0.0) -> Direction:
    """SAME where the ranges of the samples touch, or lie no further apart than the source can tell."""
    if b.low > a.high + resolution:
        return Direction.UP
    if b.high < a.low - resolution:
        return Direction.DOWN
    return Direction.SAME
