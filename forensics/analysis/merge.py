"""The stacks of all processes, threads and samples as one prefix tree: outermost frame first, so that common ways are shared.

Who passes a node is stored nowhere: the visits (one thread in one sample each) are laid out in the order of a walk through
the tree, and those that pass a node are one slice of that list. Memory is therefore linear in the input, whatever the number
of ranks, and a set of ranks is only made for a node that somebody looks at. Nothing here recurses: a stack may have any depth.
"""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forensics.model import Frame, ThreadStack

Key = tuple[str, str, int, bool]
"""(function, file, line, native) of a step; what a level does not look at is "" and 0."""
ThreadKey = tuple[str, int, int | None, str]
"""node, pid, tid, name"""


class Level(enum.Enum):
    """How alike two frames must be to count as the same. Each level is a function of the one before: what was together stays."""

    LINE = "exact line"
    FUNCTION = "function"
    MODULE = "module"
    """File alone; consecutive frames of one file are one step."""


def path(stack: ThreadStack, level: Level) -> list[tuple[Key, int]]:
    """Steps of a stack, outermost first, each with its line.

    Of native frames only those at the innermost end are steps, and all of a thread that runs no Python. A reader that shows
    native frames has them in between as well; with these left out, the same place is the same way, whoever read that rank.
    """
    return _steps(stack.frames, stack.mixed, level)


def _steps(python: Sequence[Frame], mixed: Sequence[Frame], level: Level) -> list[tuple[Key, int]]:
    chosen = [*reversed(python), *reversed(list(itertools.takewhile(lambda f: f.native, mixed)))]
    if level is Level.LINE:
        return [((f.name, f.file, f.line, f.native), f.line) for f in chosen]
    if level is Level.FUNCTION:
        return [((f.name, f.file, 0, f.native), f.line) for f in chosen]
    files = [(f.file, f.native) for f in chosen]
    return [(("", file, 0, native), 0) for i, (file, native) in enumerate(files) if not i or files[i - 1] != (file, native)]


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One step that some visits share. Nodes name each other by their place in Tree.nodes."""

    key: Key
    parent: int
    children: list[int] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    """Where in its function the visits stood: of interest where the level does not look at lines."""
    start: int = 0
    end: int = 0
    """Tree.visits[start:end] pass here; of these the first `own` end here."""
    own: int = 0

    @property
    def native(self) -> bool:
        return self.key[3]

    @property
    def label(self) -> str:
        """ "name (file:line)" with up to three lines; of a module, its file."""
        name, file, line, _ = self.key
        lines = [line] if line else sorted(n for n in self.lines if n)
        at = ",".join(map(str, lines[:3])) + (",…" if len(lines) > 3 else "")
        place = f"{file}:{at}" if at else file
        return f"{name} ({place})" if name else place


@dataclass(eq=False, repr=False)
class Tree:
    """nodes[0] is the root, which is no frame; a parent always comes before its children."""

    level: Level
    nodes: list[Node]
    visits: list[ThreadStack]
    ends: list[int]
    """The node at which each visit ends: its leaf."""
    threads: list[ThreadKey]
    thread_of: list[int]
    """For each visit, which of `threads` it is."""
    _steps: dict[tuple[int, Key], int]

    def at(self, node: int) -> list[ThreadStack]:
        """The visits that pass a node."""
        return self.visits[self.nodes[node].start : self.nodes[node].end]

    def threads_at(self, node: int) -> list[int]:
        """Which of `threads` each visit of a node belongs to."""
        return self.thread_of[self.nodes[node].start : self.nodes[node].end]

    def way(self, node: int) -> list[int]:
        """The nodes from the outermost step to `node`; [] for the root."""
        found = []
        while node:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]

    def find(self, stack: ThreadStack) -> int | None:
        """The node at which a stack with these frames ends, or None when nobody went there."""
        at: int | None = 0
        for key, _ in path(stack, self.level):
            if (at := self._steps.get((at or 0, key))) is None:
                return None
        return at


def merge(stacks: Iterable[ThreadStack], level: Level = Level.FUNCTION) -> Tree:
    """Build the tree of `stacks`. Time and memory are linear in the number of stacks and of distinct frames."""
    shapes: defaultdict[tuple[tuple[Frame, ...], tuple[Frame, ...]], list[ThreadStack]] = defaultdict(list)
    for stack in stacks:
        shapes[stack.frames, stack.mixed].append(stack)
    nodes = [Node(("", "", 0, False), 0)]
    steps: dict[tuple[int, Key], int] = {}
    ending: defaultdict[int, list[ThreadStack]] = defaultdict(list)
    for (python, mixed), alike in shapes.items():
        at = 0
        for key, line in _steps(python, mixed, level):
            below = steps.get((at, key))
            if below is None:
                below = steps[at, key] = len(nodes)
                nodes[at].children.append(below)
                nodes.append(Node(key, at))
            nodes[below].lines.add(line)
            at = below
        ending[at] += alike
    return _laid_out(level, nodes, ending, steps)


def thread_key(visit: ThreadStack) -> ThreadKey:
    """Whose stack it is. What a core file shows is the end of a process: another thread than the living one, and named so."""
    name = f"{visit.name} (core file)" if visit.reader == "core" else visit.name
    return visit.node, visit.pid, visit.tid, name


def _laid_out(level: Level, nodes: list[Node], ending: dict[int, list[ThreadStack]], steps: dict[tuple[int, Key], int]) -> Tree:
    """Give each node its slice: sizes from the leaves up, then places from the root down."""
    passing = [len(ending.get(i, ())) for i in range(len(nodes))]
    for i in range(len(nodes) - 1, 0, -1):
        passing[nodes[i].parent] += passing[i]
    visits: list[ThreadStack] = []
    ends: list[int] = []
    taken = [0] * len(nodes)
    for i, node in enumerate(nodes):
        if i:
            node.start = taken[node.parent]
            taken[node.parent] += passing[i]
        node.end = node.start + passing[i]
        node.own = len(ending.get(i, ()))
        taken[i] = node.start + node.own
    # the slices of those that end at a node cover the list without a gap, in order of their starts
    for i in sorted(ending, key=lambda i: nodes[i].start):
        visits += ending[i]
        ends += [i] * len(ending[i])
    numbers: dict[ThreadKey, int] = {}
    thread_of = [numbers.setdefault(thread_key(v), len(numbers)) for v in visits]
    return Tree(level, nodes, visits, ends, list(numbers), thread_of, steps)
