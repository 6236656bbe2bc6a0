"""Engines that are known by their logs alone: no process table, and no pid in any line.

SGLang, TensorRT-LLM, TGI and old vLLM name ranks at most. Such an engine has no processes here, and none is invented: it has a
kind, nodes, and the ranks that speak. What its start-up line states (sizes, rendezvous address) puts its nodes together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from forensics.analysis.case import Case
from forensics.analysis.lives import line_number
from forensics.engines import WORLD_LIMIT, Stated, profile
from forensics.model import EngineInstance, LogHit, LogSpan

KINDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt-llm": "trtllm", "tgi": "tgi"}
"""What a log or signature calls its engine to the profile of that engine."""
BENEATH = {"dynamo": "dynamo", "torch": "torchrun", "c10d": "torchrun", "nccl": "torchrun", "gloo": "torchrun", "ray": "ray"}
"""What works for an engine, ranked: a subject of its own only where the whole folder shows no engine."""
OF_A_RANK = frozenset({"exception", "start-failed", "worker-death", "hang"})
"""Lines that name the rank that they are about in a field, where their prefix names none."""
BLOCK_LINES = 400
_RANK_FILE = re.compile(r"(?:.*[-_])?rank[-_]?(\d{1,5})\Z", re.I)


@dataclass
class Part:
    """What the logs of one node say of an engine of one kind."""

    kind: str
    nodes: list[str]
    ranks: set[tuple[str, int]] = field(default_factory=set)
    stated: Stated = field(default_factory=Stated)
    version: str = ""

    @property
    def numbers(self) -> set[int]:
        return {rank for _, rank in self.ranks}


def heard(case: Case, known: Iterable[EngineInstance]) -> list[EngineInstance]:
    """Engines beside the known ones whose lines stand in logs that no known process writes."""
    known = list(known)
    parts = _parts(case, known, _by_line(case, KINDS))
    if not parts and not known:
        told = _by_line(case, BENEATH)
        best = next((kind for kind in dict.fromkeys(BENEATH.values()) if kind in told.values()), "")
        parts = _parts(case, known, {file: kind for file, kind in told.items() if kind == best})
    return [_engine(part) for part in _joined(parts)]


def complete(case: Case, engines: list[EngineInstance]) -> list[EngineInstance]:
    """What start-up lines without a pid state of the engines on their nodes: the world, and which nodes are one engine.

    Of the processes there may be stacks or a listing, and a log that names no pid beside them.
    """
    stated = {i: s for i, engine in enumerate(engines) if (s := _stated(case, engine)) is not None}
    homes: dict[tuple[str, str], int] = {}
    gone: set[int] = set()
    whole = list(engines)
    for i in sorted(stated, key=lambda i: stated[i].node_rank or 0):
        mine = whole[i]
        if (world := stated[i].world) and world > (mine.world_size or 0):
            whole[i] = mine = msgspec.structs.replace(mine, world_size=world)
        if not stated[i].together:
            continue
        home = homes.setdefault((mine.kind, stated[i].together), i)
        other = whole[home]
        if home == i or set(other.nodes) & set(mine.nodes) or len(other.nodes) >= (stated[i].nodes or 1):
            continue
        gone.add(i)
        whole[home] = msgspec.structs.replace(
            other,
            processes=(*other.processes, *mine.processes),
            nodes=(*other.nodes, *mine.nodes),
            log_files=tuple(dict.fromkeys((*other.log_files, *mine.log_files))),
            heard=(*other.heard, *mine.heard),
        )
    return [engine for i, engine in enumerate(whole) if i not in gone]


def _stated(case: Case, engine: EngineInstance) -> Stated | None:
    read = profile(engine.kind).stated
    starts = [h for h in case.of(LogHit) if h.pid is None and h.event in ("start", "core-start") and KINDS.get(h.engine) == engine.kind]
    mine = [h for h in starts if h.node in engine.nodes]
    return read(mine[-1].fields) if read and mine else None


def _by_line(case: Case, kinds: dict[str, str]) -> dict[tuple[str, str], str]:
    """(node, file) to the kind of engine whose lines stand in it, most of them first."""
    count: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for span in case.of(LogSpan):
        if span.engine in kinds:
            count[span.node, span.ref.source][kinds[span.engine]] += 1
    for hit in case.of(LogHit):
        if hit.engine in kinds and (hit.node, hit.ref.source) not in count:
            count[hit.node, hit.ref.source][kinds[hit.engine]] += hit.count
    return {file: max(told, key=lambda kind: told[kind]) for file, told in count.items()}


def _parts(case: Case, known: list[EngineInstance], kinds: dict[tuple[str, str], str]) -> list[Part]:
    """One part for each node and kind, without what processes that are known write."""
    writers = {(p.info.node, p.pid) for e in known for p in e.processes}
    there = {(node, e.kind) for e in known for node in e.nodes}
    parts: dict[tuple[str, str], Part] = {}
    files: dict[tuple[str, str], Part] = {}
    for span in case.of(LogSpan):
        kind = kinds.get((span.node, span.ref.source), "")
        pids = {(span.node, pid) for pid in (*span.pids, span.pid) if pid is not None}
        if not kind or pids & writers or (span.node, kind) in there:
            continue
        part = parts.setdefault((span.node, kind), Part(kind, [span.node]))
        files[span.node, span.ref.source] = part
        if named := _RANK_FILE.match(span.node):
            part.ranks.add((span.node, int(named[1])))
        part.ranks |= {(span.node, rank) for rank in span.ranks}
    hits = [h for h in case.of(LogHit) if (h.node, h.ref.source) in files]
    for hit in hits:
        _listen(hit, files[hit.node, hit.ref.source])
    for hit in hits:
        part = files[hit.node, hit.ref.source]
        if (rank := _rank(hit, part)) is not None:
            part.ranks.add((hit.node, rank))
    _place(case, files)
    return list(parts.values())


def _listen(hit: LogHit, part: Part) -> None:
    read = profile(part.kind).stated
    if read is not None and hit.event in ("start", "core-start"):
        part.stated = read(hit.fields)
    part.version = hit.fields.get("version", "") or part.version
    size = hit.fields.get("world_size", "")
    if hit.event == "place" and size.isdigit() and 0 < int(size[:9]) <= WORLD_LIMIT and part.stated.world is None:
        part.stated = Stated(world=int(size))


def _rank(hit: LogHit, part: Part) -> int | None:
    """The rank that a line is of: as its prefix places it, as it says, or as the name of its file does."""
    place = profile(part.kind).rank_at
    if place is not None and hit.process and (found := place(hit.process, part.stated.tp)) is not None:
        return found.rank
    if hit.rank is not None and hit.rank < WORLD_LIMIT:
        return hit.rank
    said = hit.fields.get("rank", "")
    if hit.event in OF_A_RANK and said.isdigit() and int(said[:9]) < WORLD_LIMIT:
        return int(said) + (_first_rank(part) or 0)
    named = _RANK_FILE.match(hit.node)
    return int(named[1]) if named else None


def _first_rank(part: Part) -> int | None:
    """The rank at which this node begins, where its start-up line states how many nodes there are; None where it cannot be told."""
    stated = part.stated
    if stated.nodes is None or stated.nodes < 2:
        return 0
    if stated.world is None or stated.node_rank is None or stated.world % stated.nodes:
        return None
    return stated.node_rank * (stated.world // stated.nodes)


def _place(case: Case, files: dict[tuple[str, str], Part]) -> None:
    """Write the ranks into the lines, so that no rule has to ask how this engine counts them."""
    placed = []
    blocks: dict[tuple[str, str], LogHit] = {}
    for hit in case.of(LogHit):
        part = files.get((hit.node, hit.ref.source))
        rank = _rank(hit, part) if part else hit.rank
        if part and rank is not None and hit.fields.get("exc_type"):
            blocks[hit.node, hit.ref.source] = msgspec.structs.replace(hit, rank=rank)
        elif part and rank is None and not hit.process and _in_block(hit, blocks.get((hit.node, hit.ref.source))):
            rank = blocks[hit.node, hit.ref.source].rank
        fields = hit.fields
        if part and hit.event == "worker-death" and "rank" in fields:
            # a parent numbers the children of its own node
            known = _first_rank(part) is not None
            fields = fields | {"rank": str(rank)} if known else {name: text for name, text in fields.items() if name != "rank"}
        placed.append(msgspec.structs.replace(hit, rank=rank, fields=fields) if rank != hit.rank or fields is not hit.fields else hit)
    case.replace_all(LogHit, placed)


def _in_block(hit: LogHit, block: LogHit | None) -> bool:
    """Whether a line without a prefix is the last of a traceback above it: engines log a traceback as one message of many lines."""
    if block is None or not 0 < line_number(hit.ref) - line_number(block.ref) <= BLOCK_LINES:
        return False
    said = block.fields.get("exc_message", "")[:60]
    return bool(said) and said in hit.text


def _joined(parts: list[Part]) -> list[Part]:
    """Parts of one engine put together: files named by rank, the same rendezvous, or ranks that only a further node can have."""
    whole: list[Part] = []
    for part in sorted(parts, key=lambda p: (p.stated.node_rank or 0, min(p.numbers, default=0), p.nodes)):
        home = next((other for other in whole if _belongs(part, other)), None)
        if home is None:
            followed = [other for other in whole if _follows(part, other)]
            home = followed[0] if len(followed) == 1 else None
        if home is None:
            whole.append(part)
            continue
        home.nodes += [n for n in part.nodes if n not in home.nodes]
        home.ranks |= part.ranks
        home.version = home.version or part.version
        if home.stated.world is None:
            home.stated = part.stated
    return whole


def _belongs(part: Part, home: Part) -> bool:
    if part.kind != home.kind or set(part.nodes) & set(home.nodes):
        return False
    named = [_RANK_FILE.match(node) for node in (*part.nodes, *home.nodes)]
    if all(named):
        return len({m[0][: m.start(1)] for m in named if m}) == 1
    return bool(part.stated.together) and part.stated.together == home.stated.together and len(home.nodes) < (home.stated.nodes or 1)


def _follows(part: Part, home: Part) -> bool:
    """Whether a part without rank 0 has just the ranks that another lacks."""
    if part.kind != home.kind or part.stated.together or set(part.nodes) & set(home.nodes):
        return False
    return bool(part.numbers and home.numbers) and 0 in home.numbers and 0 not in part.numbers and not part.numbers & home.numbers


def _engine(part: Part) -> EngineInstance:
    seen = max(part.numbers, default=-1) + 1
    world = part.stated.world
    return EngineInstance(
        id="",
        kind=part.kind,
        nodes=tuple(part.nodes),
        version=part.version,
        world_size=max(world, seen) if world else seen or None,
        dp_size=part.stated.dp or 1,
        heard=tuple(sorted(part.ranks)),
    )
