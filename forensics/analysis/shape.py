"""How large an engine says that it is: by its running objects, its start-up lines, its command line. Where they disagree, that is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from forensics.engines import WORLD_LIMIT, Stated, profile
from forensics.model import EngineInstance, EvidenceRef, LiveValue, StatedShape

if TYPE_CHECKING:
    from forensics.analysis.case import Case
    from forensics.analysis.view import View

LIVE, LOG, COMMAND = "live object", "log", "command line"
ORDER = (LIVE, LOG, COMMAND)
"""What an engine runs with comes before what it said at its start, and that before what it was asked for."""
_FIELDS = {"world_size": "ranks of one replica", "replicas": "replicas", "nodes": "nodes"}


def told(view: View) -> tuple[StatedShape, ...]:
    """Every different statement, those that count most first. Of a past life only its log speaks."""
    found = dict.fromkeys(_told(view))
    return tuple(sorted(found, key=lambda s: ORDER.index(s.where)))


def _told(view: View) -> Iterator[StatedShape]:
    if not view.past:
        yield from live(view.case, view.engine)
    for hit in view.events("start", "core-start", "place"):
        size = hit.fields.get("world_size", "")
        if hit.event == "place":
            # with expert parallelism ranks count across replicas: that is not the world of one
            alone = view.engine.dp_size == 1 or size == str(view.engine.world_size)
            said = Stated(world=int(size)) if alone and size.isdigit() and 0 < int(size[:9]) <= WORLD_LIMIT else None
        else:
            said = view.profile.stated(hit.fields) if view.profile.stated else None
        if said is not None:
            yield from _shape(said, LOG, hit.ref)
    if view.profile.commanded and not view.past:
        for process in view.engine.processes:
            if (said := view.profile.commanded(process.info)) is not None:
                ref = EvidenceRef(source="process table", locator=f"pid {process.pid}", quote=process.info.title[:200])
                yield from _shape(said, COMMAND, ref)


def live(case: Case, engine: EngineInstance) -> Iterator[StatedShape]:
    """What the memory of the engine's own processes says."""
    read = profile(engine.kind).running
    mine = {(p.info.node, p.pid) for p in engine.processes}
    values: dict[tuple[str, int], dict[str, LiveValue]] = {}
    for value in case.of(LiveValue) if read else ():
        if (value.node, value.pid) in mine and not value.torn:
            values.setdefault((value.node, value.pid), {})[value.name] = value
    for of_one in values.values():
        if read and (said := read({name: v.value for name, v in of_one.items()})) is not None:
            yield from _shape(said, LIVE, of_one.get("world_size", next(iter(of_one.values()))).ref)


def _shape(said: Stated, where: str, ref: EvidenceRef) -> Iterator[StatedShape]:
    if said.world is not None or said.dp is not None or said.nodes is not None:
        yield StatedShape(where=where, world_size=said.world, replicas=said.dp, nodes=said.nodes, node_rank=said.node_rank, ref=ref)


def in_force(shapes: Iterable[StatedShape], field: str) -> int | None:
    """A size by the source that counts most; where that says several (of two logs), the larger one."""
    by_source: dict[str, list[int]] = {}
    for shape in shapes:
        if (value := getattr(shape, field)) is not None:
            by_source.setdefault(shape.where, []).append(value)
    return next((max(by_source[where]) for where in ORDER if where in by_source), None)


def disagreements(shapes: Sequence[StatedShape]) -> tuple[str, ...]:
    """Sizes of which the sources say different things, in words: "ranks of one replica: 4 (live object), 8 (command line)"."""
    out = []
    for field, words in _FIELDS.items():
        said = list(dict.fromkeys((value, s.where) for s in shapes if (value := getattr(s, field)) is not None))
        if len({value for value, _ in said}) > 1:
            out.append(f"{words}: " + ", ".join(f"{value} ({where})" for value, where in said))
    return tuple(out)
