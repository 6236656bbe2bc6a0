"""One engine as its rules see it: its processes, and the observations that concern them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from forensics.analysis import lives, progress, stacks
from forensics.analysis.case import Case
from forensics.analysis.heard import KINDS
from forensics.analysis.lives import Lives, line_number
from forensics.analysis.progress import Progress
from forensics.analysis.stacks import ThreadView
from forensics.analysis.topology import output_rank
from forensics.engines import EngineProfile, profile
from forensics.model import (
    CpuSample,
    EngineInstance,
    EngineProcess,
    EventWait,
    EvidenceRef,
    Finding,
    FindingRole,
    Grade,
    HealthSample,
    KernelEvent,
    LockReading,
    LogHit,
    LogSpan,
    Observation,
    Outcome,
    ProcessState,
    ProgressSample,
    QueueDepth,
    Role,
    Severity,
    ThreadStack,
    TimeRange,
)

if TYPE_CHECKING:
    from forensics.analysis.locks import HeldLock
    from forensics.analysis.stall import Stall
    from forensics.model import Coverage, Wait

O = TypeVar("O", bound=Observation)  # noqa: E741 the one type variable of this module


class View:
    """Facts about one life of one engine, computed once and shared by all rules.

    Only the last life can have been photographed: of an earlier one there are nothing but log lines.
    """

    def __init__(self, case: Case, engine: EngineInstance, life: int | None = None) -> None:
        self.case = case
        self.engine = engine
        self.profile: EngineProfile = profile(engine.kind)
        self._outcomes: dict[str, Outcome | None] = {}
        self._once: dict[tuple[type[Observation], str], list[Any]] = {}
        self.by_key: dict[tuple[str, int], EngineProcess] = {(p.info.node, p.pid): p for p in engine.processes}
        self.life = self.lives.last if life is None else life
        self.past = self.life < self.lives.last

    # ---- who

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.engine.nodes

    @cached_property
    def workers(self) -> tuple[EngineProcess, ...]:
        return self.engine.workers

    @cached_property
    def cores(self) -> tuple[EngineProcess, ...]:
        return tuple(p for p in self.engine.processes if p.role is Role.CORE)

    @cached_property
    def output_rank(self) -> int | None:
        return output_rank(self.engine)

    def process(self, node: str, pid: int | None) -> EngineProcess | None:
        if pid is None:
            return None
        then = self._then.get((node, pid)) if self.past else None
        return then or self.by_key.get((node, pid))

    @cached_property
    def _then(self) -> dict[tuple[str, int], EngineProcess]:
        """Who had a pid in a past life, where the newest life has given it to another rank: containers number from one again."""
        found = {}
        for hit in self.hits_of("vllm-world", "vllm-rank-assigned"):
            now = self.by_key.get((hit.node, hit.pid)) if hit.pid is not None else None
            rank = int(hit.fields["rank"])
            if now and now.rank and now.rank.rank != rank:
                same = [w for w in self.workers if w.rank and w.rank.rank == rank and w.info.node == hit.node]
                place = same[0] if same else msgspec.structs.replace(now, rank=msgspec.structs.replace(now.rank, rank=rank), label="")
                found[hit.node, now.pid] = msgspec.structs.replace(place, info=now.info)
        return found

    def rank_of(self, node: str, pid: int | None) -> int | None:
        process = self.process(node, pid)
        return process.rank.rank if process and process.rank else None

    def name(self, process: EngineProcess) -> str:
        """For sentences: "rank 1 (worker TP1, pid 4243 on node0)"."""
        rank = f"rank {process.rank.rank} " if process.rank and process.rank.rank is not None else ""
        return f"{rank}({process.label or process.role.value}, pid {process.pid} on {process.info.node})"

    def thread_name(self, process: EngineProcess, thread: ThreadView) -> str:
        """Its process for a main thread, which speaks for it; else "thread "writer" of rank 1 (…)"."""
        return self.name(process) if thread.main else f"thread {thread.label} of {self.name(process)}"

    # ---- what was said and seen

    @cached_property
    def _log_files(self) -> set[tuple[str, str]]:
        """(node, file) of the logs that this engine writes: by the pids that speak in them, else the only engine of the node."""
        mine = set()
        for span in self.case.of(LogSpan):
            pids = {(span.node, pid) for pid in (*span.pids, span.pid) if pid is not None}
            known = pids & self.by_key.keys()
            elsewhere = not known and bool(pids & self._owned)
            if known or (not elsewhere and span.node in self._nodes and self._alone(span.node, span.engine)):
                mine.add((span.node, span.ref.source))
        return mine

    @cached_property
    def _here(self) -> dict[str, list[EngineInstance]]:
        """The engines of each node."""
        found: dict[str, list[EngineInstance]] = {}
        for engine in self.case.engines:
            for node in engine.nodes:
                found.setdefault(node, []).append(engine)
        return found

    @cached_property
    def _nodes(self) -> frozenset[str]:
        return frozenset(self.nodes)

    def _alone(self, node: str, kind: str = "") -> bool:
        """Whether what is of no process on this node is of this engine: the only one there, or the only one of that kind."""
        here = self._here.get(node, [])
        if len(here) > 1 and kind:
            here = [e for e in here if e.kind == KINDS.get(kind)]
        return len(here) == 1 and here[0] is self.engine

    @cached_property
    def _owned(self) -> set[tuple[str, int]]:
        """(node, pid) of every process of any engine: asked of each observation."""
        return {(p.info.node, p.pid) for e in self.case.engines for p in e.processes}

    def _mine(self, observation: Observation) -> bool:
        if observation.pid is not None and (observation.node, observation.pid) in self.by_key:
            return True
        owned = observation.pid is not None and (observation.node, observation.pid) in self._owned
        kind = observation.engine if isinstance(observation, LogHit) else ""
        return not owned and observation.node in self._nodes and self._alone(observation.node, kind)

    @cached_property
    def every_hit(self) -> list[LogHit]:
        """Log hits of all lives, dated ones in order of time, ties and undated ones in order of the file."""
        mine = [h for h in self.case.of(LogHit) if (h.node, h.ref.source) in self._log_files]
        return sorted(mine, key=lambda h: h.at.earliest_ns if h.at else 0)

    @cached_property
    def lives(self) -> Lives:
        # asked before it is known which life this is: straight from the case
        states = [s for c in self.cores for s in self.case.of(ProcessState) if (s.node, s.pid) == (c.info.node, c.pid)]
        ended = any(s.gone or s.state in ("Z", "X") for s in states)
        seen = [s.at.earliest_ns for s in states if s.at]
        return lives.split(self.every_hit, min(seen) if seen and not ended else None)

    @cached_property
    def hits(self) -> list[LogHit]:
        """Log hits of this life."""
        return [h for h in self.every_hit if self.lives.of(h.node, h.ref, h.at) == self.life]

    def hits_of(self, *signatures: str) -> list[LogHit]:
        return [h for h in self.hits if h.signature in signatures]

    def events(self, *events: str) -> list[LogHit]:
        """Lines of this life that are one of these in an engine's life (EVENTS of forensics.analysis.signatures), whoever prints them."""
        return [h for h in self.hits if h.event in events]

    @cached_property
    def ends(self) -> list[LogHit]:
        """Lines by which the engine ended: its own fatal ones, and where every worker's failure ends it, those failures too."""
        return self.events("fatal", *(("exception",) if self.profile.failures_end_it else ()))

    @property
    def raised(self) -> list[LogHit]:
        """Exceptions: the engine's own lines of a worker that raised, and every traceback."""
        return [h for h in self.hits if h.event == "exception" or h.signature == "python-traceback"]

    def feeding(self, *findings: str) -> list[LogHit]:
        return [h for h in self.hits if h.feeds in findings]

    def kernel_feeding(self, *findings: str) -> list[KernelEvent]:
        """Kernel log lines of this engine's nodes that speak to one of these findings, dated ones in order of time."""
        mine = [e for e in self.case.of(KernelEvent) if e.node in self.nodes and e.feeds in findings and (not self.past or self._within(e))]
        return sorted(mine, key=lambda e: e.at.earliest_ns if e.at else 0)

    def _within(self, event: KernelEvent) -> bool:
        """Whether a kernel line was written during this life: it is the one record that reaches back as far as the logs."""
        begun, replaced = self.begun_ns or 0, self.replaced_ns
        return event.at is not None and begun <= event.at.earliest_ns and (replaced is None or event.at.earliest_ns < replaced)

    def of(self, kind: type[O]) -> list[O]:
        """Observations of one type that concern this engine's processes (or nodes, where it is alone there)."""
        return [] if self.past else self._chosen(kind, "of", self._mine)

    def on_nodes(self, kind: type[O]) -> list[O]:
        """Observations of one type about this engine's nodes as a whole."""
        return [] if self.past and kind is not LogSpan else self._chosen(kind, "on", lambda o: o.node in self._nodes)

    def _chosen(self, kind: type[O], how: str, wanted: Callable[[O], bool]) -> list[O]:
        """Chosen once: every rule asks, of every engine."""
        if (kind, how) not in self._once:
            self._once[kind, how] = [o for o in self.case.of(kind) if wanted(o)]
        return list(self._once[kind, how])

    @cached_property
    def _threads(self) -> dict[tuple[str, int], list[ThreadView]]:
        return stacks.threads(self.of(ThreadStack), self.profile.frames)

    def threads_of(self, process: EngineProcess) -> list[ThreadView]:
        return self._threads.get((process.info.node, process.pid), [])

    def main_thread(self, process: EngineProcess) -> ThreadView | None:
        return next((t for t in self.threads_of(process) if t.main), None)

    def delivering(self, process: EngineProcess) -> list[ThreadView]:
        """The threads that carry this worker's results to the core, as far as they are inside one."""
        return [t for t in self.threads_of(process) if t.name in self.profile.delivery_threads and t.state != "queue-get"]

    @cached_property
    def _states(self) -> dict[tuple[str, int], list[ProcessState]]:
        return _by_time(self.of(ProcessState), lambda s: (s.node, s.pid))

    def states_of(self, process: EngineProcess) -> list[ProcessState]:
        """Kernel states of a process in order of samples."""
        return self._states.get((process.info.node, process.pid), [])

    def state_of(self, process: EngineProcess) -> ProcessState | None:
        """The newest one."""
        return states[-1] if (states := self.states_of(process)) else None

    def ended(self, process: EngineProcess) -> bool:
        """Whether it was seen to have ended: gone, or a zombie."""
        return (s := self.state_of(process)) is not None and (s.gone or s.state in ("Z", "X"))

    def stopped(self, process: EngineProcess) -> bool:
        return (s := self.state_of(process)) is not None and s.state == "T" and not s.gone

    @cached_property
    def progress(self) -> Progress:
        files = self._log_files
        said = [s for s in self.case.of(ProgressSample) if s.via == "log" and (s.node, s.ref.source) in files]
        scraped = [s for s in self.of(ProgressSample) if s.via != "log"]
        return progress.build([*(s for s in said if self.lives.of(s.node, s.ref, s.at) == self.life), *scraped])

    @cached_property
    def health(self) -> list[HealthSample]:
        return self.of(HealthSample)

    @cached_property
    def clients(self) -> list[QueueDepth]:
        """Established connections on the API's ports, by sample."""
        ports = {f"port {n}" for n in self.engine.ports}
        return [q for q in self.of(QueueDepth) if q.kind == "clients" and (not ports or q.queue in ports)]

    @cached_property
    def _cpu(self) -> dict[tuple[str, int, int | None], list[CpuSample]]:
        return _by_time(self.of(CpuSample), lambda s: (s.node, s.pid, s.tid))

    def cpu_of(self, process: EngineProcess, tid: int | None) -> list[CpuSample]:
        """CPU samples of one thread in order of time."""
        return self._cpu.get((process.info.node, process.pid, tid), [])

    def cpu_fraction(self, process: EngineProcess, tid: int | None) -> float | None:
        """Share of one CPU that a thread used between its first and last sample; None without two timed samples."""
        samples = [s for s in self.cpu_of(process, tid) if s.cpu_seconds is not None and s.at]
        if len(samples) < 2 or not samples[0].at or not samples[-1].at:
            return None
        seconds = (samples[-1].at.earliest_ns - samples[0].at.earliest_ns) / 1e9
        return ((samples[-1].cpu_seconds or 0) - (samples[0].cpu_seconds or 0)) / seconds if seconds > 0.2 else None

    @cached_property
    def stall(self) -> Stall | None:
        from forensics.analysis.stall import find_stall

        return find_stall(self)

    @cached_property
    def standing(self) -> tuple[EngineProcess, ...]:
        """Processes of the replicas that stand still; () where nothing does."""
        if self.stall is None or self.moving:
            return ()
        replicas = self.stall.replicas
        return tuple(p for p in self.engine.processes if not replicas or (p.rank is not None and str(p.rank.dp) in replicas))

    @cached_property
    def _newest_objects(self) -> dict[tuple[str, int], int]:
        """(node, pid) to the last sample in which its memory was looked into, whatever was found there."""
        looks = [(n, a.origin.pid, a.sample) for n, a in self.case.attempts if a.collector == "objects" and a.outcome.seen and a.origin]
        looks += [(o.node, o.pid, o.sample) for o in self.of(LockReading)]
        looks += [(o.node, o.pid, o.sample) for o in self.of(EventWait)]
        looks += [(o.node, o.pid, o.sample) for o in self.of(QueueDepth) if o.kind == "live"]
        newest: dict[tuple[str, int], int] = {}
        for node, pid, sample in looks:
            if pid is not None:
                newest[node, pid] = max(sample, newest.get((node, pid), 0))
        return newest

    def fresh(self, observation: LockReading | EventWait | QueueDepth) -> bool:
        """Whether it comes from the newest look into the memory of its process: an older one tells of a wait that may be over."""
        return observation.pid is not None and observation.sample >= self._newest_objects.get((observation.node, observation.pid), 0)

    @cached_property
    def locks(self) -> list[HeldLock]:
        from forensics.analysis.locks import held_locks

        return held_locks(self)

    @cached_property
    def coverage(self) -> Coverage:
        from forensics.analysis.coverage import of_engine

        return of_engine(self)

    @cached_property
    def waits(self) -> list[Wait]:
        from forensics.analysis.waits import of_engine

        return of_engine(self)

    @cached_property
    def groups(self) -> list[list[EngineProcess]]:
        """Workers whose collectives must meet: of one replica and one pipeline stage. Replicas that do not stand still are left out."""
        grouped: dict[tuple[int | None, int | None], list[EngineProcess]] = {}
        replicas = self.stall.replicas if self.stall else ()
        staged = all(w.rank and w.rank.pp is not None for w in self.workers)
        for worker in self.workers:
            dp = worker.rank.dp if worker.rank and self.engine.dp_size > 1 else None
            if not replicas or str(dp) in replicas:
                grouped.setdefault((dp, worker.rank.pp if worker.rank and staged else None), []).append(worker)
        return list(grouped.values())

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
            return line_number(a.ref) < line_number(b.ref)
        return bool(a.at and b.at and a.at.before(b.at))

    # ---- its life

    @property
    def begun_ns(self) -> int | None:
        """When this life was started; None where no log shows it."""
        return self.lives.begun_ns(self.life)

    @property
    def replaced_ns(self) -> int | None:
        """When the next life was started; None for the last."""
        return self.lives.replaced_ns(self.life)

    @cached_property
    def ended_ns(self) -> int | None:
        """The end of the evidence: the next start, the capture, or the last dated line of the logs."""
        if self.replaced_ns is not None:
            return self.replaced_ns
        ends = [self.case.captured[n].latest_ns for n in self.nodes if n in self.case.captured]
        if not ends:
            ends = [s.last_ns for s in self.case.of(LogSpan) if s.last_ns and (s.node, s.ref.source) in self._log_files]
        return max(ends, default=None)

    @cached_property
    def starting(self) -> bool:
        """Started, and neither ready nor serving nor ended since: ranks legitimately wait for each other for minutes."""
        if self.begun_ns is None:
            return False
        served = bool(self.progress.log) or any(i.moved for i in self.progress.metrics) or any(h.status == 200 for h in self.health)
        return not self.events("ready", "fatal", "stop", "start-failed", "hang") and not self.ends and not served

    @cached_property
    def stopped_ns(self) -> int | None:
        """When somebody asked this engine to stop (its last signal line, not one that follows a fatal line)."""
        fatal = [h for h in self.events("fatal", "death-told", "start-failed", "worker-death") if h.at]
        asked = [h for h in self.events("stop") if h.at and not any(self._not_after(f, h) for f in fatal)]
        return max((h.at.earliest_ns for h in asked if h.at), default=None)

    @classmethod
    def _not_after(cls, a: LogHit, b: LogHit) -> bool:
        """Whether line `a` may have come before `b`: of one second in two files, nobody knows."""
        if (a.node, a.ref.source) == (b.node, b.ref.source):
            return cls.before(a, b)
        return bool(a.at and b.at and a.at.earliest_ns <= b.at.earliest_ns)

    # ---- what could be seen

    def outcome(self, source: str) -> Outcome | None:
        """How the evidence of a source came out: see forensics.analysis.sources."""
        from forensics.analysis.sources import outcome

        if source not in self._outcomes:
            self._outcomes[source] = outcome(self, source)
        return self._outcomes[source]

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


S = TypeVar("S", ProcessState, CpuSample)
K = TypeVar("K", bound=tuple[object, ...])


def _by_time(samples: Iterable[S], key: Callable[[S], K]) -> dict[K, list[S]]:
    """Samples by what they are of, each in order of time."""
    out: dict[K, list[S]] = {}
    for sample in samples:
        out.setdefault(key(sample), []).append(sample)
    for mine in out.values():
        mine.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.sample))
    return out
