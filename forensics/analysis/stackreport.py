"""The merged stacks of one engine as records: runs of steps with who passes and who is missing there, and the outliers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from forensics.analysis.merge import Tree
from forensics.analysis.outliers import MAIN, Outlier, correspondence, outliers
from forensics.analysis.peers import Peer, Peers
from forensics.analysis.rankset import RankSet
from forensics.model import StackNode, StackOutlier, StackPresence, ranges

MOST_ENDS = 400
"""Places of a tree that are told one by one: those of outliers, then main threads, then the commonest. The rest is counted."""
_MOST_NAMES = 8


def of_tree(tree: Tree, peers: Peers, engine: str) -> tuple[list[StackNode], list[StackOutlier]]:
    """(the tree in the order of a walk, its outliers), each list ready for the report."""
    found = outliers(tree, peers)
    crews = _Crews(tree, peers)
    return list(_Walk(tree, crews, found, engine).nodes()), [_outlier(tree, crews, o, engine) for o in found]


def _outlier(tree: Tree, crews: _Crews, o: Outlier, engine: str) -> StackOutlier:
    def label(node: int) -> str:
        # for one line the Python step says more than what the C library does below it; the tree shows both
        while tree.nodes[node].native and (parent := tree.nodes[node].parent):
            node = parent
        return tree.nodes[node].label if node else ""

    return StackOutlier(
        engine=engine,
        role=o.role,
        group=o.group,
        thread=o.thread,
        ranks=o.ranks,
        processes=_named(crews.peers.of(p).name for p in o.processes),
        stands=label(o.stands),
        shared=label(o.shared),
        next=label(o.next) if o.next != o.shared else "",
        majority=label(o.majority),
        majority_ranks=crews.written((o.role, o.group), o.majority_ranks),
        unread=crews.unread((o.role, o.group)),
        samples=o.samples,
        ref=tree.visits[o.visits[0]].ref,
    )


class _Crews:
    """Who of each crew (role, group) was read at all, and who passes a given place."""

    def __init__(self, tree: Tree, peers: Peers) -> None:
        self.peers = peers
        numbers: dict[tuple[str, int], int] = {}
        self._process_of = [numbers.setdefault((node, pid), len(numbers)) for node, pid, _, _ in tree.threads]
        self._places = [peers.of(process) for process in numbers]
        # a rank of which no frame was read is not missing anywhere; nor is one at a native step that was read without native frames
        shown = {thread for thread, end in zip(tree.thread_of, tree.ends, strict=True) if end}
        native = {thread for thread, end in zip(tree.thread_of, tree.ends, strict=True) if tree.nodes[end].native}
        self._read = {flag: self._ranks(self._process_of[t] for t in threads) for flag, threads in ((False, shown), (True, native))}
        self._unread: dict[tuple[bool, tuple[str, str]], str] = {}

    def _ranks(self, processes: Iterable[int]) -> dict[tuple[str, str], RankSet]:
        found: dict[tuple[str, str], set[int]] = {}
        for process in set(processes):
            peer = self._places[process]
            if peer.rank is not None:
                found.setdefault(peer.crew, set()).add(peer.rank)
        return {crew: RankSet(ranks) for crew, ranks in found.items()}

    def unread(self, crew: tuple[str, str], native: bool = False) -> str:
        """Ranks of a crew of which no stack was read, or none with native frames."""
        key = (native, crew)
        if key not in self._unread:
            read = self._read[native].get(crew)
            self._unread[key] = RankSet({*self.peers.expected.get(crew, ()), *(read.ranks if read else ())}).lacks(
                read.ranks if read else ()
            )
        return self._unread[key]

    def written(self, crew: tuple[str, str], ranks: Collection[int]) -> str:
        return self._read[False][crew].has(ranks)

    def present(self, threads: Iterable[int], native: bool = False, framed: bool = True) -> tuple[StackPresence, ...]:
        """Who is there, given the thread of each stack; crews with ranks first. Without a frame there is no place to be missing at."""
        stacks: Counter[tuple[str, str]] = Counter()
        crews: dict[tuple[str, str], list[Peer]] = {}
        for process, count in Counter(map(self._process_of.__getitem__, threads)).items():
            peer = self._places[process]
            stacks[peer.crew] += count
            crews.setdefault(peer.crew, []).append(peer)
        found = []
        for crew, members in crews.items():
            here = {peer.rank for peer in members if peer.rank is not None}
            readers = self._read[native].get(crew, RankSet(()))
            found.append(
                StackPresence(
                    role=crew[0],
                    group=crew[1],
                    count=len(here),
                    has=readers.has(here),
                    lacks=readers.lacks(here) if here and framed else "",
                    unread=self.unread(crew, native) if here and framed else "",
                    processes=_named(peer.name for peer in members if peer.rank is None),
                    stacks=stacks[crew],
                )
            )
        return tuple(sorted(found, key=lambda p: (not p.has, p.role, p.group)))


def _named(names: Iterable[str]) -> tuple[str, ...]:
    each = list(dict.fromkeys(names))
    more = len(each) - _MOST_NAMES
    return (*each[:_MOST_NAMES], f"… {more} more") if more > 0 else tuple(each)


class _Walk:
    """Walks a tree, joins steps that the same stacks take, and decides which branches are told and which only counted."""

    def __init__(self, tree: Tree, crews: _Crews, found: Sequence[Outlier], engine: str) -> None:
        self.tree = tree
        self.crews = crews
        self.engine = engine
        self.samples_of = Counter(tree.thread_of)
        self.marks: dict[int, set[int]] = {}
        for o in found:
            self.marks.setdefault(o.next, set()).update(o.ranks)
        # for a node, whether below it lies an outlier, and a main thread: what somebody looks for first
        self.apart = self._upwards(self.marks)
        main = [correspondence(t) == MAIN for t in tree.threads]
        self.main = self._upwards({end for end, thread in zip(tree.ends, tree.thread_of, strict=True) if main[thread]})
        ends = sorted((i for i, node in enumerate(tree.nodes) if node.own), key=self._rank)
        self.told = self._upwards(ends[:MOST_ENDS])

    def _upwards(self, nodes: Iterable[int]) -> bytearray:
        flags = bytearray(len(self.tree.nodes))
        for i in nodes:
            flags[i] = 1
        for i in range(len(flags) - 1, 0, -1):
            if flags[i]:
                flags[self.tree.nodes[i].parent] = 1
        return flags

    def _rank(self, i: int) -> tuple[bool, bool, int]:
        node = self.tree.nodes[i]
        return not self.apart[i], not self.main[i], node.start - node.end

    def nodes(self) -> Iterable[StackNode]:
        if self.tree.nodes[0].own:  # stacks without a frame end at the root
            yield self._record(0, (), self.tree.thread_of[: self.tree.nodes[0].own])
        waiting = self._below(0, 0)
        while waiting:
            depth, branches, told = waiting.pop()
            if not told:
                yield self._counted(depth, branches)
                continue
            chain = [branches[0]]
            while not (node := self.tree.nodes[chain[-1]]).own and len(node.children) == 1:
                chain.append(node.children[0])
            yield self._record(depth, chain, self.tree.threads_at(chain[-1]))
            waiting += self._below(chain[-1], depth + 1)

    def _below(self, node: int, depth: int) -> list[tuple[int, list[int], bool]]:
        """Branches in reverse order of their telling: (depth, nodes, whether they are told one by one)."""
        told: list[int] = []
        counted: list[int] = []
        for child in sorted(self.tree.nodes[node].children, key=self._rank):
            (told if self.told[child] else counted).append(child)
        rest = [(depth, counted, False)] if counted else []
        return rest + [(depth, [child], True) for child in reversed(told)]

    def _record(self, depth: int, chain: Sequence[int], threads: Collection[int]) -> StackNode:
        per_thread = Counter(threads)
        marked = set().union(*(self.marks.get(i, ()) for i in chain))
        return StackNode(
            engine=self.engine,
            depth=depth,
            frames=tuple(self.tree.nodes[i].label for i in chain),
            stacks=len(threads),
            threads=len(per_thread),
            steady=sum(self.samples_of[t] == n for t, n in per_thread.items()),
            samples=max(self.samples_of[t] for t in per_thread),
            names=_named(self.tree.threads[t][3] or f"tid {self.tree.threads[t][2]}" for t in per_thread),
            present=self.crews.present(threads, bool(chain) and self.tree.nodes[chain[-1]].native, bool(chain)),
            outliers=ranges(marked),
        )

    def _counted(self, depth: int, branches: Sequence[int]) -> StackNode:
        threads = [t for branch in branches for t in self.tree.threads_at(branch)]
        return StackNode(
            engine=self.engine,
            depth=depth,
            left_out=len(branches),
            stacks=len(threads),
            threads=len(set(threads)),
            present=self.crews.present(threads),
        )
