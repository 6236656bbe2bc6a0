"""GPUs of an engine with the reasons that the driver gives for lower clocks: shared by the rules about heat and power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from forensics.analysis.rules._machine import ranks_of_gpu
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EngineProcess, GpuSample

IDLE, CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
"""NVML nvmlClocksEventReason*; DCGM has the same."""
THERMAL = SW_THERMAL | HW_THERMAL
BEFORE_NS = 600 * SECOND
"""A reading that is older than this when the trouble begins belongs to another story."""
MOST_NAMED = 4


@dataclass(frozen=True)
class Gpu:
    """One GPU with its readings around the incident, in order of time."""

    node: str
    index: int
    samples: list[GpuSample] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        return self.node, self.index

    @property
    def told(self) -> list[tuple[GpuSample, int]]:
        """Readings that say why its clocks are low, or that nothing lowers them, each with the reasons."""
        return [(s, s.throttle_bits) for s in self.samples if s.throttle_bits is not None]

    def with_bits(self, bits: int, without: int = 0) -> list[GpuSample]:
        return [s for s, reasons in self.told if reasons & bits and not reasons & without]

    def newest(self, name: str) -> float | None:
        return next((v for s in reversed(self.samples) if (v := getattr(s, name)) is not None), None)

    @property
    def newest_name(self) -> str:
        return next((s.name for s in reversed(self.samples) if s.name), "")


class Whose(TypedDict, total=False):
    processes: list[EngineProcess]
    ranks: list[int]


def gpus(view: View) -> list[Gpu]:
    """GPUs of the engine's nodes; those that are known to work for somebody else alone are left out."""
    onset = view.stall.since.earliest_ns if view.stall else None
    found: dict[tuple[str, int], Gpu] = {}
    for s in view.on_nodes(GpuSample):
        if onset is None or s.at is None or s.at.latest_ns >= onset - BEFORE_NS:
            found.setdefault((s.node, s.index), Gpu(s.node, s.index)).samples.append(s)
    for gpu in found.values():
        gpu.samples.sort(key=lambda s: s.at.earliest_ns if s.at else 0)
    return [found[key] for key in sorted(found) if not _elsewhere(view, found[key])]


def _elsewhere(view: View, gpu: Gpu) -> bool:
    """Whether all processes on it are those of other engines."""
    pids = {pid for s in gpu.samples for pid in s.pids}
    others = [e for e in view.case.engines if e.id != view.engine.id]
    known = {(p.info.node, p.pid) for e in others for p in e.processes}
    return bool(pids) and all((gpu.node, pid) in known for pid in pids) and not any(view.process(gpu.node, pid) for pid in pids)


def owners(view: View, gpu: Gpu) -> Whose:
    """Processes of the engine on this GPU; else the ranks that maps of places name."""
    pids = dict.fromkeys(pid for s in gpu.samples for pid in s.pids)
    processes = [p for pid in pids if (p := view.process(gpu.node, pid)) is not None]
    if processes:
        return {"processes": processes, "ranks": []}
    bus = next((s.pci for s in gpu.samples if s.pci), "")
    return {"processes": [], "ranks": ranks_of_gpu(view, gpu.node, bus)[0] if bus else []}


def whose(view: View, several: Sequence[Gpu]) -> Whose:
    """Keyword arguments of View.finding."""
    found = [owners(view, gpu) for gpu in several]
    return {"processes": [p for f in found for p in f["processes"]], "ranks": [r for f in found for r in f["ranks"]]}


def named(view: View, several: Sequence[Gpu], what: str, figures: Callable[[Gpu], str]) -> str:
    """ "GPU 3 (rank 3) is slowed …: 210 of 700 W; GPU 4 …: …", with a count of those that are left out."""
    words = []
    for gpu in several[:MOST_NAMED]:
        owned = owners(view, gpu)
        ranks = [p.rank.rank for p in owned["processes"] if p.rank and p.rank.rank is not None] or owned["ranks"]
        who = f" (rank {', '.join(map(str, ranks))})" if ranks else ""
        words.append(f"GPU {gpu.index}{who} {what}: {figures(gpu)}")
    left = len(several) - MOST_NAMED
    return "; ".join(words) + (f"; and {left} more" if left > 0 else "")
