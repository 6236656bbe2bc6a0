"""Kinds of evidence by name: which collector brings them, what their parsers make of them, and how they came out for one engine."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.analysis.view import View
from forensics.model import (
    Attempt,
    BuildReading,
    ClockState,
    CodeCheck,
    ConstantReading,
    CpuGroup,
    CpuSample,
    FunctionReading,
    GpuProcess,
    GpuSample,
    HealthSample,
    HostCpu,
    KernelSpan,
    LiveValue,
    LockReading,
    LogSpan,
    MemorySample,
    Observation,
    Outcome,
    PatchReading,
    ProcessState,
    ProgressSample,
    QueueDepth,
    RingReading,
    ThermalReading,
    ThreadStack,
)

COLLECTOR_OF = {"log": "rpclogs", "metrics": "queues", "sockets": "queues"}
"""Source names that differ from the collector that brings them."""
OBSERVED: dict[str, tuple[type[Observation], ...]] = {
    "log": (LogSpan,),
    "stacks": (ThreadStack,),
    "metrics": (ProgressSample,),
    "process": (ProcessState,),
    "cpu": (CpuSample, HostCpu, CpuGroup),
    "sockets": (QueueDepth,),
    "rings": (RingReading,),
    "objects": (LiveValue, LockReading),
    "health": (HealthSample,),
    "memory": (MemorySample,),
    "kernel": (KernelSpan,),
    "gpu": (GpuSample, GpuProcess),
    "thermal": (ThermalReading,),
    "patches": (PatchReading, FunctionReading, ConstantReading),
    "clock": (ClockState,),
    "builds": (BuildReading, CodeCheck),
}


def outcome(view: View, source: str) -> Outcome | None:
    """How the evidence of a source came out over the nodes of one engine: the worst word, None when nobody collected it.

    From a folder of bare files there are no attempts: a source is OK where a parser found it.
    """
    collector = COLLECTOR_OF.get(source, source)
    tried = [a for node, a in view.case.attempts if a.collector == collector and (node in view.nodes or not node)]
    if not tried:
        if not observed(view, source):
            return None
        # what another collector brought in passing does not stand for the look that nobody took
        return Outcome.PARTIAL if any(node in view.nodes for node, _ in view.case.attempts) else Outcome.OK
    pids = {p.pid for p in view.engine.processes}
    mine = [a for a in tried if a.origin is None or a.origin.pid is None or a.origin.pid in pids]
    words = [a.outcome for a in of_source(source, mine or tried)]
    if words and all(w in (Outcome.ABSENT, Outcome.EMPTY) for w in words):
        return Outcome.EMPTY if Outcome.EMPTY in words else Outcome.ABSENT
    blind = [w for w in words if w.blind]
    if blind:
        return Outcome.PARTIAL if any(w in (Outcome.OK, Outcome.PARTIAL) for w in words) else blind[0]
    cut = Outcome.PARTIAL in words or (source == "log" and _ended_after(view, mine))
    return Outcome.PARTIAL if cut else Outcome.OK


def _ended_after(view: View, read: Sequence[Attempt]) -> bool:
    """Whether a process of the engine was first missed after its log had been read: its last words may lie behind the end of the slice."""
    last = max((a.ended_ns for a in read), default=0)
    missed = [[s.at.latest_ns for s in view.states_of(p) if s.gone and s.at] for p in view.engine.processes]
    return last > 0 and not view.ends and any(min(times) > last for times in missed if times)


def of_source(source: str, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The queues collector looks at two sources: its attempts at URLs are metrics, the others sockets."""
    if source not in ("metrics", "sockets"):
        return list(attempts)
    return [a for a in attempts if a.target.startswith("http") == (source == "metrics")]


def observed(view: View, source: str, node: str = "") -> bool:
    """Whether any parser found something of this source, on one node or anywhere."""
    if source == "metrics":
        return any(s.via == "metrics" and node in ("", s.node) for s in view.of(ProgressSample))
    return any(node in ("", o.node) for k in OBSERVED[source] for o in (*view.of(k), *view.on_nodes(k)))
