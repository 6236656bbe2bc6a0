"""What a scan yields, and its bounds."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

from forensics.analysis.buffers import Buffer

LINE_BYTES = 64 * 1024
"""A longer line (a dumped batch) is cut here: what a signature needs stands at its head."""
PIECE_BYTES = 1024 * 1024
"""How much is looked at at once: it stays in the processor's cache between the search and the count of lines."""
EVERY_BYTES = 32 * 1024 * 1024
"""In a log up to this size every candidate is taken apart; in a larger one, repeated hits are counted instead."""
STATS_LINES = 40_000
"""So many lines of counters are all read, however large the log: four days of one engine."""
STATS_CHOSEN = 12_000
"""…and about so many where there are more."""
TAIL_BYTES = 4 * 1024 * 1024
"""The end of a log is where the incident mostly is: there every line of counters is read."""
FIRST, LAST = 12, 8
"""Of hits that are the same, so many from the beginning and from the end are kept; those between are counted."""


class Candidate(NamedTuple):
    """A line in which literals stand."""

    start: int
    """Offset of the line; of a line longer than LINE_BYTES, not further than that before the literal."""
    literals: tuple[int, ...]
    """Which, as indexes into the plan, the leftmost first."""
    lines: int = 1
    """How many lines it stands for."""


@dataclass
class Found:
    """All candidates of one log in order."""

    candidates: list[Candidate] = field(default_factory=list)
    lines: int = 0
    """How many lines the log has; a last one without its end is one, too."""
    notes: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Offsets at which a count of lines is known…"""
    before: list[int] = field(default_factory=list)
    """…and how many lines end before each."""

    def number(self, data: Buffer, offset: int) -> int:
        """The number of the line (from 1) that holds `offset`."""
        i = max(0, bisect.bisect_right(self.starts, offset) - 1)
        start, before = (self.starts[i], self.before[i]) if self.starts else (0, 0)
        return before + data[start:offset].count(b"\n") + 1
