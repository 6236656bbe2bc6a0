"""What a hypothesis is: a claim, and how the evidence is asked about it. One file a hypothesis.

A ledger has parts ("host memory", "GPUs") and nodes. A part is answered by what was read of it on a node at the time in
question. The verdict of a node, and then of the engine, follows from the entries alone: see forensics.analysis.hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import (
    Coverage,
    EvidenceRef,
    Finding,
    FindingRole,
    Grade,
    KernelSpan,
    LedgerEntry,
    LogSpan,
    Observation,
    Outcome,
    TimeRange,
)

O = TypeVar("O", bound=Observation)  # noqa: E741 the one type variable of this module

Side = Literal["for", "against", "unread"]
Told = tuple[Side, LedgerEntry]
NEAR_S = 330.0
"""How far from the onset a reading of what changes quickly (heat, clocks, load) may lie: an engine's own limit of 300 s and a moment."""
NEAR_MEMORY_S = 600.0
"""The same for memory, which a process that stands still keeps."""


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """A hypothesis that can be tested. `evaluate` yields the entries of its ledger."""

    name: str
    claim: str
    evaluate: Callable[[Ask], Iterable[Told]]
    always: bool = False
    """Answered in every report, asked or not."""
    of_nodes: bool = True
    """It is answered node by node; else for the engine as a whole."""
    takes: str = ""
    """What follows its name after a colon: "NAME" of a patch. "" where nothing does."""
    does_not_show: str = ""


@dataclass(frozen=True)
class Ask:
    """The question as it is put to one engine."""

    view: View
    findings: Sequence[Finding]
    onset: TimeRange | None
    """When the trouble began."""
    troubled: bool
    """Whether anything is wrong, so that the time of the onset matters. Of a sound engine any reading speaks."""
    root: str = ""
    """Id of the finding that broke first."""
    argument: str = ""
    ended_ns: int | None = None
    """When the first part of the engine had ended, where something is wrong."""
    seen: Coverage = field(default_factory=Coverage)

    # ---- time

    def near(self, at: TimeRange | None, window_s: float = NEAR_S) -> bool:
        """Whether a reading of this time can speak of the onset: whenever within its range that was."""
        if not self.troubled:
            return True
        if at is None or self.onset is None:
            return False
        window = round(window_s * SECOND)
        return self.onset.latest_ns - window <= at.earliest_ns and at.latest_ns <= self.onset.earliest_ns + window

    def outlasted(self, at: TimeRange | None) -> bool:
        """Whether the reading came after a part of the engine had ended: what that used is free again, and what it did is over."""
        return self.ended_ns is not None and (at is None or at.earliest_ns > self.ended_ns)

    def decides(self, at: TimeRange | None, window_s: float = NEAR_S) -> bool:
        """Whether a reading that shows nothing wrong can refute: taken near the onset, and before anything had ended."""
        return self.near(at, window_s) and not self.outlasted(at)

    def when(self, at: TimeRange | None) -> str:
        """ "12 s after the onset", "during the capture", "at an unknown time"."""
        if not self.troubled:
            return "when it was looked at"
        if at is None:
            return "at an unknown time"
        if self.onset is None:
            return "when it was looked at (when the trouble began is not known)"
        if at.latest_ns < self.onset.earliest_ns:
            return f"{duration((self.onset.earliest_ns - at.latest_ns) / SECOND)} before the onset"
        after, known = (at.earliest_ns - self.onset.earliest_ns) / SECOND, self.onset.latest_ns - self.onset.earliest_ns < 2 * SECOND
        late = f"{'' if known else 'at most '}{duration(max(after, 0))} after the onset" if after >= 1 else "at the onset"
        return f"{late} and after the end of a process" if self.outlasted(at) else late

    def nearest(self, observations: Iterable[O], window_s: float = NEAR_S) -> list[O]:
        """Those that can decide, where there are any; else the one that lies nearest to the onset."""
        found = list(observations)
        good = [o for o in found if self.decides(o.at, window_s)]
        if good or not found:
            return good
        onset = self.onset.earliest_ns if self.onset else 0
        return [min(found, key=lambda o: (o.at is None, abs(o.at.earliest_ns - onset) if o.at else 0))]

    # ---- what was read

    def on(self, node: str, kind: type[O]) -> list[O]:
        return [] if self.view.past else self.view.case.on(node, kind)

    def heard(self, node: str) -> LogSpan | None:
        """A log of this node that goes over the onset: what is always printed, and is not there, did not happen."""
        # a log that was captured was read to its end, however long ago its last line was written
        end = self.view.case.captured.get(node)
        spans = self.on(node, LogSpan)
        return next((s for s in spans if self._covers(s.first_ns, max(s.last_ns or 0, end.latest_ns if end else 0))), None)

    def kernel(self, node: str) -> KernelSpan | None:
        """The same of the kernel's log."""
        spans = [s for s in self.on(node, KernelSpan) if s.lines and not s.previous_boot]
        # lines that count from a boot of unknown time begin with the boot
        return next((s for s in spans if s.at is None or self._covers(s.at.earliest_ns, None)), None)

    def _covers(self, first_ns: int | None, last_ns: int | None) -> bool:
        if not self.troubled:
            return True
        if self.onset is None or first_ns is None:
            return False
        return first_ns <= self.onset.latest_ns and (last_ns is None or last_ns >= self.onset.earliest_ns)

    def absent(self, source: str, node: str) -> bool:
        """Whether the capture looked for this source on the node and there is none (a machine without GPUs, without sensors)."""
        tried = [a.outcome for a in self.view.case.attempts_of(node, source)]
        return bool(tried) and all(o is Outcome.ABSENT for o in tried)

    def of(self, *ids: str, node: str = "") -> list[Finding]:
        """Findings of these ids that claim something, of this node where one is named."""
        mine = [f for f in self.findings if f.id in ids and f.grade.strength > 0]
        return [f for f in mine if not node or not f.nodes or node in f.nodes]

    def from_findings(self, part: str, *ids: str, node: str = "", decide: bool = True, window_s: float = NEAR_S) -> Iterator[Told]:
        """Findings as entries for the claim.

        One decides where it is at least supported, is no mere circumstance of another time, and lies near the onset. What
        came with the teardown is a consequence and no entry.
        """
        for f in self.of(*ids, node=node):
            if f.role is FindingRole.TEARDOWN:
                continue
            timely = f.since is None or self.near(f.since, window_s)
            firm = f.grade.strength >= Grade.SUPPORTED.strength and f.role is not FindingRole.CONTEXT
            yield (
                "for",
                LedgerEntry(
                    text=f.title, node=node, part=part, decides=decide and firm and timely, finding=f.id, ref=next(iter(f.because), None)
                ),
            )


def entry(
    text: str, *, node: str = "", part: str = "", decides: bool = False, finding: str = "", ref: EvidenceRef | None = None
) -> LedgerEntry:
    return LedgerEntry(text=text, node=node, part=part, decides=decides, finding=finding, ref=ref)


def unread(what: str, *, node: str = "", part: str = "") -> Told:
    return "unread", LedgerEntry(text=what, node=node, part=part or what)
