"""What the operator suspects, each suspicion with its ledger: what speaks for it, what against it, and what nobody looked at."""

from __future__ import annotations

from forensics.model.grade import Grade
from forensics.model.records import EvidenceRef, Record


class LedgerEntry(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a ledger, with its figure."""

    text: str
    node: str = ""
    """"" where it speaks of the engine as a whole."""
    part: str = ""
    """Of what it speaks: "host memory", "GPUs"."""
    decides: bool = False
    """It settles its part of the question; another entry only leans to its side."""
    finding: str = ""
    """Id of the finding that it comes from."""
    ref: EvidenceRef | None = None


class NodeAnswer(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict for one node ("" for the engine as a whole): what was not looked at there is refuted by nothing."""

    node: str
    verdict: Grade
    said: tuple[str, ...] = ()
    """The entries that it rests on, in words."""


class Hypothesis(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A suspicion and what the evidence says to it."""

    name: str
    """memory | thermal | cpu | power | overload | network | patch:NAME"""
    claim: str
    """The sentence that is tested."""
    verdict: Grade
    """Supported, possible, refuted or not assessable. Refuted only where it is refuted for every node of the engine."""
    sentence: str
    """The verdict in words, with figures and with the nodes for which it holds."""
    engine: str = ""
    asked: bool = False
    """The operator named it; the others are answered in every report."""
    supporting: tuple[LedgerEntry, ...] = ()
    against: tuple[LedgerEntry, ...] = ()
    unread: tuple[LedgerEntry, ...] = ()
    """What nobody looked at, and what was looked at too late to decide."""
    nodes: tuple[NodeAnswer, ...] = ()
    does_not_show: str = ""
