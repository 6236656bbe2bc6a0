"""One chunk of a log, searched piece by piece."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field

from forensics.analysis.buffers import Buffer
from forensics.analysis.scan._base import LINE_BYTES, PIECE_BYTES, TAIL_BYTES, Candidate
from forensics.analysis.scan.fold import Fold, Group, Key
from forensics.analysis.scan.literals import Plan

COUNT_BYTES = 64 * 1024
"""Lines are counted in blocks of this size: the number of any line is then one short count away."""
RUNS = 16
"""Runs of telling stats lines that are kept of one piece, the last ones."""
PAGE = mmap.PAGESIZE


@dataclass
class Chunk:
    """What one chunk yielded. Offsets are those of the log."""

    candidates: list[Candidate] = field(default_factory=list)
    """Of a large log only the chosen stats lines: the rest is in `groups`."""
    groups: dict[Key, Group] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Lines that end in the block from each start."""


@dataclass(frozen=True)
class Job:
    """What is to be done with a log as a whole."""

    plan: Plan
    size: int
    who: Callable[[str], tuple[str, str]]
    """Of a line: (its message, what of its prefix tells two writers apart)."""
    fold: bool = False
    stats_lines: int = 0
    """How many stats lines of a kind are used of each piece, where there are too many; 0: all."""
    release: bool = False
    """Let go of mapped pages once they were read: the log may be larger than the memory."""


def search(data: Buffer, begin: int, end: int, job: Job, fold: Fold | None = None) -> Chunk:
    """Every line that begins in [begin, end)."""
    out = Chunk()
    position = _line_start(data, begin, job.size)
    goes_on = False
    while position < end or (goes_on and position < job.size):
        piece = bytes(data[position : position + PIECE_BYTES])
        whole = len(piece)
        if position + whole < job.size:
            # the last line goes on: it belongs to the next piece, unless it fills this one
            whole = piece.rfind(b"\n") + 1 or whole
        if position + whole > end and (last := piece.find(b"\n", max(0, end - 1 - position))) >= 0:
            whole = min(whole, last + 1)  # the rest is the next chunk's
        piece = piece[:whole] if whole < len(piece) else piece
        _piece(piece, position, job, fold, out)
        for block in range(0, whole, COUNT_BYTES):
            out.starts.append(position + block)
            out.counts.append(piece.count(b"\n", block, block + COUNT_BYTES))
        if job.release and isinstance(data, mmap.mmap):
            first = position // PAGE * PAGE
            data.madvise(mmap.MADV_DONTNEED, first, min(whole + PAGE, job.size - first))
        position += whole
        goes_on = not piece.endswith(b"\n")
    if fold is not None:
        out.groups = fold.take()
    return out


def _line_start(data: Buffer, begin: int, size: int) -> int:
    """Where the first line begins at or behind `begin`."""
    if begin == 0 or data[begin - 1 : begin] == b"\n":
        return begin
    found = data.find(b"\n", begin)
    return found + 1 if found >= 0 else size


def _piece(piece: bytes, base: int, job: Job, fold: Fold | None, out: Chunk) -> None:
    plan = job.plan
    ids, ends = plan.search(piece)
    present: list[int] = []
    telling: list[int] = []
    done = -1
    start = end = 0
    which: list[tuple[int, int]] = []
    here: list[Candidate] = []
    for i, at in zip(ids, ends, strict=True):
        if i >= plan.stats:
            if i >= len(plan.literals):
                telling.append(at)
            elif i not in present:
                present.append(i)
            continue
        if at > done:
            if which:
                _candidate(piece, base, start, end, which, job, fold, here)
            low = at - LINE_BYTES if at > LINE_BYTES else 0
            start = piece.rfind(b"\n", low, at) + 1 or low
            end = piece.find(b"\n", at)
            end = len(piece) if end < 0 else end
            done, which = end, []
        which.append((i, at))
    if which:
        _candidate(piece, base, start, end, which, job, fold, here)
    if present:
        every = not job.stats_lines or base + len(piece) > job.size - TAIL_BYTES
        for i in present:
            here += _stats(piece, base, i, 0 if every else job.stats_lines, telling, job)
        here.sort(key=lambda c: c.start)
    out.candidates += here


def _candidate(
    piece: bytes, base: int, start: int, end: int, which: list[tuple[int, int]], job: Job, fold: Fold | None, here: list[Candidate]
) -> None:
    if len(which) == 1:
        literals: tuple[int, ...] = (which[0][0],)
    else:
        # the leftmost first, of those that begin at one place the longest
        lengths = [len(job.plan.literals[i]) for i, _ in which]
        placed = sorted((at - length, -length, i) for (i, at), length in zip(which, lengths, strict=True))
        literals = tuple(dict.fromkeys(i for _, _, i in placed))
    if fold is None:
        here.append(Candidate(base + start, literals))
    else:
        fold.add(base + start, literals, piece, start, end)


def _stats(piece: bytes, base: int, literal: int, most: int, telling: list[int], job: Job) -> list[Candidate]:
    """The stats lines of one kind that go on: all; or the first few of the piece, its last, and those around lines that tell."""
    text = job.plan.literals[literal]
    places = set()
    position = -1
    while (position := piece.find(text, position + 1)) >= 0:
        places.add(position)
        if len(places) == most:
            break
    if most:
        places.add(piece.rfind(text))
        for run in _runs(piece, text, telling)[-RUNS:]:
            # the line before and the line after say where the run begins and ends
            first, last = run[0], run[-1]
            before = piece.rfind(b"\n", 0, first) + 1
            after = piece.find(b"\n", last)
            around = (piece.rfind(text, 0, before), piece.find(text, after) if after >= 0 else -1)
            places.update((*(piece.rfind(text, 0, at) for at in (*run[:3], *run[-3:])), *around))
    places.discard(-1)
    return [Candidate(base + piece.rfind(b"\n", 0, at) + 1, (literal,)) for at in places]


def _runs(piece: bytes, text: bytes, telling: list[int]) -> list[list[int]]:
    """Telling lines without another stats line between them, in order."""
    runs: list[list[int]] = []
    after = -1
    for at in telling:
        start = piece.rfind(text, 0, at)
        if start < 0:
            continue
        if after >= 0 and piece.find(text, after, start + 1) == start:
            runs[-1].append(at)
        else:
            runs.append([at])
        after = piece.find(b"\n", at)
        if after < 0:
            break
    return runs
