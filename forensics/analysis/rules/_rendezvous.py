"""Who did not come to a rendezvous, and on which node they should be, as far as the waiting side tells."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forensics.analysis.rules._positions import world as declared
from forensics.analysis.signatures import signatures
from forensics.analysis.view import View
from forensics.engines import WORLD_LIMIT
from forensics.model import EvidenceRef, LogHit, LogSpan

MISSING = "rendezvous-peer-missing"
COUNTED = ("c10d-clients-joined", "c10d-store-based-barrier")
UNSEEN = "unseen-node"
NAMED = 64
"""Nodes of a larger world are not named one by one."""
_LOOPBACK = re.compile(r"//(?:127\.|localhost|\[?::1)")
_NUMBERED = re.compile(r"^(.*?)(\d+)$")


@dataclass(frozen=True)
class Absence:
    """One failed rendezvous, in the words of one line."""

    hit: LogHit
    fields: dict[str, str]
    signature: str

    @property
    def joined(self) -> int | None:
        return _number(self.fields.get("joined"))

    @property
    def expected(self) -> int | None:
        return _number(self.fields.get("expected"))


def absences(view: View) -> list[Absence]:
    """Lines, and exceptions below other lines, that say that somebody did not come. In order of time."""
    found = [Absence(h, h.fields, h.signature) for h in view.feeding(MISSING) if h.role == "cascade"]
    lines = {(h.hit.node, h.hit.ref.source, h.hit.ref.locator) for h in found}
    for hit in view.hits:
        text = f"{hit.fields.get('exc_type', '')}: {hit.fields.get('exc_message', '')}"
        if len(text) < 8 or (hit.node, hit.ref.source, hit.ref.locator) in lines:
            continue
        for signature in signatures():
            if signature.feeds == MISSING and signature.role == "cascade" and (m := signature.regex.search(text)):
                found.append(Absence(hit, signature.read(m) or {}, signature.id))
                break
    return sorted(found, key=lambda a: a.hit.at.earliest_ns if a.hit.at else 0)


def unseen_nodes(view: View, absence: Absence) -> dict[str, EvidenceRef]:
    """Nodes that the world of this rendezvous has and of which no log was given, by name, each with the line that tells.

    A name is concluded only where nodes are numbered from 0 or 1 and the seen ones stand where their ranks put them.
    """
    world = absence.expected or declared(view)
    each = _ranks_per_node(view, absence)
    if not world or not each or world > WORLD_LIMIT or world % each:
        return {}
    if any(_LOOPBACK.search(h.fields.get("init_method", "")) for h in view.hits):
        return {}  # a world of one node
    count = world // each
    given = {s.node for s in view.case.of(LogSpan)}
    if count <= len(set(view.nodes) & given):
        return {}
    places = _places(view, each)
    names: list[str] = []
    parts = [(m[1], int(m[2]), len(m[2]), place) for node, place in places.items() if (m := _NUMBERED.match(node))]
    bases = {number - place for _, number, _, place in parts}
    if parts and count <= NAMED and len(parts) == len(places) and len({p[0] for p in parts}) == 1 and bases <= {0, 1} and len(bases) == 1:
        prefix, _, width, _ = parts[0]
        base = bases.pop()
        pad = width if any(m[2].startswith("0") and len(m[2]) > 1 for n in places if (m := _NUMBERED.match(n))) else 0
        names = [f"{prefix}{str(i + base).zfill(pad)}" for i in range(count) if i not in places.values()]
    names = [n for n in names if n not in given] if names else [UNSEEN]
    return dict.fromkeys(names, absence.hit.ref)


def _ranks_per_node(view: View, absence: Absence) -> int | None:
    """Ranks on each node: what local ranks show, else the number that came where only this node's ranks can have come."""
    local = {int(h.fields["local_rank"]) for h in view.hits if h.fields.get("local_rank", "").isdigit()}
    if len(local) > 1:
        return max(local) + 1
    joined, world = absence.joined, absence.expected
    speaking = [n for n in view.nodes if any(h.node == n for h in view.hits)]
    if joined and world and len(speaking) >= 1 and joined % len(speaking) == 0 and world % (joined // len(speaking)) == 0:
        return joined // len(speaking)
    return None


def _places(view: View, each: int) -> dict[str, int]:
    """Node to its number in the world, by the ranks that speak there."""
    places: dict[str, int] = {}
    for hit in view.hits:
        rank = hit.fields.get("rank", "") if hit.event == "place" else ""
        number = int(rank) if rank.isdigit() and len(rank) < 9 else hit.rank
        if number is not None:
            places.setdefault(hit.node, number // each)
    return places


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 9 else None
