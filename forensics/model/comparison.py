"""What differs between two captures, and whether they may be compared at all."""

from __future__ import annotations

import enum

from forensics.model.findings import Finding, Root, Verdict
from forensics.model.records import EvidenceRef, Record


class Direction(str, enum.Enum):
    """How a figure or a fact changed from before to after."""

    UP = "up"
    DOWN = "down"
    CHANGED = "changed"
    """Another value of something that has no order: a version, a setting."""
    APPEARED = "appeared"
    """Not there before, though its source was read."""
    GONE = "gone"
    """Not there after, though its source was read."""
    SAME = "same"
    """Equal, or within the noise of the samples."""
    ONLY_BEFORE = "only before"
    """Its source was not read after: nothing is known of a change."""
    ONLY_AFTER = "only after"


class Figure(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A number as it was sampled: its mean, and the lowest and highest sample. low == high with one sample says nothing of its noise."""

    value: float
    low: float
    high: float
    samples: int = 1


class Change(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One thing, on both sides."""

    topic: str
    """state | load | progress | cpu | thread | temperature | queue | wait | version | patch | config | memory"""
    where: str
    """Node, and rank or role: never a pid."""
    what: str
    direction: Direction
    before: Figure | str | None = None
    after: Figure | str | None = None
    unit: str = ""
    refs: tuple[EvidenceRef, ...] = ()


class Comparison(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Two captures beside each other."""

    before: tuple[str, ...]
    """Inputs, by name."""
    after: tuple[str, ...]
    verdicts: tuple[Verdict, Verdict]
    roots: tuple[Root, Root]
    captured: bool
    """Whether both sides are captures: bare files tell less."""
    changes: tuple[Change, ...] = ()
    load: str = ""
    """Whether the load was comparable, in one sentence."""
    believe: str = ""
    """Which direction of result may be believed, in one sentence."""
    findings: tuple[Finding, ...] = ()
    unmatched: tuple[str, ...] = ()
    """Engines, nodes and ranks that were seen on one side only, in words."""
