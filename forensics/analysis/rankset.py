"""Who of a crew is at a place and who is missing there, written as ranges, in time that depends on those who are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

MOST_RUNS = 64
"""Runs of ranks that are written out. Of a set more scattered than that nobody reads the rest: its size is told."""


class RankSet:
    """The ranks of a crew, against which the ranks at a place are held."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(set(ranks))
        self._place = {rank: i for i, rank in enumerate(self.ranks)}
        # for each place, the last one of its run of neighbours: a gap between two that are somewhere is a few of these
        self._run_end = list(range(len(self.ranks)))
        for i in range(len(self.ranks) - 2, -1, -1):
            if self.ranks[i] + 1 == self.ranks[i + 1]:
                self._run_end[i] = self._run_end[i + 1]

    def has(self, here: Collection[int]) -> str:
        """`here`, a part of the crew, as "0-2,5"; ",…" where more runs follow."""
        return _written(_runs(sorted(here)))

    def lacks(self, here: Collection[int]) -> str:
        """The rest of the crew."""
        return _written(self._gaps(sorted(self._place[rank] for rank in here)))

    def _gaps(self, taken: list[int]) -> Iterator[tuple[int, int]]:
        start = 0
        for end in (*taken, len(self.ranks)):
            while start < end:
                last = min(self._run_end[start], end - 1)
                yield self.ranks[start], self.ranks[last]
                start = last + 1
            start = end + 1


def _runs(ranks: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for i, rank in enumerate(ranks):
        if i + 1 == len(ranks) or ranks[i + 1] != rank + 1:
            yield ranks[start], rank
            start = i + 1


def _written(runs: Iterator[tuple[int, int]]) -> str:
    words: list[str] = []
    for first, last in runs:
        if len(words) == MOST_RUNS:
            words.append("…")
            break
        words.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(words)
