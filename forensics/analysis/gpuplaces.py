"""Joins what several listings say of GPUs: processes to GPUs by bus id, uuid or index, ranks to GPUs through their processes."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from forensics.analysis.case import Case
from forensics.model import GpuProcess, GpuSample, RankPlace


def join_gpus(case: Case) -> None:
    """Fill in what one listing leaves out and another of the same node tells. Nothing is guessed across nodes."""
    samples, processes, places = case.of(GpuSample), case.of(GpuProcess), case.of(RankPlace)
    if not processes and not places:
        return
    index_of: dict[tuple[str, str], int] = {}
    bus_of: dict[tuple[str, int], str] = {}
    by_uuid: dict[tuple[str, str], GpuSample] = {}
    for s in samples:
        if s.pci:
            index_of.setdefault((s.node, s.pci), s.index)
            bus_of.setdefault((s.node, s.index), s.pci)
        if s.uuid and (s.node, s.uuid) not in by_uuid:
            by_uuid[s.node, s.uuid] = s
    joined = []
    for p in processes:
        gpu = by_uuid.get((p.node, p.uuid)) if p.uuid else None
        bus = p.pci or (gpu.pci if gpu else "") or (bus_of.get((p.node, p.index), "") if p.index is not None else "")
        index = p.index if p.index is not None else gpu.index if gpu else index_of.get((p.node, bus))
        joined.append(msgspec.structs.replace(p, pci=bus, index=index) if (bus, index) != (p.pci, p.index) else p)
    case.replace_all(GpuProcess, joined)
    users: dict[tuple[str, int], set[int]] = defaultdict(set)
    of_pid: dict[tuple[str, int], list[GpuProcess]] = defaultdict(list)
    for p in joined:
        of_pid[p.node, p.pid].append(p)
        if p.index is not None:
            users[p.node, p.index].add(p.pid)
    case.replace_all(
        GpuSample,
        [
            msgspec.structs.replace(s, pids=tuple(sorted(pids))) if not s.pids and (pids := users.get((s.node, s.index))) else s
            for s in samples
        ],
    )
    filled = []
    for place in places:
        bus, index = place.pci, place.gpu
        gpus = of_pid.get((place.node, place.pid), []) if place.pid is not None else []
        if not bus and index is None and len({(g.pci, g.index) for g in gpus}) == 1:
            bus, index = gpus[0].pci, gpus[0].index
        if index is None and bus:
            index = index_of.get((place.node, bus))
        # "gpu 0" of a process may be one of CUDA_VISIBLE_DEVICES: no bus id is concluded from it
        filled.append(msgspec.structs.replace(place, pci=bus, gpu=index))
    case.replace_all(RankPlace, filled)
