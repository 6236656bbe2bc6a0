"""The merged stacks in the folded form that flame-graph viewers open: `outermost;…;innermost count`, one place a line.

The width of a frame is the number of stacks (threads times samples) that pass it. The first frame is not one of the program: it
says which processes these are ("worker", "core"), so that those who do different work stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Report, StackNode
from forensics.report import stackwords
from forensics.report.safe import one_line


def folded(report: Report) -> str:
    """`report.stack_tree` as text, "" without stacks. Branches that the report only counts are one frame that says so."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    many = len({n.engine for n in report.stack_tree}) > 1
    way: list[StackNode] = []
    for i, node in enumerate(report.stack_tree):
        del way[node.depth :]
        way.append(node)
        ending = {(p.role, p.group): p.stacks for p in node.present}
        for child in _children(report.stack_tree, i):
            for p in child.present:
                ending[p.role, p.group] -= p.stacks
        steps = [_step(frame) for n in way for frame in (n.frames or (stackwords.no_frames(n),))]
        for (role, group), count in ending.items():
            if count:
                crew = _step(" ".join(part for part in (node.engine if many else "", role or "process", group) if part))
                yield f"{';'.join((crew, *steps))} {count}"


def _children(nodes: tuple[StackNode, ...], at: int) -> Iterator[StackNode]:
    for node in nodes[at + 1 :]:
        if node.depth <= nodes[at].depth:
            return
        if node.depth == nodes[at].depth + 1:
            yield node


def _step(words: str) -> str:
    """A frame that is one frame to every viewer: they split at semicolons and take the number after the last blank."""
    return one_line(words).replace(";", "\\x3b") or "?"
