"""Logs that were rotated: "x.log.2", "x.log.1", "x.log" are one log in three files, read as one and quoted as three."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from forensics.analysis.buffers import MEMORY_BYTES, WINDOW_BYTES, Buffer, spool
from forensics.bundle import Item

_NUMBERED = re.compile(r"(?P<base>.+)\.(?P<number>\d{1,4})")
_DATED = re.compile(r"(?P<base>.+?)[-.](?P<date>20\d\d-?[01]\d-?[0-3]\d(?:[-T_.]?\d\d){0,3}(?:-\d{9,10})?)")
_LOG = re.compile(r"(?:\.(?:log|out|err|stdout|stderr)|(?:^|/)(?:syslog|messages|kern(?:el)?|daemon|dmesg)|[-_]log)$")

Part = tuple[int, str]
"""(number of its first line in the whole, name of the file)"""


def base_of(name: str) -> tuple[str, tuple[int, int, str]]:
    """The name of the log that a file is a part of, and a key that puts the oldest part first. A file that was not rotated is its own."""
    if (m := _NUMBERED.fullmatch(name)) and _LOG.search(m["base"]):
        return m["base"], (1, -int(m["number"]), "")
    if (m := _DATED.fullmatch(name)) and _LOG.search(m["base"]):
        return m["base"], (0, 0, re.sub(r"\D", "", m["date"]))
    return name, (2, 0, "")


def grouped(items: Iterable[Item]) -> list[list[Item]]:
    """Items in their order, with the parts of each log together, oldest first. Evidence of a bundle is never joined."""
    groups: dict[str, list[Item]] = {}
    for number, item in enumerate(items):
        groups.setdefault(base_of(item.name)[0] if item.evidence is None else f"\0{number}", []).append(item)
    return [sorted(group, key=lambda item: base_of(item.name)[1]) for group in groups.values()]


def joined(items: Sequence[Item], notes: list[str]) -> tuple[Buffer, tuple[Part, ...]]:
    """The content of all parts in order, each ending with its last line. A part that cannot be read is said and left out."""
    parts: list[Part] = []
    pieces = _pieces(items, parts, notes)
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > MEMORY_BYTES:
            return spool(itertools.chain(held, pieces), notes, items[-1].name), tuple(parts)
    return b"".join(held), tuple(parts)


def _pieces(items: Sequence[Item], parts: list[Part], notes: list[str]) -> Iterator[bytes]:
    line = 1
    for item in items:
        parts.append((line, item.name))
        last = b""
        try:
            with item.open() as handle:
                while piece := handle.read(WINDOW_BYTES):
                    line += piece.count(b"\n")
                    last = piece
                    yield piece
        except OSError as error:
            notes.append(f"{item.name}: {error.strerror or error}")
        if last and not last.endswith(b"\n"):
            line += 1
            yield b"\n"
