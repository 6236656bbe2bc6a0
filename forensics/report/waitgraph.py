"""The wait-for graph as coordinates: waiters on the left, who they wait for on the right. The template draws it.

Cycles are the point of such a graph (a deadlock is one), so they are laid out rather than refused: the members of a cycle
share a column and their edges bow outwards. Ranks that wait in the same way for the same one are drawn as one box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from forensics.model import Grade, Report, Wait
from forensics.model.graph import components
from forensics.report import view, waitwords
from forensics.report.safe import clip, display_width, one_line

MOST_BOXES = 40
"""More than this cannot be read on a page: the table of waits stands alone then."""
_CHAR, _BOX_HEIGHT, _ROW, _PAD, _MARGIN, _LONGEST_LABEL = 7.3, 40, 70, 12, 16, 34
_BOW = 46

_Edge = tuple[str, str]


@dataclass(frozen=True)
class Box:
    """x, y are the top left corner, in px."""

    x: float
    y: float
    width: float
    height: float
    label: str
    detail: str
    root: bool


@dataclass(frozen=True)
class Arrow:
    """`path` is an SVG path; text_x, text_y is the middle of the label, text_width the room it needs. All in px."""

    path: str
    text_x: float
    text_y: float
    text_width: float
    label: str
    grade: Grade


@dataclass(frozen=True)
class Drawing:
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def draw(report: Report) -> Drawing | None:
    """The drawing of report.waits; None when there is nothing to draw or too much."""
    if not report.waits:
        return None
    group = _groups(report.waits, _root_name(report))
    edges: dict[_Edge, Wait] = {}
    for wait in report.waits:
        edge = (group[wait.waiter], group[wait.waits_for])
        # of parallel edges the firmest is drawn; the table lists them all
        if edge not in edges or wait.grade.strength > edges[edge].grade.strength:
            edges[edge] = wait
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    if len(names) > MOST_BOXES:
        return None
    return _Layout(report, names, edges).drawing()


def _root_name(report: Report) -> str:
    """The participant of the graph that the root names, or ""."""
    root = report.root
    names = list(dict.fromkeys(name for w in report.waits for name in (w.waiter, w.waits_for)))
    label = view.process_label(report, root)
    by_label = [n for n in names if label and n == label]
    by_pid = [n for n in names if root.pid is not None and re.search(rf"\bpid {root.pid}\b", n)]
    ranked = [(w.waiter, w.waiter_rank) for w in report.waits] + [(w.waits_for, w.target_rank) for w in report.waits]
    by_rank = [n for n in names if root.rank is not None and (n, root.rank) in ranked]
    for found in (by_label, by_pid, by_rank):
        if len(found) == 1:
            return found[0]
    return ""


def _groups(waits: Sequence[Wait], root: str) -> dict[str, str]:
    """Participant to the name of its box. Three or more ranks with the same neighbours become "ranks 0-2"."""
    out: dict[str, set[tuple[str, str, Grade]]] = {}
    into: dict[str, set[tuple[str, str, Grade]]] = {}
    rank: dict[str, int | None] = {}
    for w in waits:
        out.setdefault(w.waiter, set()).add((w.waits_for, w.via, w.grade))
        into.setdefault(w.waits_for, set()).add((w.waiter, w.via, w.grade))
        rank[w.waiter] = w.waiter_rank if w.waiter_rank is not None else rank.get(w.waiter)
        rank[w.waits_for] = w.target_rank if w.target_rank is not None else rank.get(w.waits_for)
    alike: dict[object, list[str]] = {}
    for name, own in rank.items():
        key = (frozenset(out.get(name, ())), frozenset(into.get(name, ()))) if own is not None and name != root else name
        alike.setdefault(key, []).append(name)
    names = {}
    for members in alike.values():
        together = view.rank_words([r for m in members if (r := rank[m]) is not None]) if len(members) > 2 else ""
        names.update({m: together or m for m in members})
    return names


class _Layout:
    """Layered drawing: columns by the longest chain of waits, one pass of barycentres against crossings."""

    def __init__(self, report: Report, names: list[str], edges: dict[_Edge, Wait]) -> None:
        self.report = report
        self.names = names
        self.edges = edges
        self.root = _root_name(report)
        self.ranks = self._ranks()
        self.short = waitwords.participants(report.waits)
        depth = self._depths()
        deepest = max(depth.values())
        self.column = {name: deepest - depth[name] for name in names}
        self.order = self._ordered(deepest + 1)

    def _ranks(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for w in self.report.waits:
            found.update({n: r for n, r in ((w.waiter, w.waiter_rank), (w.waits_for, w.target_rank)) if r is not None})
        return found

    def _depths(self) -> dict[str, int]:
        """Longest way to somebody who waits for nobody; the members of a cycle count as one."""
        component = components(self.names, self.edges)
        onward: dict[int, set[int]] = {c: set() for c in component.values()}
        for a, b in self.edges:
            if component[a] != component[b]:
                onward[component[a]].add(component[b])
        depth: dict[int, int] = {}
        # components are numbered in the order in which Tarjan closes them: every target before its waiter
        for c in sorted(onward):
            depth[c] = max((depth[n] + 1 for n in onward[c]), default=0)
        return {name: depth[component[name]] for name in self.names}

    def _ordered(self, columns: int) -> list[list[str]]:
        order: list[list[str]] = [[] for _ in range(columns)]
        for name in self.names:
            order[self.column[name]].append(name)
        for at in range(columns - 2, -1, -1):
            place = {name: i - (len(col) - 1) / 2 for col in order[at + 1 :] for i, name in enumerate(col)}
            order[at].sort(key=lambda name, place=place: _mean([place[b] for a, b in self.edges if a == name and b in place]))  # type: ignore[misc]
        return order

    def _label(self, name: str) -> tuple[str, str]:
        label, detail = self.short.get(name, (name, ""))
        if not detail and name in self.ranks:
            pids = [p.pid for e in self.report.engines for p in e.processes if p.label == name]
            detail = f"rank {self.ranks[name]}" + (f" · pid {pids[0]}" if len(pids) == 1 else "")
        if name == self.root:
            detail = " · ".join(part for part in (detail, "root") if part)
        return clip(one_line(label), _LONGEST_LABEL), clip(one_line(detail), _LONGEST_LABEL)

    def drawing(self) -> Drawing:
        labels = {name: self._label(name) for name in self.names}
        wide = {n: max(display_width(a), display_width(b)) * _CHAR + 2 * _PAD for n, (a, b) in labels.items()}
        columns = [max(wide[n] for n in column) for column in self.order]
        gaps = [self._gap(at) + self._beside(at, up=False) + self._beside(at + 1, up=True) for at in range(len(columns) - 1)]
        tallest = max(len(column) for column in self.order)
        boxes: dict[str, Box] = {}
        x = _MARGIN + self._beside(0, up=True)
        for at, column in enumerate(self.order):
            top = _MARGIN + (tallest - len(column)) * _ROW / 2
            for i, name in enumerate(column):
                label, detail = labels[name]
                left = x + (columns[at] - wide[name]) / 2
                boxes[name] = Box(left, top + i * _ROW, wide[name], _BOX_HEIGHT, label, detail, name == self.root)
            x += columns[at] + (gaps[at] if at < len(gaps) else 0)
        arrows = tuple(self._arrow(boxes[a], boxes[b], wait, self.column[a] == self.column[b]) for (a, b), wait in self.edges.items())
        x += _MARGIN + self._beside(len(columns) - 1, up=False)
        return Drawing(x, 2 * _MARGIN + (tallest - 1) * _ROW + _BOX_HEIGHT, tuple(boxes.values()), arrows)

    def _beside(self, at: int, up: bool) -> float:
        """Room beside a column for the bows within it and their labels: upward ones run on the left, the others on the right."""
        row = {name: i for i, name in enumerate(self.order[at])}
        said = [_label_width(_words(w)) for (a, b), w in self.edges.items() if a in row and b in row and (row[b] < row[a]) == up]
        return _BOW + max(said) if said else 0.0

    def _gap(self, at: int) -> float:
        """Room between two columns for the longest label of the edges that leave the left one."""
        said = [_label_width(_words(w)) for (a, b), w in self.edges.items() if self.column[a] == at and self.column[b] > at]
        return 54 + max(said, default=60.0)

    def _arrow(self, a: Box, b: Box, wait: Wait, beside: bool) -> Arrow:
        words = _words(wait)
        width = _label_width(words)
        if beside:
            return _bowed(a, b, words, width, wait)
        x1, y1, x2, y2 = a.x + a.width, a.y + a.height / 2, b.x - 3, b.y + b.height / 2
        bend = (x2 - x1) * 0.45
        path = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        # near the waiter's end, where parallel edges have not yet met
        t = min(0.42, (width / 2 + 24) / (x2 - x1))
        label_x = (1 - t) ** 3 * x1 + 3 * (1 - t) ** 2 * t * (x1 + bend) + 3 * (1 - t) * t**2 * (x2 - bend) + t**3 * x2
        label_y = ((1 - t) ** 3 + 3 * (1 - t) ** 2 * t) * y1 + (3 * (1 - t) * t**2 + t**3) * y2
        return Arrow(path, label_x, label_y, width, words, wait.grade)


def _bowed(a: Box, b: Box, words: str, width: float, wait: Wait) -> Arrow:
    """An edge within a column (part of a cycle): downwards on the right side, upwards on the left, so that both are seen."""
    down = b.y >= a.y
    sign = 1 if down else -1
    x1, x2 = (a.x + a.width, b.x + b.width + 3) if down else (a.x, b.x - 3)
    y1, y2 = a.y + a.height * (0.5 if a is not b else 0.25), b.y + b.height * (0.5 if a is not b else 0.75)
    out = (max(x1, x2) if down else min(x1, x2)) + sign * _BOW
    path = f"M{x1:.1f} {y1:.1f}C{out:.1f} {y1:.1f} {out:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    return Arrow(path, out - sign * _BOW * 0.25 + sign * (4 + width / 2), (y1 + y2) / 2, width, words, wait.grade)


def _words(wait: Wait) -> str:
    return clip(one_line(wait.detail.split(" (")[0] or wait.via), 24) + f" · {wait.grade.value}"


def _label_width(words: str) -> float:
    return len(words) * _CHAR * 0.86 + 8


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
