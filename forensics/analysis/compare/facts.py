"""What one side says of each thing that can be compared: (topic, where, what) to a figure or a word."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from forensics.analysis import patched
from forensics.analysis.compare.arm import Arm, figure, place, total
from forensics.analysis.mode import overlapping
from forensics.analysis.view import View
from forensics.model import (
    CpuSample,
    EvidenceRef,
    Figure,
    GpuSample,
    HostCpu,
    MemorySample,
    ProcessState,
    QueueDepth,
    Severity,
    ThermalReading,
)

GIB = 2.0**30


class Key(NamedTuple):
    topic: str
    where: str
    what: str


@dataclass(frozen=True)
class Fact:
    value: Figure | str
    unit: str = ""
    resolution: float = 0.0
    """What the source itself cannot tell apart, in the same unit."""
    refs: tuple[EvidenceRef, ...] = ()


SOURCES: dict[str, tuple[str, ...]] = {
    "state": ("log", "metrics", "stacks", "process"),
    "load": ("metrics", "log"),
    "progress": ("metrics", "log"),
    "cpu": ("cpu",),
    "thread": ("cpu",),
    "temperature": ("thermal", "gpu"),
    "queue": ("sockets", "objects"),
    "wait": ("stacks",),
    "version": ("builds", "log"),
    "patch": ("patches",),
    "config": ("log", "objects", "process"),
    "memory": ("memory", "process"),
}
"""Topic to the sources that tell of it, in the order in which reports show topics."""


def facts(arm: Arm) -> dict[Key, Fact]:
    """Everything that this side says."""
    found: dict[Key, Fact] = {}
    for view in arm.views:
        for part in (_progress, _cpu, _queues, _waits, _versions, _patches, _config, _resident):
            for key, fact in part(view):
                found.setdefault(key, fact)
    for key, fact in (*_state(arm), *_hosts(arm), *_heat(arm)):
        found.setdefault(key, fact)
    return found


Facts = Iterator[tuple[Key, Fact]]


def _engine(view: View) -> str:
    """Engines are matched by what they are; several of a kind by their nodes too."""
    same = [e for e in view.case.engines if e.kind == view.engine.kind]
    return view.engine.kind if len(same) == 1 else f"{view.engine.kind} on {', '.join(view.nodes)}"


def _state(arm: Arm) -> Facts:
    named = {v.engine.id: _engine(v) for v in arm.views}
    for finding in arm.report.findings:
        if finding.grade.strength >= 2 and finding.severity is not Severity.INFO:
            yield Key("state", named.get(finding.engine, ""), finding.id), Fact(finding.grade.value, refs=finding.because[:1])


def _progress(view: View) -> Facts:
    who = _engine(view)
    metrics = view.progress.metrics
    shown = metrics or view.progress.log
    by_time: dict[tuple[int | None, int | None], float] = defaultdict(float)
    for i in shown:
        if i.rate is not None:
            by_time[i.sampled if metrics else (i.since_ns, i.until_ns)] += i.rate
    refs = tuple(dict.fromkeys(r for i in shown[:1] + shown[-1:] for r in i.refs))[:2]
    if rate := figure(by_time.values()):
        yield Key("progress", who, "generated tokens"), Fact(rate, "/s", refs=refs)
    samples = [s for s in view.progress.samples if (s.via == "metrics") == bool(metrics)]
    for name, what in (("prompt_tokens", "prompt tokens"), ("steps", "steps")):
        rates = []
        for a, b in itertools.pairwise(s for s in samples if name in s.counters and s.at):
            seconds = (b.at.latest_ns - a.at.earliest_ns) / 1e9 if a.at and b.at else 0.0
            if seconds > 0 and b.dp_rank == a.dp_rank and b.node == a.node and b.counters[name] >= a.counters[name]:
                rates.append((b.counters[name] - a.counters[name]) / seconds)
        if rate := figure(rates):
            yield Key("progress", who, what), Fact(rate, "/s", refs=refs)
    if kv := figure([100 * s.kv_usage for s in samples if s.kv_usage is not None]):
        yield Key("progress", who, "KV cache in use"), Fact(kv, "%", 0.1, refs)


def _cpu(view: View) -> Facts:
    threads: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    whole: dict[str, list[Figure]] = defaultdict(list)
    refs: dict[str, list[EvidenceRef]] = defaultdict(list)
    for (node, pid, tid), samples in _timed(view).items():
        process = view.process(node, pid)
        rate = _cpu_rate(samples)
        if process is None or rate is None:
            continue
        name = place(process)
        refs[name] += [samples[0].ref, samples[-1].ref]
        if tid is None:
            continue
        threads[name, samples[-1].thread or "main"].append(rate)
        whole[name].append(rate)
    for (node, pid, tid), samples in _timed(view).items():
        if tid is None and (process := view.process(node, pid)) and place(process) not in whole and (rate := _cpu_rate(samples)):
            whole[place(process)].append(rate)
    for name, parts in whole.items():
        if added := total(parts):
            yield Key("cpu", name, "CPU"), Fact(added, "% of a CPU", 2.0, tuple(refs[name][:2]))
    for (name, thread), parts in threads.items():
        many = f" (x{len(parts)})" if len(parts) > 1 else ""
        if added := total(parts):
            yield Key("thread", name, f"thread {thread}{many}"), Fact(added, "% of a CPU", 2.0, tuple(refs[name][:2]))


def _timed(view: View) -> dict[tuple[str, int, int | None], list[CpuSample]]:
    found: dict[tuple[str, int, int | None], list[CpuSample]] = defaultdict(list)
    for s in view.of(CpuSample):
        found[s.node, s.pid, s.tid].append(s)
    return found


def _cpu_rate(samples: list[CpuSample]) -> Figure | None:
    said = [s.percent for s in samples if s.percent is not None]
    timed = sorted((s.at.earliest_ns, s.cpu_seconds) for s in samples if s.at and s.cpu_seconds is not None)
    rates = [100 * (b[1] - a[1]) / ((b[0] - a[0]) / 1e9) for a, b in itertools.pairwise(timed) if b[0] - a[0] > 0.2e9]
    return figure(rates or said)


def _queues(view: View) -> Facts:
    groups: dict[tuple[str, str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    refs: dict[tuple[str, str, str], list[EvidenceRef]] = defaultdict(list)
    for q in view.of(QueueDepth):
        process = view.process(q.node, q.pid)
        # a socket's name holds ephemeral ports, which are others at every start
        what = f"{q.kind} {q.queue}" if q.kind in ("live", "accept-backlog", "clients", "load-snapshot", "server-load") else q.kind
        key = (place(process) if process else q.node, what, q.unit)
        groups[key][q.sample] += q.depth
        refs[key].append(q.ref)
    for key, by_sample in groups.items():
        if depth := figure(by_sample.values()):
            yield Key("queue", key[0], key[1]), Fact(depth, key[2], refs=tuple(refs[key][:1]))


def _waits(view: View) -> Facts:
    def name(at: tuple[str, int] | None, rank: int | None, words: str) -> str:
        process = view.process(*at) if at else None
        return place(process) if process else f"rank {rank}" if rank is not None else words.partition(" (")[0]

    for wait in view.waits:
        waiter = name(wait.waiter_at, wait.waiter_rank, wait.waiter)
        target = name(wait.target_at, wait.target_rank, wait.waits_for)
        yield Key("wait", waiter, f"for {target}"), Fact(" ".join(p for p in (wait.via, wait.detail) if p), refs=(wait.ref,))


def _versions(view: View) -> Facts:
    from forensics.analysis import builds

    found: dict[str, set[str]] = defaultdict(set)
    for build in builds.of_engine(view):
        if build.version:
            found[build.component].add(build.version)
    if view.engine.version and view.engine.kind not in found:
        found[view.engine.kind] = {view.engine.version}
    for component, versions in found.items():
        yield Key("version", _engine(view), component), Fact(", ".join(sorted(versions)))


def _patches(view: View) -> Facts:
    for patch in view.case.patches:
        statuses: dict[tuple[str, str], dict[str, EvidenceRef]] = defaultdict(dict)
        for w in patched.of_patch(view, patch):
            statuses[place(w.process) if w.process else w.node, w.kind].setdefault(w.status, w.ref)
        for (where, kind), said in statuses.items():
            yield Key("patch", where, f"{patch['name']} by {kind}"), Fact(", ".join(sorted(said)), refs=tuple(said.values())[:1])


def _config(view: View) -> Facts:
    from forensics.analysis import settings

    for setting in settings.of_engine(view):
        refs = tuple(r.ref for r in setting.readings[:1])
        yield Key("config", _engine(view), setting.name), Fact(setting.value or "differs among processes", refs=refs)
    if mode := overlapping(view):
        yield (
            Key("config", _engine(view), "execution mode"),
            Fact("overlapping passes" if mode[0] else "one pass at a time", refs=(mode[1][0].ref,)),
        )


def _resident(view: View) -> Facts:
    for where, states in _by_place(view).items():
        per_pid: dict[int, list[float]] = defaultdict(list)
        for s in states:
            if s.rss_bytes is not None:
                per_pid[s.pid].append(s.rss_bytes / GIB)
        if size := total(f for v in per_pid.values() if (f := figure(v))):
            yield Key("memory", where, "resident"), Fact(size, "GiB", 0.05, (states[-1].ref,))


def _by_place(view: View) -> dict[str, list[ProcessState]]:
    found: dict[str, list[ProcessState]] = defaultdict(list)
    for s in view.of(ProcessState):
        if process := view.process(s.node, s.pid):
            found[place(process)].append(s)
    return found


def _hosts(arm: Arm) -> Facts:
    memory: dict[Key, list[tuple[float, EvidenceRef]]] = defaultdict(list)
    for m in arm.case.of(MemorySample):
        for value, what in ((m.available_bytes, "available"), (m.used_bytes, "used")):
            if value is not None:
                memory[Key("memory", m.node, f"{m.scope} {what}")].append((value / GIB, m.ref))
    for g in arm.case.of(GpuSample):
        if g.memory_used_bytes is not None:
            memory[Key("memory", g.node, f"GPU {g.index} used")].append((g.memory_used_bytes / GIB, g.ref))
    for key, said in memory.items():
        if size := figure(v for v, _ in said):
            yield key, Fact(size, "GiB", 0.1, (said[0][1],))
    busy: dict[str, list[tuple[int, float, float, EvidenceRef]]] = defaultdict(list)
    for h in arm.case.of(HostCpu):
        if h.busy_ticks is not None and h.total_ticks is not None:
            busy[h.node].append((h.at.earliest_ns if h.at else 0, h.busy_ticks, h.total_ticks, h.ref))
    for node, looks in busy.items():
        looks.sort(key=lambda x: x[:3])
        shares = [100 * (b[1] - a[1]) / (b[2] - a[2]) for a, b in itertools.pairwise(looks) if b[2] > a[2]]
        if share := figure(shares):
            yield Key("cpu", node, "all CPUs busy"), Fact(share, "%", 2.0, (looks[-1][3],))


def _heat(arm: Arm) -> Facts:
    heat: dict[Key, list[tuple[float, EvidenceRef]]] = defaultdict(list)
    for t in arm.case.of(ThermalReading):
        heat[Key("temperature", t.node, f"{t.kind} ({t.key})" if t.key != t.kind else t.kind)].append((t.celsius, t.ref))
    for g in arm.case.of(GpuSample):
        if g.temperature_celsius is not None:
            heat[Key("temperature", g.node, f"GPU {g.index}")].append((g.temperature_celsius, g.ref))
    for key, said in heat.items():
        if celsius := figure(v for v, _ in said):
            yield key, Fact(celsius, "°C", 1.0, (said[0][1],))
