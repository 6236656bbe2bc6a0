"""The wait-for graph as a graph: pure functions over Wait records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forensics.model.findings import Wait


def cycles(waits: Sequence[Wait]) -> list[list[Wait]]:
    """The edges of every cycle (strictly: of every strongly connected part), in the order of the circle where it is a simple one."""
    names = list(dict.fromkeys(name for w in waits for name in (w.waiter, w.waits_for)))
    part = components(names, [(w.waiter, w.waits_for) for w in waits])
    inside: dict[int, list[Wait]] = {}
    for wait in waits:
        if part[wait.waiter] == part[wait.waits_for]:
            inside.setdefault(part[wait.waiter], []).append(wait)
    return [_in_order(found) for found in inside.values()]


def _in_order(edges: list[Wait]) -> list[Wait]:
    left, ordered = list(edges), [edges[0]]
    left.remove(edges[0])
    while following := next((w for w in left if w.waiter == ordered[-1].waits_for), None):
        left.remove(following)
        ordered.append(following)
    return [*ordered, *left]


def ends(waits: Sequence[Wait]) -> list[str]:
    """Participants that are waited for and wait for nobody: the suspects, in order of appearance."""
    waiting = {w.waiter for w in waits}
    return [name for name in dict.fromkeys(w.waits_for for w in waits) if name not in waiting]


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
