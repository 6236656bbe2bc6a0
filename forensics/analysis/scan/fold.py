"""In a large log: count the candidates that would become the same hit, and let only the first and the last of them go on.

Two lines are the same when they are equal but for their times; or when the same signature fits both, whatever its fields say, behind
prefixes that are equal but for their times, with the same status or exception. A line is taken apart only when its like was not met
before: most are told by their shape (digits blanked), which fixes where their times and their message stand.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from forensics.analysis.scan._base import FIRST, LAST, LINE_BYTES, Candidate
from forensics.analysis.scan.literals import Plan
from forensics.analysis.tracebacks import read_traceback

Key = tuple[bytes, str, str]
_Place = tuple[int, tuple[int, ...]]
"""(offset of the line, its literals): what becomes a Candidate if it is kept."""

SHAPES = 4096
"""Shapes and texts that are remembered. A log of ever new shapes is told apart by less beyond them."""
GROUPS = 2048
PEELED = 64
"""Lines of one shape whose message cannot be pointed at (JSON inside) are taken apart so often, then taken to be alike."""
TRACEBACKS, TRACEBACK_BYTES = 8, 8 * 1024
"""So many tracebacks of one group are read, to tell their exceptions apart, and so much of each; then every…"""
AGAIN = 256
"""…so manieth: those between are taken to be like the one before."""
HEAD_BYTES = 512
SEEN_FIELDS = ("status",)
"""Fields that make hits of one signature different."""

_DIGITS = bytes(ord("0") if chr(c) in "0123456789" else c for c in range(256))
_OTHER_DIGITS = tuple(str.maketrans("0123456789", other) for other in ("9999999999", "1234567890"))
"""What 0 to 9 are replaced by to see whether a signature cares which digits stand in a line."""
# letters of hexadecimal ids too: they change with every request
_BLANK = bytes(ord("0") if chr(c) in "0123456789abcdef" else c for c in range(256))
_TIME = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T -]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d)\b)?"
    rb"|\d\d[-/]\d\d(?:[-/]\d{4})?[ -]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    rb"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)?|\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|[IWEF]?\d{4} (?=\d\d:)|\[ *\d+\.\d{6}\]"
    rb'|"(?:__REALTIME_TIMESTAMP|_SOURCE_REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|__CURSOR|ts|time|timestamp)" ?: ?(?:"[^"]*"|[\d.]+)'
)


class _Shape(NamedTuple):
    times: tuple[tuple[int, int], ...]
    message: int
    """Where the message begins; -1 where it does not stand in the line as it is."""


class _Fit(NamedTuple):
    """Which signature fits every message that is like one but for its digits."""

    which: str
    fields: tuple[tuple[int, int], ...]
    """Where SEEN_FIELDS stand in the message."""


@dataclass
class Group:
    """Candidates that are the same hit."""

    count: int = 0
    first: list[_Place] = field(default_factory=list)
    last: deque[_Place] = field(default_factory=lambda: deque(maxlen=LAST))

    def join(self, later: Group) -> None:
        """Append what a later chunk met of the same."""
        self.count += later.count
        for candidate in (*later.first, *later.last):
            (self.first if len(self.first) < FIRST else self.last).append(candidate)

    def kept(self) -> list[Candidate]:
        """The candidates that go on; the first of the last ones stands for those between, too."""
        left = self.count - len(self.first) - len(self.last)
        kept = [Candidate(*place) for place in (*self.first, *self.last)]
        if left and self.last:
            after = len(self.first)
            kept[after] = kept[after]._replace(lines=1 + left)
        return kept


class Fold:
    """Of one log, as one process reads it: what lines look like is remembered from chunk to chunk."""

    def __init__(self, plan: Plan, who: Callable[[str], tuple[str, str]]) -> None:
        self.groups: dict[Key, Group] = {}
        self._plan = plan
        self._who = who
        self._blocks = frozenset(i for i, known in enumerate(plan.signatures) if any(s.block for s in known))
        """Literals under whose lines a traceback may stand."""
        self._shapes: dict[bytes, _Shape] = {}
        self._texts: dict[tuple[bytes, ...], Key] = {}
        self._recent: dict[tuple[int, ...], tuple[int, int]] = {}
        self._peeled: dict[bytes, tuple[int, Key]] = {}
        self._fits: dict[tuple[tuple[int, ...], bytes], _Fit | None] = {}
        self._tracebacks: dict[Key, tuple[int, str]] = {}

    def add(self, offset: int, literals: tuple[int, ...], data: bytes, start: int, end: int) -> None:
        """One candidate: `data[start:end]` is its line, which begins at `offset` of the log."""
        line = data[start : end if end - start < LINE_BYTES else start + LINE_BYTES]
        # mostly it is a line that is known, with another time where the last one of these literals had its time
        begin, stop = self._recent.get(literals, (0, 0))
        text: tuple[bytes, ...] = (line[:begin], line[stop:])
        key = self._texts.get(text) if stop else None
        if key is None:
            key = self._unlike(literals, line, data, start)
        group = self.groups.get(key)
        if group is None:
            group = group_of(self.groups, key)
        group.count += 1
        (group.first if len(group.first) < FIRST else group.last).append((offset, literals))

    def _unlike(self, literals: tuple[int, ...], line: bytes, data: bytes, start: int) -> Key:
        """The group of a line that is not equal, but for one time, to one that was met."""
        shape_of = line[:HEAD_BYTES].translate(_BLANK)
        shape = self._shapes.get(shape_of)
        if shape is None:
            shape = self._learn(line, shape_of)
        text = _without(line, shape.times)
        key = self._texts.get(text)
        if key is None:
            key = self._key(literals, line, shape, shape_of)
            if not self._blocks.isdisjoint(literals):
                key = (*key[:2], self._exception(key, data, start))
            elif len(self._texts) < SHAPES:
                self._texts[text] = key
        if len(shape.times) == 1 and text in self._texts and (literals in self._recent or len(self._recent) < SHAPES):
            self._recent[literals] = shape.times[0]
        return key

    def take(self) -> dict[Key, Group]:
        """The groups of the chunk that has ended."""
        groups, self.groups = self.groups, {}
        return groups

    def _learn(self, line: bytes, shape_of: bytes) -> _Shape:
        decoded = line.decode("utf-8", "replace")
        message = self._who(decoded)[0].encode("utf-8", "replace")
        at = line.rfind(message.rstrip()) if message.strip() else -1
        shape = _Shape(tuple(m.span() for m in _TIME.finditer(line[:HEAD_BYTES])), at if at < HEAD_BYTES else -1)
        if len(self._shapes) < SHAPES:
            self._shapes[shape_of] = shape
        return shape

    def _key(self, literals: tuple[int, ...], line: bytes, shape: _Shape, shape_of: bytes) -> Key:
        """Which signature fits, and who says it."""
        if shape.message >= 0:
            which, status = self._alike(literals, line[shape.message :])
            before = tuple(t for t in shape.times if t[1] <= shape.message)
            return b"".join(_without(line[: shape.message], before)), which, status
        times, known = self._peeled.get(shape_of, (0, (b"", "", "")))
        if times < PEELED:
            message, who = self._who(line.decode("utf-8", "replace"))
            which, status = self._fitting(literals, message)
            known = (who.encode("utf-8", "replace"), which, status)
            if times or len(self._peeled) < SHAPES:
                self._peeled[shape_of] = (times + 1, known)
        return known

    def _alike(self, literals: tuple[int, ...], message: bytes) -> tuple[str, str]:
        """As `_fitting`; of messages that differ in their digits alone, for which no digit decides, only the first is taken apart."""
        like = literals, message.translate(_DIGITS)
        fit = self._fits.get(like)
        if fit is not None:
            return fit.which, " ".join(message[a:b].decode("utf-8", "replace") for a, b in fit.fields)
        which, status = self._fitting(literals, text := message.decode("utf-8", "replace"))
        if like not in self._fits and len(self._fits) < SHAPES:
            self._fits[like] = self._fit(literals, text)
        return which, status

    def _fit(self, literals: tuple[int, ...], message: str) -> _Fit | None:
        """None where one of several signatures may fit, or where a digit decides: such messages are taken apart one by one."""
        if not message.isascii() or sum(len(self._plan.signatures[literal]) for literal in literals) != 1:
            return None
        fits = {self._places(literals, message.translate(digits)) for digits in ({}, *_OTHER_DIGITS)}
        return fits.pop() if len(fits) == 1 else None

    def _places(self, literals: tuple[int, ...], message: str) -> _Fit | None:
        which, m = self._match(literals, message)
        return _Fit(which, tuple(m.span(name) for name in SEEN_FIELDS if m.groupdict().get(name))) if m else None

    def _fitting(self, literals: tuple[int, ...], message: str) -> tuple[str, str]:
        which, m = self._match(literals, message)
        found = m.groupdict() if m else {}
        return which, " ".join(filter(None, (found.get(name) for name in SEEN_FIELDS)))

    def _match(self, literals: tuple[int, ...], message: str) -> tuple[str, re.Match[str] | None]:
        """The first signature that fits; of a marker of an operator's own only a name."""
        for literal in literals:
            for signature in self._plan.signatures[literal]:
                if m := signature.regex.search(message):
                    return signature.id, m
            if not self._plan.signatures[literal]:
                return f"marker {literal}", None
        return "", None

    def _exception(self, key: Key, data: bytes, start: int) -> str:
        """The exception under a line."""
        times, known = self._tracebacks.get(key, (0, ""))
        if times < TRACEBACKS or times % AGAIN == 0:
            trace = read_traceback(data[start : start + TRACEBACK_BYTES].decode("utf-8", "replace"), None)
            known = trace.exc_type if trace else ""
        if times or len(self._tracebacks) < SHAPES:
            self._tracebacks[key] = times + 1, known
        return known


def group_of(groups: dict[Key, Group], key: Key) -> Group:
    """The group of a key, new or known; where there are very many, who wrote a line is no longer told apart."""
    if key not in groups and len(groups) >= GROUPS:
        key = (b"", *key[1:])
    return groups.setdefault(key, Group())


def _without(line: bytes, spans: tuple[tuple[int, int], ...]) -> tuple[bytes, ...]:
    """The pieces of a line between its times."""
    if not spans:
        return (line,)
    pieces = []
    position = 0
    for begin, end in spans:
        pieces.append(line[position:begin])
        position = end
    pieces.append(line[position:])
    return tuple(pieces)
