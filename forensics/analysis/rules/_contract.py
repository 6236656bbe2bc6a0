"""What a rule is. One file a rule: what it claims, what it needs, how it grades, when it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forensics.model import EvidenceRef, Finding, Grade

if TYPE_CHECKING:
    from forensics.analysis.compare.arm import Arm
    from forensics.analysis.view import View

SOURCES: tuple[str, ...] = (
    *("log", "stacks", "metrics", "process", "cpu", "sockets", "rings", "objects"),
    *("health", "memory", "kernel", "gpu", "thermal", "patches", "clock", "builds"),
)
"""Kinds of evidence that a rule may require; the coverage grid has a column for each."""


class CannotTell(Exception):
    """Raised by a rule whose evidence is there but does not decide. Becomes INCONCLUSIVE, with `missing` under would_settle."""

    def __init__(self, reason: str, *missing: str) -> None:
        super().__init__(reason)
        self.missing = missing


@dataclass(frozen=True, kw_only=True)
class Text:
    """What an expert at 3 a.m. should know of one finding id; `forensics explain ID` prints it."""

    says: str
    """What the finding means, in a sentence or two."""
    establishes: str
    """What must have been observed for grade established, or that it is never more than a lower grade."""
    lower: str = ""
    """What a lower grade of it means; "" where nothing is to be said beyond the general meaning of the grades."""
    false_positives: str = ""
    """When it is wrong or only looks right; "" where the rule's own words cover it."""
    next_steps: tuple[str, ...] = ()
    """What to do; a finding for which its rule has no steps of its own gets these."""
    while_lasts: tuple[str, ...] = ()
    """Steps that are added while it lasts: for a finding that has an end they come too late."""
    over_nodes: tuple[str, ...] = ()
    """The same, and only where the engine spans several nodes."""
    references: tuple[str, ...] = ()
    """Beside those of the rule."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A claim that can be tested against the evidence of one engine (or of the nodes)."""

    name: str
    texts: Mapping[str, Text] = field(default_factory=dict)
    """What each finding id that it may make means."""
    emits: tuple[str, ...] = ()
    """Finding ids that it may make: those that it has texts for."""
    about: str
    """What it claims, one sentence."""
    requires: tuple[str, ...] = ()
    """Sources of which each must have been seen: with one missing the rule is INCONCLUSIVE, never CLEAR."""
    any_of: tuple[str, ...] = ()
    """Sources of which one is enough to ask the question."""
    optional: tuple[str, ...] = ()
    """Sources that sharpen the grade."""
    of_nodes: bool = False
    """It asks about machines: it is also asked of nodes on which no engine was recognised."""
    across: bool = False
    """It compares engines: it is asked after all of them were judged, and reads `view.case.judged`."""
    applies: Callable[[View], str] = field(default=lambda view: "")
    """"" when the question arises, else why not."""
    evaluate: Callable[[View], Iterable[Finding]]
    false_positives: str = ""
    references: tuple[str, ...] = ()
    origin: str = ""
    """The file of an operator's own rule; "" for one that ships with the tool."""

    def __post_init__(self) -> None:
        if not self.emits:
            object.__setattr__(self, "emits", tuple(self.texts))


def _asks_two(view: View) -> Iterable[Finding]:
    raise CannotTell("it compares two captures: forensics diff asks it")


@dataclass(frozen=True, kw_only=True)
class PairRule(Rule):
    """A claim about two sides of a comparison: `forensics diff` asks it, an analysis of one side never does."""

    evaluate: Callable[[View], Iterable[Finding]] = _asks_two
    compare: Callable[[Arm, Arm], Iterable[Finding]]


def grade(
    *, observed: bool = False, alternatives: Sequence[str] = (), agreeing: int = 0, against: Sequence[EvidenceRef] = (), whole: bool = True
) -> Grade:
    """The grade that stated conditions allow.

    observed: the mechanism itself was seen. alternatives: other readings that fit the captured evidence as well.
    agreeing: independent observations that point the same way. against: observations that contradict the claim.
    whole: nothing that could contradict it went unseen (denied, timed out, a rank not looked at).
    """
    if against:
        return Grade.REFUTED
    if observed and not alternatives and whole:
        return Grade.ESTABLISHED
    if observed or agreeing >= 2:
        return Grade.SUPPORTED
    return Grade.POSSIBLE
