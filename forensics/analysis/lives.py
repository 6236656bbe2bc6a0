"""The lives of one engine: from each start to the next. What broke in an earlier life explains nothing of a later one.

Logs are appended to over restarts, and a container gives the same pids again, so lines must be told apart by the life that
they belong to: by their place after a start in their own file, else by their time against the head's starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from forensics.model import EvidenceRef, LogHit, TimeRange

START_NS = 5 * 10**9
"""Several fronts of one engine print their start-up lines within this time."""
STARTS = ("start", "core-start")
DEATHS = ("fatal", "death-told")
FAILED = ("start-failed", *DEATHS)
"""What ends a start that was never ready: whatever starts after it is another one."""
LINGERS_NS = 300 * 10**9
"""A core that printed its fatal line is gone within seconds, and under fault tolerance within two minutes."""

File = tuple[str, str]
"""(node, name) of one log."""


def line_number(ref: EvidenceRef) -> int:
    """The line that a log's reference points at; 0 where it points at the whole file."""
    last = ref.locator.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


@dataclass(frozen=True)
class Lives:
    """When one engine was started, and where each of its logs shows it."""

    starts: tuple[int, ...] = ()
    """ns; lines before the first belong to life 0, of which the start is not known."""
    by_file: dict[File, tuple[int, ...]] = field(default_factory=dict)
    """Line numbers of the starts, for files that show as many of them as the head does."""

    @property
    def last(self) -> int:
        return len(self.starts)

    def begun_ns(self, life: int) -> int | None:
        return self.starts[life - 1] if life else None

    def replaced_ns(self, life: int) -> int | None:
        """Start of the next life; None for the last."""
        return self.starts[life] if life < self.last else None

    def of(self, node: str, ref: EvidenceRef, at: TimeRange | None) -> int:
        """The life in which a line was written; the last where neither its file nor its time tells."""
        lines = self.by_file.get((node, ref.source))
        if lines is not None and (number := line_number(ref)):
            return bisect_right(lines, number)
        return bisect_right(self.starts, at.earliest_ns) if at else self.last


def split(hits: Sequence[LogHit], alive_ns: int | None = None) -> Lives:
    """Find the starts in all hits of one engine (in order of time). Without a start-up line there is one life, 0.

    alive_ns: when its cores were seen alive. A death long before that was of an earlier life, though no log shows the start.
    """
    files: dict[File, list[LogHit]] = defaultdict(list)
    for hit in hits:
        if hit.event in (*STARTS, "ready"):
            files[hit.node, hit.ref.source].append(hit)
    for hit in hits:
        if hit.event in FAILED and (hit.node, hit.ref.source) in files:
            files[hit.node, hit.ref.source].append(hit)
    for told in files.values():
        told.sort(key=lambda h: line_number(h.ref))
    # a follower is started at its own time, by its own clock: only nodes that also say "ready" tell when the engine began
    heads = {node for (node, _), told in files.items() if any(h.event in ("ready", "core-start") for h in told)}
    if heads:
        heads = {min(heads, key=lambda node: (-sum(_told(t) for (n, _), t in files.items() if n == node), node))}
    shown = sorted((h for (n, _), t in files.items() if n in heads or not heads for h in t), key=lambda h: h.at.earliest_ns if h.at else 0)
    starts = tuple(h.at.earliest_ns for h in _starts(shown) if h.at)
    deaths = [h.at.latest_ns for h in hits if h.event in DEATHS and h.at]
    if alive_ns is not None and deaths and max(deaths) > max(starts, default=0) and alive_ns - max(deaths) > LINGERS_NS:
        starts = (*starts, max(deaths) + LINGERS_NS // 2)
    own = {file: tuple(line_number(h.ref) for h in _starts(told)) for file, told in files.items()}
    return Lives(starts, {file: lines for file, lines in own.items() if len(lines) == len(starts)})


def _told(hits: Sequence[LogHit]) -> int:
    """How many lines speak of starts."""
    return sum(h.event not in FAILED for h in hits)


def _starts(told: Sequence[LogHit]) -> list[LogHit]:
    """The first line of each start."""
    begun: list[LogHit] = []
    starting = False
    failed: TimeRange | None = None
    for hit in told:
        if hit.event in FAILED:
            failed = hit.at if starting else failed
            continue
        start = hit.event in STARTS
        if start and hit.at:
            # the core's own line follows the front's within one start; a front that comes later is another start
            before = begun[-1].at.earliest_ns if begun and begun[-1].at else None
            again = hit.event == "start" and before is not None and hit.at.earliest_ns - before > START_NS
            again = again or (failed is not None and hit.at.earliest_ns - failed.latest_ns > START_NS)
            if not starting or again:
                begun.append(hit)
                failed = None
        starting = start
    return begun
