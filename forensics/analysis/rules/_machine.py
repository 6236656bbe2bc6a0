"""What the rules about the layers below share: when an event belongs to the incident, and which rank a GPU or a process is.

An event of the machine is the root only where the engine's trouble began at or after it and the engine did not outlive it. One
that came later is part of the end; one that the engine survived is a circumstance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from forensics.analysis.case import COMM_CHARS
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import (
    ContainerStatus,
    EngineProcess,
    EvidenceRef,
    FindingRole,
    GpuFault,
    GpuProcess,
    GpuSample,
    KernelEvent,
    RankPlace,
    Severity,
    TimeRange,
)

SLACK_NS = 2 * SECOND
"""Clocks of a kernel log and of an engine's log are read a moment apart."""
STALL_SLACK_NS = 15 * SECOND
"""A standstill is dated by lines that speak of the ten seconds before them."""
OUTLIVED_NS = 20 * SECOND
"""An engine that still moves this long after an event was not ended by it."""
_PCI = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")
_OURS = re.compile(
    r"^(?:vllm|sglang|trtllm|tritonserver|ray::|python"
    r"|pt_\w+|nccl (?:progress|service|ras|ib)|cuda-evt|mpirun|dynamo|text-generation)",
    re.I,
)
_NAMED = re.compile(r"^(?:vllm::|vllm$|sglang::|ray::\w*(?:Worker|Engine|LLM)|trtllm|text-generation)", re.I)


@dataclass
class _Known:
    """What is asked of a view again and again."""

    alive_ns: int = 0
    """The last moment from which on it is known to have moved, or to have become ready."""
    troubles: list[tuple[TimeRange, int]] | None = None


_known: WeakKeyDictionary[View, _Known] = WeakKeyDictionary()


def _of(view: View) -> _Known:
    known = _known.get(view)
    if known is None:
        ready = [r.at.earliest_ns + OUTLIVED_NS for r in view.events("ready") if r.at]
        # of an engine of which some replicas stand still, that the others move says nothing
        still = view.stall.replicas if view.stall and view.stall.until is None else ()
        intervals = [i for i in (*view.progress.metrics, *view.progress.log) if not still or i.replica in still]
        moved = [i.since_ns for i in intervals if i.moved and i.since_ns is not None]
        known = _known[view] = _Known(max((*ready, *moved), default=0))
    return known


def troubles(view: View) -> list[tuple[TimeRange, int]]:
    """When the engine's trouble shows, with how much later than that its cause may be dated. What it outlived is none."""
    known = _of(view)
    if known.troubles is None:
        known.troubles = _troubles(view)
    return known.troubles


def _troubles(view: View) -> list[tuple[TimeRange, int]]:
    found: list[tuple[TimeRange, int]] = []
    stall = view.stall
    if stall is not None and stall.until is None:
        found.append((stall.since, STALL_SLACK_NS))
    ends = view.events(*ENDS)
    waits = view.events("hang", "timeout") + [
        h for h in view.hits if h.feeds.startswith(("symptom-", "kv-transfer-peer")) or h.feeds in ALARMS
    ]
    found += [(at, SLACK_NS) for h in ends if (at := h.began) is not None]
    found += [(at, STALL_SLACK_NS) for h in waits if (at := h.began) is not None and h.event not in ENDS]
    stopped = view.stopped_ns  # what ends after somebody asked for it is no trouble
    return [(at, slack) for at, slack in found if not outlived(view, at) and (stopped is None or at.earliest_ns < stopped)]


ENDS = ("worker-death", "fatal", "told", "death-told", "start-failed")
ALARMS = ("nccl-watchdog-timeout", "heartbeat-monitor-abort", "ray-actor-died", "cuda-illegal-access", "sigsegv", "native-crash")


def outlived(view: View, at: TimeRange) -> bool:
    """Whether the engine became ready, or moved, well after this moment."""
    return _of(view).alive_ns > at.latest_ns + OUTLIVED_NS


def part(view: View, at: TimeRange | None, *, lasting: bool = False, late_ns: int = 0, machine: bool = False) -> FindingRole:
    """The part that an event of the machine plays.

    lasting: it does not heal by itself, so that an undated one still holds. late_ns: how long after the fact its line may be written.
    machine: told by the kernel, not by a program, which of itself speaks of its own trouble.
    """
    if not view.engine.id:
        return FindingRole.ROOT  # a machine on which no engine was recognised: nothing else can be told of it
    known = troubles(view)
    if not view.engine.processes and not machine and (at is None or not known):
        return FindingRole.ROOT
    if not known:  # an engine that does not come up has no line of trouble yet
        return FindingRole.ROOT if lasting and at and view.starting and at.latest_ns >= (view.begun_ns or 0) else FindingRole.CONTEXT
    if at is None:
        return FindingRole.ROOT if lasting else FindingRole.CONTEXT
    begun, again = started_again(view)
    if outlived(view, at) or (begun is not None and at.latest_ns < begun and (again or not lasting)):
        return FindingRole.CONTEXT  # of an earlier life; to have started on it all the same is another finding
    first, slack = min(known, key=lambda k: k[0].earliest_ns)
    slack = max(slack, late_ns) if slack > SLACK_NS else slack  # after a death the driver has nothing left to notice
    return FindingRole.TEARDOWN if at.earliest_ns > first.latest_ns + slack else FindingRole.ROOT


def started_again(view: View) -> tuple[int | None, bool]:
    """(when this life began, whether there was one before it)."""
    containers = [c for c in view.on_nodes(ContainerStatus) if c.restarts and c.started]
    started = max((c.started.earliest_ns for c in containers if c.started), default=None)
    spoke = any(view.lives.of(h.node, h.ref, h.at) < view.life for h in view.every_hit)
    return (view.begun_ns if view.begun_ns is not None else started), bool(view.life > 1 or containers or spoke)


def grave(role: FindingRole) -> bool:
    return role in (FindingRole.ROOT, FindingRole.CASCADE)


def weight(view: View, role: FindingRole, at: TimeRange | None) -> Severity:
    """How grave an event of the machine is: one that the engine outlived, or that came before it was started, is history."""
    if grave(role):
        return Severity.CRITICAL
    past = at is not None and (outlived(view, at) or (view.begun_ns is not None and at.latest_ns < view.begun_ns))
    return Severity.INFO if role is FindingRole.CONTEXT and past else Severity.WARNING


def first_at(events: Iterable[KernelEvent]) -> TimeRange | None:
    return min((e.at for e in events if e.at), key=lambda at: at.earliest_ns, default=None)


def bus_id(text: str) -> str:
    """One spelling of a PCI address: "0000:b3:00". The function is left out: a GPU has one that computes. "" where there is none."""
    m = _PCI.search(text)
    return f"{(m[1] or '0000')[-4:]}:{m[2]}:{m[3]}".lower() if m else ""


def ranks_of_gpu(view: View, node: str, bus: str) -> tuple[list[int], list[EvidenceRef], bool]:
    """(ranks that run on the GPU at this bus address, what says so, whether the maps name every GPU of the engine but this one)."""
    bus = bus_id(bus)
    if not bus:
        return [], [], False
    places = _on(view, node, view.case.of(RankPlace))
    index = {f.index for f in _on(view, node, view.case.of(GpuFault)) if bus_id(f.pci) == bus and f.index is not None}
    uuids = {
        e.fields["uuid"] for e in view.on_nodes(KernelEvent) if "uuid" in e.fields and e.node == node and bus_id(e.fields["bus"]) == bus
    }
    mine = [p for p in places if bus_id(p.pci) == bus or (not p.pci and p.gpu is not None and p.gpu in index)]
    if mine:
        return list(dict.fromkeys(p.rank for p in mine)), [p.ref for p in mine], False
    ranks: list[int] = []
    refs: list[EvidenceRef] = []
    for g in view.on_nodes(GpuProcess):
        if g.node == node and (bus_id(g.pci) == bus or (g.uuid and g.uuid in uuids)):
            rank = view.rank_of(node, g.pid)
            if rank is not None and rank not in ranks:
                ranks, refs = [*ranks, rank], [*refs, g.ref]
    for s in view.on_nodes(GpuSample):
        if s.node == node and s.uuid and s.uuid in uuids:
            for pid in s.pids:
                rank = view.rank_of(node, pid)
                if rank is not None and rank not in ranks:
                    ranks, refs = [*ranks, rank], [*refs, s.ref]
    whole = bool(places) and all(p.pci for p in places) and len({p.rank for p in places}) >= (view.engine.world_size or 1)
    return ranks, refs, whole


P = TypeVar("P", RankPlace, GpuFault)


def _on(view: View, node: str, records: list[P]) -> list[P]:
    """Records of a node; a map that names no node belongs to the only one."""
    engines = {n for e in view.case.engines for n in e.nodes}
    mine = [r for r in records if r.node == node or (r.node not in engines and len(engines) == 1)]
    if sum(node in e.nodes for e in view.case.engines) > 1:  # ranks of several engines: only those of a process of this one
        mine = [r for r in mine if not isinstance(r, RankPlace) or view.process(node, r.pid)]
    return mine


def named_process(view: View, node: str, pid: str | None, comm: str | None) -> EngineProcess | None:
    """The engine's process that a kernel line names by pid: only where the name fits too, for a container counts its own pids."""
    process = view.process(node, int(pid)) if pid and len(pid) < 10 else None
    if process is None or not comm or comm.startswith("<"):
        return process
    title = process.info.title or process.info.comm
    fits = title.startswith(comm[: COMM_CHARS - 1]) or (process.info.comm or "").startswith(comm[: COMM_CHARS - 1])
    return process if fits or _OURS.match(comm) else None


def ours_by_name(comm: str) -> tuple[bool, bool]:
    """(whether this may be a process of an engine, whether its name says so by itself)."""
    return bool(_OURS.match(comm)), bool(_NAMED.match(comm))
