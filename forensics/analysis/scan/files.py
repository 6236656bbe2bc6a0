"""A whole log: cut into chunks, searched by as many processes as there are processors, put together in order."""

from __future__ import annotations

import gc
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from forensics.analysis.buffers import Buffer
from forensics.analysis.scan._base import EVERY_BYTES, PIECE_BYTES, STATS_CHOSEN, STATS_LINES, TAIL_BYTES, Candidate, Found
from forensics.analysis.scan.fold import Fold, Group, Key, group_of
from forensics.analysis.scan.literals import FALLBACK_NOTE, Plan, engine_of_search
from forensics.analysis.scan.pieces import Chunk, Job, search

CHUNK_BYTES = 64 * 1024 * 1024
PARALLEL_BYTES = 16 * 1024 * 1024
"""A smaller log is read before other processes had begun."""
WORKERS = 8
LOOKS, LOOK_BYTES = 64, 64 * 1024
"""How the number of stats lines is estimated: in so many places, so much."""
NEAR_BYTES, NEAR_LINES = 256 * 1024, 3
"""Around a line that says how an engine is, so many stats lines within so many bytes are read, however few are chosen elsewhere."""
NEAR_FIRST, NEAR_LAST = 100, 400
"""…around so many of the first and of the last of those lines."""
MEANT = ": so are large logs read"
"""End of the sentences about what was not read on purpose."""
NEAR = frozenset({"wait", "timeout", "hang", "held", "exception", "told", "worker-death", "fatal", "death-told", "stop", "ready"})

_shared: tuple[Buffer, Job, Fold | None] | None = None
"""What forked workers inherit."""


def scan(data: Buffer, plan: Plan, who: Callable[[str], tuple[str, str]]) -> Found:
    """Search one log. `who` tells of a line (its message, what of its prefix tells two writers apart).

    A mapped one may be larger than the memory. Not for two threads at once.
    """
    size = len(data)
    large = size > EVERY_BYTES
    few, estimate = _stats_lines(data, plan) if large else (0, 0)
    job = Job(plan, size, who, fold=large, stats_lines=few, release=large)
    found = Found()
    if engine_of_search() != "hyperscan":
        found.notes.append(FALLBACK_NOTE)
    groups: dict[Key, Group] = {}
    before = 0
    for chunk in _chunks(data, job):
        found.candidates += chunk.candidates
        found.starts += chunk.starts
        for lines in chunk.counts:
            found.before.append(before)
            before += lines
        for key, group in chunk.groups.items():
            group_of(groups, key).join(group)
    found.lines = before + (1 if size and data[size - 1 :] != b"\n" else 0)
    if groups:
        _put_together(data, found, groups, plan, bool(few))
    if few:
        used = sum(any(literal >= plan.stats for literal in c.literals) for c in found.candidates)
        found.notes.append(
            f"about {estimate} lines of counters: {used} of them were read, all of the last {TAIL_BYTES >> 20} MiB, "
            f"around every line that says how an engine is, and at every standstill that the counters show{MEANT}"
        )
    return found


def _put_together(data: Buffer, found: Found, groups: dict[Key, Group], plan: Plan, few: bool) -> None:
    kept = [c for group in groups.values() for c in group.kept()]
    known = {c.start: c for c in found.candidates}
    if few:
        kinds = sorted({literal for c in found.candidates for literal in c.literals if literal >= plan.stats})
        tell = sorted(c.start for c in kept if any(s.event in NEAR for literal in c.literals for s in plan.signatures[literal]))
        for start in (*tell[:NEAR_FIRST], *tell[NEAR_FIRST:][-NEAR_LAST:]):
            known.update((n.start, n) for n in _near(data, start, plan, kinds))
    # a stats line that another signature fits as well: it is taken apart once, and both are tried
    known.update((c.start, c._replace(literals=(*c.literals, *known[c.start].literals)) if c.start in known else c) for c in kept)
    found.candidates = sorted(known.values())


def _near(data: Buffer, start: int, plan: Plan, kinds: list[int]) -> Iterator[Candidate]:
    """The stats lines of these kinds around an offset."""
    for literal in kinds:
        text = plan.literals[literal]
        low, high = max(0, start - NEAR_BYTES), min(len(data), start + NEAR_BYTES)
        places = []
        at = start
        for _ in range(NEAR_LINES):
            if (at := data.rfind(text, low, at)) < 0:
                break
            places.append(at)
        at = start
        for _ in range(NEAR_LINES):
            if (at := data.find(text, at + 1, high)) < 0:
                break
            places.append(at)
        for at in places:
            yield Candidate(data.rfind(b"\n", low, at) + 1, (literal,))


def _stats_lines(data: Buffer, plan: Plan) -> tuple[int, int]:
    """How many stats lines of each piece are used (0: all) and how many there are, estimated from a look in a few places."""
    size = len(data)
    step = max(LOOK_BYTES, size // LOOKS)
    looked = seen = 0
    for begin in range(0, size, step):
        part = data[begin : begin + LOOK_BYTES]
        looked += len(part)
        seen += sum(part.count(text) for text in plan.literals[plan.stats :])
    estimate = seen * size // max(1, looked)
    return (0 if estimate <= STATS_LINES else max(1, STATS_CHOSEN * PIECE_BYTES // size)), estimate


def _chunks(data: Buffer, job: Job) -> Iterator[Chunk]:
    """The chunks in order."""
    workers = min(len(os.sched_getaffinity(0)), WORKERS)
    if job.size < PARALLEL_BYTES or workers < 2 or threading.active_count() > 1:  # a fork copies no threads, and so no locks of theirs
        workers = 1
    count = max(1, math.ceil(job.size / CHUNK_BYTES))
    if workers > 1:
        count = max(count, 2 * workers)
    step = math.ceil(job.size / count)
    spans = [(begin, min(begin + step, job.size)) for begin in range(0, job.size, step)] if step else []
    done = 0
    if workers > 1:
        try:
            for chunk in _in_parallel(data, job, spans, workers):
                yield chunk
                done += 1
        except (BrokenProcessPool, OSError):  # a worker was killed, or none could be started: the rest is done here
            pass
    fold = Fold(job.plan, job.who) if job.fold else None
    for begin, end in spans[done:]:
        yield search(data, begin, end, job, fold)


def _in_parallel(data: Buffer, job: Job, spans: list[tuple[int, int]], workers: int) -> Iterator[Chunk]:
    import multiprocessing

    global _shared
    _shared = data, job, Fold(job.plan, job.who) if job.fold else None
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), initializer=gc.disable) as pool:
            yield from pool.map(_work, spans)
    finally:
        _shared = None


def _work(span: tuple[int, int]) -> Chunk:
    assert _shared is not None
    data, job, fold = _shared
    return search(data, *span, job, fold)
