"""How far each rank of a group has come, whoever counted: NCCL's RAS, torch's recorder, or torch's watchdogs in the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.analysis.rules._contract import CannotTell
from forensics.analysis.view import View
from forensics.model import EvidenceRef, LogHit, TimeRange
from forensics.model.platform import CollectiveRecord, CommunicatorStatus

STATUS = (
    *("torch-watchdog-pg-status", "torch-watchdog-work-status", "torch-watchdog-timeout-at-work"),
    *("torch-dump-signal", "torch-timeout-signal"),
)
TIMEOUT = "torch-watchdog-timeout"
WAITS = ("nccl-watchdog-timeout", "heartbeat-monitor-abort", "symptom-peer-loss", "symptom-ray-channel-timeout")
PAIRWISE = re.compile(r"(?i)^(?:nccl:|gloo:)?(?:send|recv|_?coalesced|isend|irecv)")
"""Operations between two ranks: with them in a group the ranks' counts differ in a healthy run too."""
SAME_SIZE = frozenset({"ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
"""Collectives in which every rank must bring as many elements."""


@dataclass(frozen=True)
class Position:
    """Where one rank stands in one group."""

    rank: int
    count: int
    """Operations of the group that it has enqueued (or launched)."""
    ref: EvidenceRef
    completed: int | None = None
    pending: str = ""
    """Name of the oldest operation that it has not finished, "" where it has finished all or nobody tells."""
    pending_seq: int | None = None
    node: str = ""
    at: TimeRange | None = None


@dataclass
class Group:
    """The ranks of one communicator or process group, as one kind of witness counts them."""

    name: str
    via: str
    """ras | recorder | log"""
    positions: dict[int, Position] = field(default_factory=dict)
    size: int | None = None
    repeated: bool = False
    """The same counts stood there in two samples."""
    named: bool = True
    """The witness says which group it is: else two groups may hide behind one number."""
    pairwise: bool = False
    mixed: bool = False
    """Ranks are numbered within the communicator, and which ranks of the engine they are is not known."""
    said: str = ""
    """RUNNING, MISMATCH, …: what RAS itself says of it."""

    @property
    def whole(self) -> bool:
        return self.size is not None and len(self.positions) >= self.size

    @property
    def behind(self) -> list[Position]:
        """Those with the lowest count, where they are the lesser part; [] where all are level.

        Operations are enqueued ahead of their turn: who has entered the one in which the others wait is there with them.
        """
        if len(self.positions) < 2:
            return []
        counts = [p.count for p in self.positions.values()]
        low = [p for p in self.positions.values() if p.count == min(counts)]
        waited = min((p.pending_seq for p in self.positions.values() if p.pending_seq is not None and p not in low), default=None)
        there = waited is not None and min(counts) >= waited
        return low if min(counts) < max(counts) and 2 * len(low) <= len(counts) and not there else []

    @property
    def ahead(self) -> list[Position]:
        behind = {p.rank for p in self.behind}
        return [p for p in self.positions.values() if p.rank not in behind]


def groups(view: View) -> list[Group]:
    """All groups of which at least two ranks were counted, most direct witness first."""
    found = [*_by_ras(view), *_by_recorder(view), *_by_log(view)]
    return [g for g in found if len(g.positions) > 1]


def need_witness(view: View) -> None:
    """Raise CannotTell where nothing was read that could show the ranks of a collective: neither stacks, nor logs, nor counts."""
    sources = [view.outcome(s) for s in ("stacks", "log")]
    if not groups(view) and not any(o is not None and o.seen for o in sources):
        raise CannotTell("neither stacks nor logs nor counts of the ranks were read", "stacks", "log")


def world(view: View) -> int | None:
    """Ranks in the engine's world as a configuration, an environment or a communicator says it; the ranks that speak say no such thing."""
    said = [h.fields[f] for h in view.hits for f in ("world_size", "nranks") if h.fields.get(f, "").isdigit()]
    said += [p.info.env["WORLD_SIZE"] for p in view.engine.processes if p.info.env.get("WORLD_SIZE", "").isdigit()]
    sizes = [int(s) for s in said if len(s) < 7]
    for hit in view.events("start", "core-start"):
        if tp := re.search(r"\btensor_parallel_size=(\d{1,5})\b", hit.fields.get("config", "")):
            pp = re.search(r"\bpipeline_parallel_size=(\d{1,5})\b", hit.fields["config"])
            sizes.append(int(tp[1]) * (int(pp[1]) if pp else 1))
    return max(sizes, default=None)


def rank_of(hit: LogHit) -> int | None:
    """The rank that prints a torch line: that of the prefix is global, that in the message counts within the group."""
    if hit.rank is not None:
        return hit.rank
    own = hit.fields.get("group_rank", "")
    return int(own) if own.isdigit() else None


def stuck(view: View) -> list[EvidenceRef]:
    """What says that the ranks do not merely happen to differ at a moment of a running job: a wait that reached its limit, a standstill."""
    fired = [h for h in view.feeding(*WAITS) if h.role == "cascade" and (h.limit_s or h.feeds in WAITS[:2])]
    fired += view.events("timeout", "hang")
    if fired:
        return [h.ref for h in fired[:2]]
    if view.stall and view.stall.grade.strength >= 2 and view.stall.until is None:
        return list(view.stall.because[:2])
    return []


def _concerns(view: View, node: str) -> bool:
    """RAS and recorders speak for a whole job: what lies apart from every node is of the only engine there is."""
    return node in view.nodes or (len(view.case.engines) < 2 and not any(node in e.nodes for e in view.case.engines))


def _by_ras(view: View) -> Iterator[Group]:
    told: dict[tuple[str, str], list[CommunicatorStatus]] = {}
    for status in view.case.of(CommunicatorStatus):
        if _concerns(view, status.node) and status.counts and not view.past:
            told.setdefault((status.comm, status.operation), []).append(status)
    for (comm, operation), samples in told.items():
        # in order of time where they are dated, else of their files' names
        samples.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.ref.source))
        last = samples[-1]
        places = {rank: p for rank, pid in last.pids.items() if (p := view.rank_of(last.hosts.get(rank, last.node), pid)) is not None}
        mixed = len(places) < len(last.counts) and last.size != world(view)
        group = Group(comm, "ras", size=last.size, mixed=mixed, said=", ".join(s for s in (last.status, last.errors) if s))
        group.repeated = len(samples) > 1 and samples[-2].counts == last.counts and samples[-2].ref != last.ref
        for rank, count in last.counts.items():
            known = places.get(rank, rank)
            pending = f"{operation} {count}" if operation else ""
            group.positions[known] = Position(known, count, last.ref, pending=pending, node=last.hosts.get(rank, ""), at=last.at)
        yield group


def _by_recorder(view: View) -> Iterator[Group]:
    told: dict[tuple[str, tuple[int, ...]], dict[int, list[CollectiveRecord]]] = {}
    for record in view.case.of(CollectiveRecord):
        if record.rank is not None and _concerns(view, record.node) and not view.past:
            told.setdefault((record.group, record.members), {}).setdefault(record.rank, []).append(record)
    for (name, members), ranks in told.items():
        group = Group(name, "recorder", size=len(members) or world(view), named=bool(members) or name == "default_pg")
        group.repeated = True
        for rank, records in ranks.items():
            records.sort(key=lambda r: (r.at.earliest_ns if r.at else 0, r.ref.source))
            last = records[-1]
            if last.last_enqueued is None:
                continue
            group.repeated = group.repeated and len(records) > 1 and records[-2].last_enqueued == last.last_enqueued
            group.pairwise = group.pairwise or bool(PAIRWISE.match(last.pending))
            group.positions[rank] = Position(
                rank, last.last_enqueued, last.ref, last.last_completed, last.pending, last.pending_seq, last.node, last.at
            )
        yield group


def _by_log(view: View) -> Iterator[Group]:
    """Watchdogs print their group's counts after the limit has run out: what a rank had not enqueued by then, it did not."""
    fired = timeouts(view)
    found: dict[tuple[str, str], Group] = {}
    for hit in view.hits_of(*STATUS):
        rank, count = rank_of(hit), hit.fields.get("enqueued", "")
        if rank is None or not count.lstrip("-").isdigit():
            continue
        name = hit.fields.get("guid") or hit.fields.get("pg", "")
        key = (name, hit.fields.get("desc", ""))
        group = found.setdefault(key, Group(hit.fields.get("desc") or name, "log", size=world(view), named=bool(name)))
        seq = hit.fields.get("seq", "")
        work = fired.get((rank, int(seq))) if seq.isdigit() else None
        op = work.fields.get("op", "") if work else ""
        group.pairwise = group.pairwise or bool(PAIRWISE.match(op))
        known = group.positions.get(rank)
        if known is None or int(count) > known.count or (op and not known.pending):
            done = hit.fields.get("completed", "")
            group.positions[rank] = Position(
                rank,
                max(int(count), known.count if known else int(count)),
                hit.ref,
                int(done) if done.lstrip("-").isdigit() else None,
                op or (known.pending if known else ""),
                int(seq) if seq.isdigit() else (known.pending_seq if known else None),
                hit.node,
                (work.began if work else None) or (known.at if known else None),
            )
    yield from found.values()


def timeouts(view: View) -> dict[tuple[int, int], LogHit]:
    """(rank, sequence number) to the first line in which that rank's watchdog gave up on that operation."""
    first: dict[tuple[int, int], LogHit] = {}
    for hit in view.hits_of(TIMEOUT):
        rank, seq = rank_of(hit), hit.fields.get("seq", "")
        if rank is not None:
            first.setdefault((rank, int(seq) if seq.isdigit() else -1), hit)
    return first
