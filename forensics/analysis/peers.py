"""Who does the same work as whom: the ranks whose stacks may be held against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.model import EngineInstance, EngineProcess, RankId

Process = tuple[str, int]
"""node, pid"""


@dataclass(frozen=True, slots=True)
class Peer:
    """One process among those of its role and parallel group."""

    name: str
    role: str = ""
    group: str = ""
    """ "DP0 PP1", or "" where all of that role belong together."""
    rank: int | None = None

    @property
    def crew(self) -> tuple[str, str]:
        return self.role, self.group


@dataclass(frozen=True, slots=True)
class Peers:
    """All processes of an engine, and the ranks that each crew (role, group) should have."""

    processes: Mapping[Process, Peer]
    expected: Mapping[tuple[str, str], frozenset[int]]

    def of(self, process: Process) -> Peer:
        """Its place; a process that belongs to nobody is known by its pid alone."""
        return self.processes.get(process) or Peer(f"pid {process[1]}")


def peers_of(engine: EngineInstance) -> Peers:
    """The crews of an engine: of one role, one data-parallel replica and one pipeline stage.

    Ranks that exist by the configuration and of which no process was found are expected only where the workers are one crew:
    to which of several an unseen rank belongs is not known here. Coverage names it in any case.
    """
    pps = {p.rank.pp if p.rank else None for p in engine.workers}
    stages = len(pps) > 1 and None not in pps
    processes = {(p.info.node, p.pid): _peer(p, engine.dp_size > 1, stages) for p in engine.processes}
    expected: dict[tuple[str, str], set[int]] = {}
    for peer in processes.values():
        if peer.rank is not None:
            expected.setdefault(peer.crew, set()).add(peer.rank)
    crews = {processes[p.info.node, p.pid].crew for p in engine.workers}
    if len(crews) == 1 and engine.world_size and engine.dp_size == 1:
        expected.setdefault(crews.pop(), set()).update(range(engine.world_size))
    return Peers(processes, {crew: frozenset(ranks) for crew, ranks in expected.items()})


def _peer(process: EngineProcess, replicas: bool, stages: bool) -> Peer:
    rank = process.rank or RankId()
    group = [f"DP{rank.dp}" if replicas and rank.dp is not None else "", f"PP{rank.pp}" if stages and rank.pp is not None else ""]
    role = process.role.value
    return Peer(process.label or role, role, " ".join(part for part in group if part), rank.rank)
