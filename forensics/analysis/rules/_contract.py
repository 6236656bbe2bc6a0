"""What a rule is. One file a rule: what it claims, what it needs, how it grades, when it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forensics.model import EvidenceRef, Finding, Grade

if TYPE_CHECKING:
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
class Rule:
    """A claim that can be tested against the evidence of one engine (or of the nodes)."""

    name: str
    emits: tuple[str, ...]
    """Finding ids that it may make."""
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
