"""Which builds an engine runs: one record for each distinct build of a component, with who has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.analysis.heard import KINDS
from forensics.analysis.view import View
from forensics.model import Build, BuildReading, EngineProcess, EvidenceRef, Role

RUNS_CODE = (Role.API, Role.CORE, Role.WORKER, Role.COORDINATOR, Role.LAUNCHER)
BESIDE = ("torch", "nccl")
"""Components that matter beside the engine's own, as far as names of installed packages and logs tell of them."""
_NCCL = re.compile(r"nvidia-nccl-cu\d+")


@dataclass
class Has:
    """Somebody's build of a component."""

    component: str
    version: str
    via: str
    ref: EvidenceRef
    node: str
    process: EngineProcess | None = None
    build_id: str = ""
    path: str = ""
    sure: bool = False
    """Read directly, of what the process really runs as far as files tell."""
    stale: bool = False


@dataclass
class _Same:
    first: Has
    nodes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)


def of_engine(view: View) -> tuple[Build, ...]:
    """Distinct builds of one engine, its own component first. A reading without a build id joins the only build of that version."""
    found: dict[tuple[str, str, str], _Same] = {}
    everybody = list(readings(view))
    known: dict[tuple[str, str], set[str]] = {}
    for has in everybody:
        if has.build_id:
            known.setdefault((has.component, has.version), set()).add(has.build_id)
    for has in everybody:
        ids = known.get((has.component, has.version), set())
        build_id = has.build_id or (next(iter(ids)) if len(ids) == 1 else "")
        same = found.setdefault((has.component, has.version, build_id), _Same(has))
        if has.build_id and not same.first.build_id:
            same.first = has
        if has.node:
            same.nodes.add(has.node)
        if has.process is not None:
            same.pids.add(has.process.pid)
            if has.process.rank is not None and has.process.rank.rank is not None:
                same.ranks.add(has.process.rank.rank)
    order = {name: i for i, name in enumerate((*view.profile.packages, *BESIDE))}
    return tuple(
        Build(
            component=component,
            version=version,
            build_id=build_id,
            path=same.first.path,
            via=same.first.via,
            nodes=tuple(sorted(same.nodes)),
            ranks=tuple(sorted(same.ranks)),
            pids=tuple(sorted(same.pids)),
        )
        for (component, version, build_id), same in sorted(found.items(), key=lambda i: (order.get(i[0][0], 99), i[0]))
    )


def readings(view: View) -> Iterator[Has]:
    """Who has which build: as read of a process, else by the names of its installed packages, else as its node's log says."""
    direct = view.of(BuildReading)
    told: set[tuple[str, str]] = set()
    processes: set[tuple[str, int | None, str]] = set()
    for reading in direct:
        process = view.process(reading.node, reading.pid)
        if process is None or process.role not in RUNS_CODE:
            continue
        told.add((reading.node, reading.component))
        processes.add((reading.node, reading.pid, reading.component))
        yield Has(
            component=reading.component,
            version=reading.version,
            via=reading.via,
            ref=reading.ref,
            node=reading.node,
            process=process,
            build_id=reading.build_id,
            path=reading.path,
            sure=not (reading.stale or reading.inferred),
            stale=reading.stale,
        )
    if not view.past:
        for process in view.engine.processes:
            for component, version in _installed(view, process):
                node = process.info.node
                if (node, process.pid, component) not in processes:
                    told.add((node, component))
                    quote = f"{component} {version}"
                    ref = EvidenceRef(source="discovery/processes.json", locator=f"packages of pid {process.pid} on {node}", quote=quote)
                    yield Has(component, version, "packages", ref, node, process)
    yield from (has for has in _logged(view) if (has.node, has.component) not in told)


def _installed(view: View, process: EngineProcess) -> Iterator[tuple[str, str]]:
    if process.role in RUNS_CODE:
        for name, version in process.info.packages.items():
            component = "nccl" if _NCCL.fullmatch(name) else name.replace("-", "_")
            if component in view.profile.packages or component in BESIDE:
                yield component, version


def _logged(view: View) -> Iterator[Has]:
    """Versions that log lines name: the engine's own, and NCCL's. The newest line of a process counts."""
    newest: dict[tuple[str, str, int | None, str], Has] = {}
    for hit in view.hits:
        version = hit.fields.get("version", "")
        if not version:
            continue
        if hit.signature in ("nccl-version", "vllm-nccl-version"):
            component = "nccl"
        elif view.profile.packages and KINDS.get(hit.engine) == view.engine.kind and hit.feeds == "execution-mode":
            component = view.profile.packages[0]
        else:
            continue
        has = Has(component, version, "log", hit.ref, hit.node, view.process(hit.node, hit.pid))
        newest[component, hit.node, hit.pid, hit.ref.source if hit.pid is None else ""] = has
    yield from newest.values()
