"""One engine as its rules see it: its processes, and the observations that concern them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from forensics.analysis import progress, stacks
from forensics.analysis.case import Case
from forensics.analysis.progress import Progress
from forensics.analysis.stacks import ThreadView
from forensics.analysis.topology import output_rank
from forensics.engines import EngineProfile, profile
from forensics.model import (
    CpuSample,
    EngineInstance,
    EngineProcess,
    EvidenceRef,
    Finding,
    FindingRole,
    GpuSample,
    Grade,
    HealthSample,
    HostCpu,
    KernelSpan,
    LogHit,
    LogSpan,
    MemorySample,
    Observation,
    Outcome,
    PatchReading,
    ProcessState,
    ProgressSample,
    QueueDepth,
    Role,
    Severity,
    ThermalReading,
    ThreadStack,
    TimeRange,
)

if TYPE_CHECKING:
    from forensics.analysis.stall import Stall

O = TypeVar("O", bound=Observation)  # noqa: E741 the one type variable of this module

START_NS = 5 * 10**9
"""Several fronts of one engine print their start-up lines within this time."""

COLLECTOR_OF = {"log": "rpclogs", "metrics": "queues", "sockets": "queues"}
"""Source names that differ from the collector that brings them."""


class View:
    """Facts about one engine, computed once and shared by all rules."""

    def __init__(self, case: Case, engine: EngineInstance) -> None:
        self.case = case
        self.engine = engine
        self.profile: EngineProfile = profile(engine.kind)
        self.by_key: dict[tuple[str, int], EngineProcess] = {(p.info.node, p.pid): p for p in engine.processes}

    # ---- who

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.engine.nodes

    @property
    def workers(self) -> tuple[EngineProcess, ...]:
        return self.engine.workers

    @property
    def cores(self) -> tuple[EngineProcess, ...]:
        return tuple(p for p in self.engine.processes if p.role is Role.CORE)

    @cached_property
    def output_rank(self) -> int | None:
        return output_rank(self.engine)

    def process(self, node: str, pid: int | None) -> EngineProcess | None:
        return self.by_key.get((node, pid)) if pid is not None else None

    def rank_of(self, node: str, pid: int | None) -> int | None:
        process = self.process(node, pid)
        return process.rank.rank if process and process.rank else None

    def name(self, process: EngineProcess) -> str:
        """For sentences: "rank 1 (worker TP1, pid 4243 on node0)"."""
        rank = f"rank {process.rank.rank} " if process.rank and process.rank.rank is not None else ""
        return f"{rank}({process.label or process.role.value}, pid {process.pid} on {process.info.node})"

    # ---- what was said and seen

    @cached_property
    def _log_files(self) -> set[tuple[str, str]]:
        """(node, file) of the logs that this engine writes: by the pids that speak in them, else the only engine of the node."""
        mine = set()
        for span in self.case.of(LogSpan):
            pids = {(span.node, pid) for pid in span.pids}
            if span.pid is not None:
                pids.add((span.node, span.pid))
            elsewhere = any(pids & {(p.info.node, p.pid) for p in e.processes} for e in self.case.engines if e is not self.engine)
            if pids & self.by_key.keys() or (not elsewhere and span.node in self.nodes and self._alone(span.node)):
                mine.add((span.node, span.ref.source))
        return mine

    def _alone(self, node: str) -> bool:
        return sum(node in e.nodes for e in self.case.engines) == 1

    def _mine(self, observation: Observation) -> bool:
        if observation.pid is not None and (observation.node, observation.pid) in self.by_key:
            return True
        owned = observation.pid is not None and any(
            observation.pid == p.pid and observation.node == p.info.node for e in self.case.engines for p in e.processes
        )
        return not owned and observation.node in self.nodes and self._alone(observation.node)

    @cached_property
    def hits(self) -> list[LogHit]:
        """Log hits of this engine, dated ones in order of time, ties and undated ones in order of the file."""
        mine = [h for h in self.case.of(LogHit) if (h.node, h.ref.source) in self._log_files]
        return sorted(mine, key=lambda h: h.at.earliest_ns if h.at else 0)

    def hits_of(self, *signatures: str) -> list[LogHit]:
        return [h for h in self.hits if h.signature in signatures]

    def feeding(self, *findings: str) -> list[LogHit]:
        return [h for h in self.hits if h.feeds in findings]

    def of(self, kind: type[O]) -> list[O]:
        """Observations of one type that concern this engine's processes (or nodes, where it is alone there)."""
        return [o for o in self.case.of(kind) if self._mine(o)]

    def on_nodes(self, kind: type[O]) -> list[O]:
        """Observations of one type about this engine's nodes as a whole."""
        return [o for o in self.case.of(kind) if o.node in self.nodes]

    @cached_property
    def threads(self) -> dict[int, list[ThreadView]]:
        return stacks.threads(self.of(ThreadStack), self.profile.frames)

    def main_thread(self, process: EngineProcess) -> ThreadView | None:
        return next((t for t in self.threads.get(process.pid, []) if t.main), None)

    @cached_property
    def states(self) -> dict[int, list[ProcessState]]:
        """Kernel states of each process in order of samples."""
        out: dict[int, list[ProcessState]] = {}
        for state in self.of(ProcessState):
            out.setdefault(state.pid, []).append(state)
        for samples in out.values():
            samples.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.sample))
        return out

    @cached_property
    def progress(self) -> Progress:
        files = self._log_files
        samples = [s for s in self.case.of(ProgressSample) if ((s.node, s.ref.source) in files if s.via == "log" else self._mine(s))]
        return progress.build(samples)

    @cached_property
    def health(self) -> list[HealthSample]:
        return self.of(HealthSample)

    @cached_property
    def clients(self) -> list[QueueDepth]:
        """Established connections on the API's ports, by sample."""
        ports = {f"port {n}" for n in self.engine.ports}
        return [q for q in self.of(QueueDepth) if q.kind == "clients" and (not ports or q.queue in ports)]

    @cached_property
    def cpu(self) -> dict[tuple[int, int | None], list[CpuSample]]:
        out: dict[tuple[int, int | None], list[CpuSample]] = {}
        for s in self.of(CpuSample):
            out.setdefault((s.pid, s.tid), []).append(s)
        for samples in out.values():
            samples.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.sample))
        return out

    def cpu_fraction(self, pid: int, tid: int | None) -> float | None:
        """Share of one CPU that a thread used between its first and last sample; None without two timed samples."""
        samples = [s for s in self.cpu.get((pid, tid), []) if s.cpu_seconds is not None and s.at]
        if len(samples) < 2 or not samples[0].at or not samples[-1].at:
            return None
        seconds = (samples[-1].at.earliest_ns - samples[0].at.earliest_ns) / 1e9
        return ((samples[-1].cpu_seconds or 0) - (samples[0].cpu_seconds or 0)) / seconds if seconds > 0.2 else None

    @cached_property
    def stall(self) -> Stall | None:
        from forensics.analysis.stall import find_stall

        return find_stall(self)

    @cached_property
    def moving(self) -> bool:
        """Whether a counter moved in the newest evidence: while it does, no claim of a standstill may be made.

        In a capture any movement between its samples counts; from a folder, any movement between its scrapes, unless a
        standstill is established all the same: then the movement came before it.
        """
        stall = self.stall
        still = stall is not None and (stall.live or stall.grade is Grade.ESTABLISHED)
        return bool(self.progress.moving_metrics()) and not still

    @staticmethod
    def before(a: LogHit, b: LogHit) -> bool:
        """Whether line `a` certainly came before line `b`: by place within one file, by time between files."""
        if (a.node, a.ref.source) == (b.node, b.ref.source):
            return _line_number(a) < _line_number(b)
        return bool(a.at and b.at and a.at.before(b.at))

    # ---- epochs

    @cached_property
    def epochs(self) -> list[int]:
        """Starts of this engine (ns), from the first start-up line of each; [] when no log shows one."""
        begun: list[int] = []
        starting = False
        for hit in self.hits_of("vllm-startup-args", "vllm-engine-config", "vllm-ready", "vllm-init-took"):
            front = hit.signature == "vllm-startup-args"
            start = front or hit.signature == "vllm-engine-config"
            if start and hit.at:
                # the core's own line follows the front's within one start; a front that comes later is another start
                again = front and bool(begun) and hit.at.earliest_ns - begun[-1] > START_NS
                if not starting or again:
                    begun.append(hit.at.earliest_ns)
            starting = start
        return begun

    @cached_property
    def ended_ns(self) -> int | None:
        """The end of the evidence: the capture, or the last dated line of the logs."""
        ends = [self.case.captured[n].latest_ns for n in self.nodes if n in self.case.captured]
        if not ends:
            ends = [s.last_ns for s in self.case.of(LogSpan) if s.last_ns and (s.node, s.ref.source) in self._log_files]
        return max(ends, default=None)

    @cached_property
    def starting(self) -> bool:
        """Started, and neither ready nor serving nor ended since: ranks legitimately wait for each other for minutes."""
        if not self.epochs:
            return False
        begun = self.epochs[-1]
        signs = ("vllm-ready", "vllm-init-took", "vllm-engine-fatal", "vllm-core-exited", "vllm-shutdown-signal")
        failed = ("vllm-worker-start-failed", "vllm-engine-start-failed")
        over = any(h.at and h.at.latest_ns >= begun for h in self.hits_of(*signs, *failed))
        served = bool(self.progress.log) or any(i.moved for i in self.progress.metrics) or any(h.status == 200 for h in self.health)
        return not over and not served

    def restarted_after(self, at_ns: int) -> int | None:
        """Start (ns) of the first epoch after `at_ns`, if there is one."""
        return next((e for e in self.epochs if e > at_ns), None)

    @cached_property
    def stopped_ns(self) -> int | None:
        """When somebody asked this engine to stop (its last signal line, not one that follows a fatal line)."""
        fatal = [h.at.earliest_ns for h in self.hits_of("vllm-engine-fatal", "vllm-core-exited", "vllm-worker-died") if h.at]
        asked = [h.at.earliest_ns for h in self.hits_of("vllm-shutdown-signal") if h.at]
        asked = [a for a in asked if not any(f <= a and not any(f < e <= a for e in self.epochs) for f in fatal)]
        return max(asked, default=None)

    # ---- what could be seen

    def outcome(self, source: str) -> Outcome | None:
        """How the evidence of a source came out over this engine's nodes: the worst word, None when nobody collected it.

        From a folder of bare files there are no attempts: a source is OK where a parser found it.
        """
        collector = COLLECTOR_OF.get(source, source)
        tried = [a for node, a in self.case.attempts if a.collector == collector and (node in self.nodes or not node)]
        if not tried:
            return Outcome.OK if self._observed(source) else None
        mine = [a for a in tried if a.origin is None or a.origin.pid is None or any(a.origin.pid == p.pid for p in self.engine.processes)]
        words = [a.outcome for a in self._relevant(source, mine or tried)]
        if words and all(w in (Outcome.ABSENT, Outcome.EMPTY) for w in words):
            return Outcome.EMPTY if Outcome.EMPTY in words else Outcome.ABSENT
        blind = [w for w in words if w.blind]
        if blind:
            return Outcome.PARTIAL if any(w in (Outcome.OK, Outcome.PARTIAL) for w in words) else blind[0]
        return Outcome.PARTIAL if Outcome.PARTIAL in words else Outcome.OK

    @staticmethod
    def _relevant(source: str, attempts: Sequence[object]) -> list[Any]:
        """The queues collector looks at two sources: its attempts at URLs are metrics, the others sockets."""
        if source == "metrics":
            return [a for a in attempts if str(getattr(a, "target", "")).startswith("http")]
        if source == "sockets":
            return [a for a in attempts if not str(getattr(a, "target", "")).startswith("http")]
        return list(attempts)

    def _observed(self, source: str) -> bool:
        kinds = _OBSERVED[source]
        if source == "metrics":
            return any(s.via == "metrics" for s in self.of(ProgressSample))
        return any(self.of(k) or self.on_nodes(k) for k in kinds)

    # ---- findings

    def finding(
        self,
        id: str,
        grade: Grade,
        *,
        title: str,
        because: Iterable[EvidenceRef],
        severity: Severity = Severity.INFO,
        role: FindingRole = FindingRole.CONTEXT,
        processes: Iterable[EngineProcess] = (),
        nodes: Iterable[str] = (),
        ranks: Iterable[int] = (),
        since: TimeRange | None = None,
        until: TimeRange | None = None,
        against: Iterable[EvidenceRef] = (),
        does_not_show: str = "",
        would_settle: Iterable[str] = (),
        next_steps: Iterable[str] = (),
    ) -> Finding:
        """Build a finding about this engine; nodes, ranks and pids come from `processes` where given."""
        who = list(processes)
        said = tuple(dict.fromkeys(because))[:12]
        if not said:
            raise ValueError(f"{id}: no finding without because")
        known = [p.rank.rank for p in who if p.rank and p.rank.rank is not None]
        return Finding(
            id=id,
            grade=grade,
            severity=severity,
            role=role,
            title=title,
            because=said,
            against=tuple(against),
            does_not_show=does_not_show,
            would_settle=tuple(would_settle),
            next_steps=tuple(next_steps),
            engine=self.engine.id,
            nodes=tuple(nodes) or tuple(dict.fromkeys(p.info.node for p in who)) or self.nodes,
            ranks=tuple(dict.fromkeys((*ranks, *known))),
            pids=tuple(dict.fromkeys(p.pid for p in who)),
            since=since,
            until=until,
        )


def _line_number(hit: LogHit) -> int:
    return int(hit.ref.locator.rpartition(" ")[2])


_OBSERVED: dict[str, tuple[type[Observation], ...]] = {
    "log": (LogSpan,),
    "stacks": (ThreadStack,),
    "metrics": (ProgressSample,),
    "process": (ProcessState,),
    "cpu": (CpuSample, HostCpu),
    "sockets": (QueueDepth,),
    "health": (HealthSample,),
    "memory": (MemorySample,),
    "kernel": (KernelSpan,),
    "gpu": (GpuSample,),
    "thermal": (ThermalReading,),
    "patches": (PatchReading,),
    "clock": (),
}
