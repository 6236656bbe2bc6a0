"""Which processes belong to which engine, and who has which rank: process table first, the engine's own words over it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import msgspec

from forensics.analysis import shape
from forensics.analysis.case import Case
from forensics.analysis.heard import complete, heard
from forensics.engines import WORLD_LIMIT, identify, profile
from forensics.model import ConfigValue, EngineInstance, EngineProcess, LogHit, LogSpan, RankId, Role

_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}


@dataclass
class _Said:
    """What the logs of one node say about ranks and configuration."""

    ranks: dict[tuple[str, int], RankId] = field(default_factory=dict)
    addresses: dict[tuple[str, int], str] = field(default_factory=dict)
    version: dict[tuple[str, int], str] = field(default_factory=dict)
    sizes: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)


def build(case: Case) -> None:
    """Fill case.engines from the processes and logs that were read."""
    said = _listen(case)
    engines = identify(list(case.processes.values()))
    engines = [_with_ranks(e, said) for e in engines]
    engines = _merge_logs(engines, case)
    engines = _merge_nodes(engines, said)
    engines = complete(case, [*engines, *heard(case, engines)])
    for config in case.of(ConfigValue):
        if config.name == "version":
            engines = [
                msgspec.structs.replace(e, version=e.version or config.value) if config.pid in {p.pid for p in e.processes} else e
                for e in engines
            ]
    engines = [_as_running(e, case) for e in engines]
    engines = [_with_limit(e, case, {n for other in engines for n in other.nodes}) for e in engines]
    case.engines = [msgspec.structs.replace(e, id=f"e{i}") for i, e in enumerate(engines)]


def _as_running(engine: EngineInstance, case: Case) -> EngineInstance:
    """The sizes that its running objects say, over what its log and its command line said; never fewer than the ranks that were seen."""
    running = list(shape.live(case, engine))
    ranks = [p.rank for p in engine.processes if p.rank]
    world, replicas = shape.in_force(running, "world_size"), shape.in_force(running, "replicas")
    if world is not None:
        world = max([world, *(r.rank + 1 for r in ranks if r.rank is not None and replicas is None)])
    if replicas is not None:
        replicas = max([replicas, *(r.dp + 1 for r in ranks if r.dp is not None)])
    return msgspec.structs.replace(engine, world_size=world or engine.world_size, dp_size=replicas or engine.dp_size)


def _with_limit(engine: EngineInstance, case: Case, owned: set[str]) -> EngineInstance:
    """The limit of an execution call as an environment in the folder says it, where no process of the engine showed its own."""
    name = profile(engine.kind).execute_timeout_env
    if engine.execute_timeout_s is not None or not name:
        return engine
    # a file that names no node of any engine speaks of all of them
    said = {c.value for c in case.of(ConfigValue) if c.name == name and (c.node in engine.nodes or c.node not in owned)}
    value = said.pop() if len(said) == 1 else ""
    return msgspec.structs.replace(engine, execute_timeout_s=float(value)) if re.fullmatch(r"\d{1,7}(?:\.\d+)?", value) else engine


def _merge_logs(engines: list[EngineInstance], case: Case) -> list[EngineInstance]:
    """Processes that are known by their names in one log alone belong to the engine that writes it, whatever run they are of."""
    for span in case.of(LogSpan):
        speakers = {(span.node, pid) for pid in (*span.pids, span.pid) if pid is not None}
        writers = [e for e in engines if any((p.info.node, p.pid) in speakers for p in e.processes)]
        rooted = [e for e in writers if any(p.info.ppid is not None for p in e.processes)]
        ghosts = [e for e in writers if e not in rooted]
        if len(rooted) > 1 or len(writers) < 2:
            continue
        home = rooted[0] if rooted else writers[0]
        others = [e for e in ghosts if e is not home]
        joined = msgspec.structs.replace(home, processes=(*home.processes, *(p for e in others for p in e.processes)))
        engines = [joined if e is home else e for e in engines if e not in others]
    return engines


def _listen(case: Case) -> _Said:
    said = _Said()
    speakers = {(s.node, s.ref.source): s.pids for s in case.of(LogSpan) if s.pids}
    for hit in case.of(LogHit):
        if hit.pid is None:
            # a core of V0 and early V1 names no pid, its workers do: what it says is said of those that write into the same file
            if hit.signature == "vllm-engine-config":
                for pid in speakers.get((hit.node, hit.ref.source), ()):
                    _configured(said, (hit.node, pid), hit)
            continue
        key = (hit.node, hit.pid)
        f = hit.fields
        if int(f.get("world_size", "1")) > WORLD_LIMIT or int(f.get("rank", "0")) >= WORLD_LIMIT:
            continue  # no such world: a damaged line, or one that means us harm
        if hit.signature == "vllm-rank-assigned":
            said.ranks[key] = RankId(
                rank=int(f["rank"]), world_size=int(f["world_size"]), tp=int(f["tp"]), pp=int(f["pp"]), dp=int(f["dp"])
            )
        elif hit.signature == "vllm-world":
            said.addresses[key] = f["init_method"]
            # a later run may have given the pid to another rank: its newest place counts
            if key not in said.ranks or said.ranks[key].rank != int(f["rank"]):
                said.ranks[key] = RankId(rank=int(f["rank"]), world_size=int(f["world_size"]))
        elif hit.signature == "vllm-engine-config":
            _configured(said, key, hit)
        elif hit.rank is not None:
            said.ranks.setdefault(key, RankId(rank=hit.rank))
    return said


def _configured(said: _Said, key: tuple[str, int], hit: LogHit) -> None:
    said.version[key] = hit.fields["version"]
    found = {short: int(m[1][:9]) for short, name in _SIZES.items() if (m := re.search(rf"\b{name}=(\d+)", hit.fields["config"]))}
    said.sizes[key] = {short: size for short, size in found.items() if 0 < size <= WORLD_LIMIT}


def _with_ranks(engine: EngineInstance, said: _Said) -> EngineInstance:
    keys = {(p.info.node, p.pid) for p in engine.processes}
    sizes: dict[str, int] = {}
    version = engine.version
    for key in keys:
        version = version or said.version.get(key, "")
        sizes |= said.sizes.get(key, {})
    world = engine.world_size
    if sizes.get("tp") and sizes.get("pp") and sizes["tp"] * sizes["pp"] <= WORLD_LIMIT:
        world = sizes["tp"] * sizes["pp"]
    dp = max(sizes.get("dp", 1), engine.dp_size)
    across = (world or 0) * dp if dp > 1 else 0
    processes = []
    for process in engine.processes:
        rank = process.rank
        heard = said.ranks.get((process.info.node, process.pid))
        if heard is not None and process.role is Role.WORKER:
            # the worker's own line is the best witness of its place; what the title adds (ep) is kept. Not of its replica: in
            # dense data parallelism every replica is a world of its own and calls itself DP rank 0, only its parent knows better
            said_of = _known(heard)
            if rank and rank.dp is not None:
                said_of.pop("dp", None)
            rank = msgspec.structs.replace(rank, **said_of) if rank else heard
            # with expert parallelism the workers count across replicas: that is not the world of one
            world = world if heard.world_size == across else heard.world_size or world
        processes.append(msgspec.structs.replace(process, rank=rank))
    if world == 1:
        processes = [
            msgspec.structs.replace(p, rank=RankId(rank=0, world_size=1)) if p.role is Role.WORKER and _no_rank(p) else p for p in processes
        ]
    return msgspec.structs.replace(engine, processes=tuple(processes), version=version, world_size=world, dp_size=dp)


def _known(rank: RankId) -> dict[str, int]:
    return {name: value for name in rank.__struct_fields__ if (value := getattr(rank, name)) is not None}


def _no_rank(process: EngineProcess) -> bool:
    return process.rank is None or process.rank.rank is None


def _merge_nodes(engines: list[EngineInstance], said: _Said) -> list[EngineInstance]:
    """Join followers (workers without a core) to the head that names the same rendezvous address.

    Where several heads name it (private address ranges repeat), the one whose node name shares most letters with the
    follower's; where that ties, nobody is joined: two engines are better than a wrong one. Where none names it, the only head
    that names no address at all and lacks these ranks.
    """

    def address(engine: EngineInstance) -> str:
        return next((said.addresses[k] for p in engine.processes if (k := (p.info.node, p.pid)) in said.addresses), "")

    heads = [e for e in engines if any(p.role is Role.CORE for p in e.processes)]
    followers = [e for e in engines if e not in heads and e.workers and address(e)]
    joined: dict[int, list[EngineInstance]] = {}
    rest = []
    for engine in engines:
        if engine not in followers:
            continue
        own = address(engine)
        apart = [h for h in heads if not set(h.nodes) & set(engine.nodes)]
        taken = {w.rank.rank for w in engine.workers if w.rank}
        apart = [h for h in apart if not taken & {w.rank.rank for w in h.workers if w.rank}]
        options = [h for h in apart if address(h) == own]
        if not options:
            # a head of whose own worker no line was read names none: the only one whose world lacks these ranks
            short = [h for h in apart if not address(h) and (h.world_size or 0) > len(h.workers) and h.world_size == engine.world_size]
            options = short if len(short) == 1 else []
        scored = sorted(((len(os.path.commonprefix([h.nodes[0], engine.nodes[0]])), i) for i, h in enumerate(options)), reverse=True)
        if not scored or (len(scored) > 1 and scored[0][0] == scored[1][0]):
            rest.append(engine)
            continue
        joined.setdefault(id(options[scored[0][1]]), []).append(engine)
    merged = []
    for engine in engines:
        if engine in followers and engine not in rest:
            continue
        for other in joined.get(id(engine), []):
            engine = msgspec.structs.replace(
                engine,
                processes=(*engine.processes, *other.processes),
                nodes=tuple(dict.fromkeys((*engine.nodes, *other.nodes))),
                log_files=tuple(dict.fromkeys((*engine.log_files, *other.log_files))),
            )
        merged.append(engine)
    return merged


def output_rank(engine: EngineInstance) -> int | None:
    """The rank whose answer the core waits for, where engine and world are known."""
    kind = profile(engine.kind)
    if kind.output_rank is None or engine.world_size is None:
        return None
    tps = [w.rank.tp for w in engine.workers if w.rank and w.rank.tp is not None]
    pps = [w.rank.pp for w in engine.workers if w.rank and w.rank.pp is not None]
    pp_size = max(pps, default=0) + 1
    tp_size = max(max(tps, default=0) + 1, engine.world_size // pp_size if engine.world_size else 1)
    return kind.output_rank(engine.world_size, tp_size)
