"""The stacks of all processes, threads and samples as one prefix tree: outermost frame first, so that common ways are shared.

Who passes a node is stored nowhere: the visits (one thread in one sample each) are laid out in the order of a walk through
the tree, and those that pass a node are one slice of that list. Memory is therefore linear in the input, whatever the number
of ranks, and a set of ranks is only made for a node that somebody looks at. Nothing here recurses: a stack may have any depth.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forensics.model import Frame, ThreadStack

Key = tuple[str, str, int]
"""(function, file, line) of a step; what a level does not look at is "" and 0."""
ThreadKey = tuple[str, int, int | None, str]
"""node, pid, tid, name"""


class Level(enum.Enum):
    """How alike two frames must be to count as the same. Each level is a function of the one before: what was together stays."""

    LINE = "exact line"
    FUNCTION = "function"
    MODULE = "module"
    """File alone; consecutive frames of one file are one step."""


def is_python(file: str) -> bool:
    """Whether frames of this file are Python code: "<string>", "<frozen …>" and other generated code included."""
    return file.endswith(".py") or file.startswith("<")


def path(frames: Sequence[Frame], level: Level) -> list[tuple[Key, int]]:
    """Steps of a stack, outermost first, each with its line. `frames` innermost first, as in ThreadStack.

    Of native frames only those at the innermost end are steps. A reader that shows native frames mixes them in between
    Python frames as well; with these left out, the same place is the same path whichever reader could look at that rank.
    """
    end = next((i for i, f in enumerate(frames) if is_python(f.file)), None)
    if end is None:
        chosen = list(reversed(frames))
    else:
        chosen = [f for f in reversed(frames[end:]) if is_python(f.file)] + list(reversed(frames[:end]))
    if level is Level.LINE:
        return [((f.name, f.file, f.line), f.line) for f in chosen]
    if level is Level.FUNCTION:
        return [((f.name, f.file, 0), f.line) for f in chosen]
    files = [f.file for f in chosen]
    return [(("", file, 0), 0) for i, file in enumerate(files) if not i or files[i - 1] != file]


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One step that some visits share. Nodes name each other by their place in Tree.nodes."""

    key: Key
    parent: int
    python: bool
    children: list[int] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    """Where in its function the visits stood: of interest where the level does not look at lines."""
    start: int = 0
    end: int = 0
    """Tree.visits[start:end] pass here; of these the first `own` end here."""
    own: int = 0

    @property
    def label(self) -> str:
        """ "name (file:line)" with up to three lines; of a module, its file."""
        name, file, line = self.key
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

    def find(self, frames: Sequence[Frame]) -> int | None:
        """The node at which a stack of these frames ends, or None when nobody went there."""
        at: int | None = 0
        for key, _ in path(frames, self.level):
            if (at := self._steps.get((at or 0, key))) is None:
                return None
        return at


def merge(stacks: Iterable[ThreadStack], level: Level = Level.FUNCTION) -> Tree:
    """Build the tree of `stacks`. Time and memory are linear in the number of stacks and of distinct frames."""
    shapes: defaultdict[tuple[Frame, ...], list[ThreadStack]] = defaultdict(list)
    for stack in stacks:
        shapes[stack.frames].append(stack)
    nodes = [Node(("", "", 0), 0, True)]
    steps: dict[tuple[int, Key], int] = {}
    ending: defaultdict[int, list[ThreadStack]] = defaultdict(list)
    for frames, alike in shapes.items():
        at = 0
        for key, line in path(frames, level):
            below = steps.get((at, key))
            if below is None:
                below = steps[at, key] = len(nodes)
                nodes[at].children.append(below)
                nodes.append(Node(key, at, is_python(key[1])))
            nodes[below].lines.add(line)
            at = below
        ending[at] += alike
    return _laid_out(level, nodes, ending, steps)


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
    thread_of = [numbers.setdefault((v.node, v.pid, v.tid, v.name), len(numbers)) for v in visits]
    return Tree(level, nodes, visits, ends, list(numbers), thread_of, steps)
