"""Ranks that are somewhere else than most of their peers, and where they left the common way.

Being alone somewhere is no guilt and no finding: it is where to look first. Compared are threads of the same name, of ranks of
the same role and parallel group, in the same sample; only a place where more than half of them pass is a majority, so that two
ranks that differ have no outlier. Healthy ranks part for moments: an outlier is who was apart in each sample that shows it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forensics.analysis.merge import ThreadKey, Tree
from forensics.analysis.peers import Peers, Process
from forensics.model import ThreadStack

MAIN = "MainThread"
_NUMBERED = re.compile(r"^Thread-\d+")
_Crew = tuple[str, str, str]
"""role, group, thread"""


@dataclass(frozen=True, slots=True)
class Outlier:
    """Ranks that left the way of the majority at the same step and stand at the same place. Steps are nodes of the tree."""

    role: str
    group: str
    thread: str
    processes: tuple[Process, ...]
    ranks: tuple[int, ...]
    shared: int
    """The last step that they have in common with the majority; 0 (the root) when they have none."""
    next: int
    """The first step of their own; equal to `shared` when they end there."""
    stands: int
    """Their innermost step."""
    majority: int
    """The innermost step at which more than half of the peers are together."""
    majority_ranks: tuple[int, ...]
    samples: int
    """In how many samples they were compared, and apart in each."""
    visits: tuple[int, ...]
    """Places in Tree.visits of their newest stacks."""


@dataclass(frozen=True, slots=True)
class _Apart:
    sample: int
    visit: int
    shared: int
    next: int
    majority: int
    majority_ranks: tuple[int, ...]


def outliers(tree: Tree, peers: Peers) -> list[Outlier]:
    """The outlier ranks of a tree, main threads first. Time is linear in visits times depth."""
    found = []
    for (role, group, thread), by_sample in _comparable(tree, peers).items():
        apart: defaultdict[Process, list[_Apart]] = defaultdict(list)
        seen: Counter[Process] = Counter()
        for sample, visit_of in sorted(by_sample.items()):
            seen.update(visit_of.keys())
            for process, one in _apart(tree, peers, sample, visit_of):
                apart[process].append(one)
        alike: defaultdict[tuple[int, ...], list[tuple[Process, _Apart]]] = defaultdict(list)
        for process, times in apart.items():
            if len(times) == seen[process]:
                last = times[-1]
                alike[last.sample, last.next, tree.ends[last.visit], len(times)].append((process, last))
        for (_, own, stands, samples), members in alike.items():
            processes = tuple(process for process, _ in members)
            one = members[0][1]
            found.append(
                Outlier(
                    role=role,
                    group=group,
                    thread=thread,
                    processes=processes,
                    ranks=_ranks(processes, peers),
                    shared=one.shared,
                    next=own,
                    stands=stands,
                    majority=one.majority,
                    majority_ranks=one.majority_ranks,
                    samples=samples,
                    visits=tuple(last.visit for _, last in members),
                )
            )
    return sorted(found, key=lambda o: (o.thread != MAIN, o.role, o.group, o.thread, o.ranks))


def _ranks(processes: Iterable[Process], peers: Peers) -> tuple[int, ...]:
    return tuple(sorted({rank for p in processes if (rank := peers.of(p).rank) is not None}))


def correspondence(thread: ThreadKey) -> str:
    """The name under which a thread of one process is compared with those of its peers; "" for one that has none.

    The number that Python gives to unnamed threads counts in order of their start and differs between processes.
    """
    _, pid, tid, name = thread
    if not name:
        return MAIN if tid == pid else ""
    return _NUMBERED.sub("Thread", name)


def _comparable(tree: Tree, peers: Peers) -> dict[_Crew, dict[int, dict[Process, int]]]:
    """role, group and thread, to sample, to process, to its visit. Without stacks that show nothing, and threads of no one name."""
    found: dict[_Crew, dict[int, dict[Process, int]]] = {}
    twice = set()
    for i, visit in enumerate(tree.visits):
        if not tree.ends[i]:
            continue  # nothing was read of it: that is not another place
        process = (visit.node, visit.pid)
        peer = peers.of(process)
        name = correspondence(tree.threads[tree.thread_of[i]])
        if peer.rank is None or not name:
            continue
        crew = (peer.role, peer.group, name)
        here = found.setdefault(crew, {}).setdefault(visit.sample, {})
        other = here.setdefault(process, i)
        if tree.thread_of[other] != tree.thread_of[i]:
            twice.add((crew, process))
        elif _when(visit) > _when(tree.visits[other]):  # bare files may carry no numbers: two dumps of one thread, the newer counts
            here[process] = i
    for crew, process in twice:
        for here in found[crew].values():
            here.pop(process, None)
    return found


def _when(visit: ThreadStack) -> int:
    return visit.at.earliest_ns if visit.at else 0


def _apart(tree: Tree, peers: Peers, sample: int, visit_of: dict[Process, int]) -> list[tuple[Process, _Apart]]:
    way = _majority_way(tree, sorted(visit_of.values()))
    if not way:
        return []
    last = tree.nodes[way[-1]]
    apart = [process for process, visit in visit_of.items() if not last.start <= visit < last.end]
    if not apart:
        return []
    ranks = _ranks(visit_of.keys() - set(apart), peers)
    common = {0, *way}
    found = []
    for process in apart:
        at = own = tree.ends[visit_of[process]]
        while at not in common:
            own, at = at, tree.nodes[at].parent
        found.append((process, _Apart(sample, visit_of[process], at, own, way[-1], ranks)))
    return found


def _majority_way(tree: Tree, places: Sequence[int]) -> list[int]:
    """The steps that more than half of these visits (sorted) pass, outermost first.

    Visits lie in the order of a walk through the tree, so those below one node are neighbours; more than half of a row
    of neighbours always includes the middle one. Its way is therefore the only one to look at. Native steps are left out: not
    every rank was read by a reader that shows them.
    """
    way: list[int] = []
    for step in tree.way(tree.ends[places[len(places) // 2]]) if places else ():
        node = tree.nodes[step]
        passing = bisect_left(places, node.end) - bisect_left(places, node.start)
        if node.native or 2 * passing <= len(places):
            break
        way.append(step)
    return way
