"""Waits in words: short names for who takes part, one line for all who wait alike, and the whole graph as one sentence."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forensics.model import EvidenceRef, Grade, Wait
from forensics.model.graph import components
from forensics.report.view import rank_words

_FULL_NAME = re.compile(r"(?:(thread \".*\") of )?(?:(rank \d+) )?\((.+), (pid \d+) on (.+)\)", re.DOTALL)


def participants(waits: Iterable[Wait]) -> dict[str, tuple[str, str]]:
    """Every name in the wait-for graph to (short name, the rest): "rank 1 (worker TP1, pid 17 on a)" is ("worker TP1", "rank 1 · pid 17").

    A thread is known by its own name, and its process is told in the rest. Where two would have the same short name (two
    engines), both keep their full one.
    """
    names = list(dict.fromkeys(name for w in waits for name in (w.waiter, w.waits_for)))
    nodes = {m[5] for name in names if (m := _FULL_NAME.fullmatch(name))}
    short: dict[str, tuple[str, str]] = {}
    for name in names:
        m = _FULL_NAME.fullmatch(name)
        rest = [m[3] if m[1] else "", m[2], m[4], m[5] if len(nodes) > 1 else ""] if m else []
        short[name] = ((m[1] or m[3]) if m else name, " · ".join(part for part in rest if part))
    labels = [label for label, _ in short.values()]
    return {name: (label, rest) if labels.count(label) == 1 else (name, "") for name, (label, rest) in short.items()}


@dataclass(frozen=True)
class WaitLine:
    """Everybody who waits for the same one, in the same way."""

    waiters: str
    target: str
    target_detail: str
    via: str
    """How, with what stands between them: "collective all_reduce"."""
    grade: Grade
    ref: EvidenceRef
    count: int


def wait_lines(waits: Sequence[Wait]) -> list[WaitLine]:
    names = participants(waits)
    found: dict[tuple[str, str, Grade], list[Wait]] = {}
    for wait in waits:
        found.setdefault((wait.waits_for, f"{wait.via} {wait.detail}".rstrip(), wait.grade), []).append(wait)
    short = {name: label for name, (label, _) in names.items()}
    return [
        WaitLine(_together(members, short), *names[target], via, grade, members[0].ref, len(members))
        for (target, via, grade), members in found.items()
    ]


def _together(waits: Sequence[Wait], short: Mapping[str, str]) -> str:
    names = list(dict.fromkeys(short[w.waiter] for w in waits))
    ranks = [w.waiter_rank for w in waits if w.waiter_rank is not None]
    if len(names) > 1 and len(ranks) == len(waits):
        return rank_words(ranks)
    return ", ".join(names)


def story(waits: Sequence[Wait], whole: bool = False) -> str:
    """The graph as one sentence: from those whom nobody waits for, along the waits, to those who wait for nobody; "" without waits.

    `whole`: everybody who could wait was seen, so that a single cause may be called the only one.
    """
    if not waits:
        return ""
    names = _by_rank(waits)
    part = components(names, [(w.waiter, w.waits_for) for w in waits])
    untold = Counter(part[w.waiter] for w in waits if part[w.waiter] == part[w.waits_for])
    clauses = []
    for alike in _in_order(waits):
        circling = [part[w.waiter] for w in alike if part[w.waiter] == part[w.waits_for]]
        untold.subtract(circling)
        closed = any(untold[c] == 0 for c in circling)
        clauses.append(_clause(alike, names) + (": a cycle" if closed else ""))
    onward = {part[w.waiter] for w in waits if part[w.waiter] != part[w.waits_for]}
    alone = len(set(part.values()) - onward) == 1
    return "; ".join(clauses) + "." + (" Nothing else waits for a cause of its own." if alone and whole else "")


def _by_rank(waits: Sequence[Wait]) -> dict[str, str]:
    """Names for a sentence: the rank where it tells participants apart."""
    short = participants(waits)
    rank = {w.waiter: w.waiter_rank for w in waits} | {w.waits_for: w.target_rank for w in waits if w.target_rank is not None}
    ranked = {}
    for name in short:
        m = _FULL_NAME.fullmatch(name)
        ranked[name] = m[1] if m and m[1] else f"rank {rank[name]}" if rank.get(name) is not None else short[name][0]
    said = list(ranked.values())
    return {name: word if said.count(word) == 1 else short[name][0] for name, word in ranked.items()}


def _in_order(waits: Sequence[Wait]) -> Iterator[list[Wait]]:
    """Waits of a kind together, each after the one that leads to it."""
    groups: dict[tuple[str, str, str, Grade], list[Wait]] = {}
    for w in waits:
        groups.setdefault((w.waits_for, w.via, w.detail, w.grade), []).append(w)
    targets = {w.waits_for for w in waits}
    of_waiter: dict[str, list[int]] = {}
    lines = _several_targets(groups.values())
    for i, line in enumerate(lines):
        for w in line:
            of_waiter.setdefault(w.waiter, []).append(i)
    told: set[int] = set()
    # each chain from its beginning: first those for whom nobody waits, then what only a circle leads to
    starts = iter(sorted(of_waiter, key=lambda name: name in targets))
    row: deque[str] = deque()
    while len(told) < len(lines):
        if not row:
            row.append(next(starts))
        for i in of_waiter.get(row.popleft(), ()):
            if i not in told:
                told.add(i)
                row.extend(dict.fromkeys(w.waits_for for w in lines[i]))
                yield lines[i]


def _several_targets(groups: Iterable[list[Wait]]) -> list[list[Wait]]:
    """Those who wait in one way for several ranks say so once."""
    joined: dict[tuple[object, ...], list[Wait]] = {}
    for i, line in enumerate(groups):
        first = line[0]
        own = i if first.target_rank is None else tuple(sorted({w.waiter for w in line}))
        joined.setdefault((own, first.via, first.detail, first.grade), []).extend(line)
    return list(joined.values())


def _clause(alike: Sequence[Wait], names: Mapping[str, str]) -> str:
    first = alike[0]
    who = _together(alike, names)
    several = len({w.waiter for w in alike}) > 1
    verb = "may wait" if first.grade is Grade.POSSIBLE else "wait" if several else "waits"
    ranks = sorted({w.target_rank for w in alike if w.target_rank is not None})
    target = rank_words(ranks) if len(ranks) > 1 else names[first.waits_for]
    known = first.target_rank is not None or _FULL_NAME.fullmatch(first.waits_for) is not None
    if first.via == "collective":
        return f"{who} {verb} in {first.detail or 'a collective'} for {target}"
    if first.via == "rpc-response" and known:
        alone = target == f"rank {first.target_rank}"
        return f"{who} {verb} for {target}'s answer" if alone else f"{who} {verb} for the answer of {target}"
    if first.via == "lock" and known:
        return f"{who} {verb} for the lock {first.detail} that {target} holds"
    return f"{who} {verb} for {target}" + (f" ({first.detail})" if first.detail else "")
