"""The wait-for graph as a graph: pure functions over Wait records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from forensics.model.findings import Wait

SEARCHED = 64
"""Members of a strongly connected part from which its shortest circle is looked for."""


def cycles(waits: Sequence[Wait]) -> list[list[Wait]]:
    """One circle of waits for each strongly connected part, in its order: of the firmest edges that make one, the shortest."""
    names = dict.fromkeys(name for w in waits for name in (w.waiter, w.waits_for))
    part = components(names, [(w.waiter, w.waits_for) for w in waits])
    inside: dict[int, list[Wait]] = {}
    for wait in waits:
        if part[wait.waiter] == part[wait.waits_for]:
            inside.setdefault(part[wait.waiter], []).append(wait)
    return [_firmest(edges) for edges in inside.values()]


def _firmest(edges: list[Wait]) -> list[Wait]:
    for strength in sorted({w.grade.strength for w in edges}, reverse=True):
        onward: dict[str, list[Wait]] = {}
        for wait in edges:
            if wait.grade.strength >= strength:
                onward.setdefault(wait.waiter, []).append(wait)
        found = [circle for name in list(onward)[:SEARCHED] if (circle := _back_to(name, onward))]
        if found:
            return min(found, key=len)
    return edges


def _back_to(start: str, onward: Mapping[str, Sequence[Wait]]) -> list[Wait]:
    """The shortest way from `start` back to it, [] where there is none."""
    came: dict[str, Wait] = {}
    row = deque([start])
    while row:
        for wait in onward.get(row.popleft(), ()):
            if wait.waits_for == start:
                way = [wait]
                while way[0].waiter != start:
                    way.insert(0, came[way[0].waiter])
                return way
            if wait.waits_for not in came:
                came[wait.waits_for] = wait
                row.append(wait.waits_for)
    return []


def components(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Strongly connected components (Tarjan, without recursion: a chain of waits may be long). Targets get lower numbers."""
    onward: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        onward[a].append(b)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: dict[str, int] = {}
    count = 0
    for start in list(onward):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        work = [(start, iter(onward[start]))]
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(onward[target])))
                    break
                if target not in found:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    while True:
                        member = stack.pop()
                        found[member] = count
                        if member == name:
                            break
                    count += 1
    return found
