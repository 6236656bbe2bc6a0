"""What was expected to be seen and what was: every node x rank x source has a word."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.analysis import shape
from forensics.analysis.rules import SOURCES
from forensics.analysis.sources import COLLECTOR_OF, observed, of_source
from forensics.analysis.view import View
from forensics.engines import WORLD_LIMIT
from forensics.model import (
    Coverage,
    CoverageCell,
    CpuSample,
    EngineProcess,
    LogHit,
    LogSpan,
    Outcome,
    ProcessState,
    ThreadStack,
    ranges,
)

PER_RANK = ("stacks", "process", "cpu", "log")
"""Sources that look at each rank by itself; the others look at a node."""


def of_engine(view: View) -> Coverage:
    """Coverage of one engine: expected ranks and nodes from its own configuration against what was read."""
    places = {(w.info.node, w.pid): place for w in view.workers if (place := _place(view, w)) is not None}
    known = set(places.values())
    total = (view.engine.world_size or 0) * view.engine.dp_size
    expected = set(range(total if total <= WORLD_LIMIT else 0)) | known
    looked_at: set[int] = set()
    cells = []
    for worker in view.workers:
        rank = places.get((worker.info.node, worker.pid))
        for source in PER_RANK:
            word, reason, cure = _cell(view, source, worker.info.node, worker.pid)
            node = worker.info.node
            cells.append(CoverageCell(node=node, source=source, outcome=word, rank=rank, pid=worker.pid, reason=reason, cure=cure))
            if rank is not None and word in (Outcome.OK, Outcome.PARTIAL):
                looked_at.add(rank)
    stated = shape.told(view)
    # several of the engine's nodes may run on one host: each has its own number
    numbers = {s.node_rank for s in stated if s.nodes is not None and s.node_rank is not None}
    unseen_nodes = max(0, (shape.in_force(stated, "nodes") or 1) - max(len(view.nodes), len(numbers)))
    if view.engine.heard or (not view.engine.processes and view.engine.world_size):
        # known by its logs alone: a node's log is that of all its ranks, whether each had something to say or not
        spoken = {rank: node for node, rank in view.engine.heard if rank not in known}
        logs = {s.node for s in view.on_nodes(LogSpan)}
        for rank in sorted((expected | spoken.keys()) - known):
            if rank in spoken or (not unseen_nodes and logs >= set(view.nodes)):
                node = spoken.get(rank, view.nodes[0])
                for source in PER_RANK:
                    found = (Outcome.OK, "", "") if source == "log" else _cell(view, source, node, None)
                    cells.append(CoverageCell(node=node, source=source, outcome=found[0], rank=rank, reason=found[1], cure=found[2]))
                looked_at.add(rank)
                known.add(rank)
        expected |= spoken.keys()
    for rank in sorted(expected - known):
        cells += [CoverageCell(node="?", source=s, outcome=Outcome.SKIPPED, rank=rank, reason="this rank was not found") for s in PER_RANK]
    if unseen_nodes:
        # nobody knows their names: one square a source stands for all of them
        said = f"{unseen_nodes} node(s) of this engine were not captured"
        cells += [CoverageCell(node="?", source=s, outcome=Outcome.SKIPPED, reason=said) for s in SOURCES]
    for node in view.nodes:
        for source in SOURCES:
            if source not in PER_RANK or not any(w.info.node == node for w in view.workers):
                found = _cell(view, source, node, None)
                cells.append(CoverageCell(node=node, source=source, outcome=found[0], reason=found[1], cure=found[2]))
    seen_nodes = {o.node for kind in (ThreadStack, ProcessState, LogSpan) for o in view.on_nodes(kind)}
    return Coverage(
        expected_ranks=tuple(sorted(expected)),
        seen_ranks=tuple(sorted(looked_at)),
        expected_nodes=view.nodes,
        seen_nodes=tuple(sorted(seen_nodes & set(view.nodes))),
        unseen_node_count=unseen_nodes,
        replica_size=(view.engine.world_size or 0) if view.engine.dp_size > 1 else 0,
        ranks_stated=any(s.world_size is not None for s in stated),
        stated=stated,
        disagreements=shape.disagreements(stated),
        cells=tuple(cells),
    )


def _place(view: View, worker: EngineProcess) -> int | None:
    """The one number that stands for this worker among all ranks of its engine; None where it cannot be told.

    Replicas of a dense model are worlds of their own, and each has a rank 0: one that was seen is no witness for its namesake.
    """
    rank, world, replicas = worker.rank, view.engine.world_size, view.engine.dp_size
    if rank is None or rank.rank is None or replicas == 1 or world is None or rank.world_size == world * replicas:
        return rank.rank if rank else None
    return rank.dp * world + rank.rank if rank.dp is not None else None


def _cell(view: View, source: str, node: str, pid: int | None) -> tuple[Outcome, str, str]:
    collector = COLLECTOR_OF.get(source, source)
    here = view.case.attempts_of(node, collector)
    tried = of_source(source, [a for a in here if pid is None or a.origin is None or a.origin.pid in (None, pid)])
    if not tried:
        if _bare(view, source, node, pid):
            return Outcome.OK, "", ""
        return Outcome.SKIPPED, "never collected", ""
    # of several tries at one thing (samples, fallbacks) the best one says what was seen
    best = min(tried, key=lambda a: list(Outcome).index(a.outcome))
    return best.outcome, best.reason, best.cure


def _bare(view: View, source: str, node: str, pid: int | None) -> bool:
    if source == "log":
        if pid is None:
            return any(s.node == node for s in view.on_nodes(LogSpan))
        return any(h.pid == pid and h.node == node for h in view.of(LogHit)) or any(
            pid in s.pids for s in view.on_nodes(LogSpan) if s.node == node
        )
    if source == "stacks" and pid is not None:
        return any(s.pid == pid and s.node == node for s in view.of(ThreadStack))
    if source == "process" and pid is not None:
        return any(s.pid == pid and s.node == node for s in view.of(ProcessState))
    if source == "cpu" and pid is not None:
        return any(s.pid == pid and s.node == node for s in view.of(CpuSample))
    return observed(view, source, node)


def gap(seen: Coverage) -> str:
    """What was not seen, in words; "" when nothing is missing."""
    parts = []
    if unseen := sorted(set(seen.expected_ranks) - set(seen.seen_ranks)):
        size = seen.replica_size
        names = ", ".join(f"{n % size} of replica {n // size}" for n in unseen) if size else ranges(unseen)
        who = f"ranks {names} were" if len(unseen) > 1 else f"rank {names} was"
        parts.append(f"{who} not seen ({len(seen.expected_ranks)} expected)")
    if missing := sorted(set(seen.expected_nodes) - set(seen.seen_nodes)):
        parts.append(f"nothing was read of node{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
    if seen.unseen_node_count:
        parts.append(f"{seen.unseen_node_count} node(s) of this engine were not captured")
    return "; ".join(parts)


def join(parts: Sequence[Coverage]) -> Coverage:
    """Coverage of a whole report. Ranks of several engines share numbers, so they only join when there is one engine."""
    if len(parts) == 1:
        return parts[0]
    nodes = tuple(dict.fromkeys(n for p in parts for n in p.expected_nodes))
    seen = tuple(dict.fromkeys(n for p in parts for n in p.seen_nodes))
    offset, expected, looked = 0, [], []
    for part in parts:
        expected += [offset + i for i, _ in enumerate(part.expected_ranks)]
        looked += [offset + i for i, r in enumerate(part.expected_ranks) if r in part.seen_ranks]
        offset += len(part.expected_ranks)
    return Coverage(
        expected_ranks=tuple(expected),
        seen_ranks=tuple(looked),
        expected_nodes=nodes,
        seen_nodes=seen,
        unseen_node_count=sum(p.unseen_node_count for p in parts),
        ranks_stated=all(p.ranks_stated for p in parts if p.expected_ranks),
        stated=tuple(dict.fromkeys(s for p in parts for s in p.stated)),
        disagreements=tuple(dict.fromkeys(d for p in parts for d in p.disagreements)),
        cells=tuple(c for p in parts for c in p.cells),
    )
