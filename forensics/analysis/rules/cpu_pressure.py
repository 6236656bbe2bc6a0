"""Did the engine's threads wait for a processor? Told by what the kernel counts for them, for their container and for the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.view import View
from forensics.model import CpuGroup, CpuSample, EngineProcess, EvidenceRef, Finding, FindingRole, Grade, HostCpu, Severity

WAITS = 0.2
"""Share of the time for which a main thread waited for a processor, from which on its steps are visibly longer."""
LEAST_S = 1.0
"""A shorter look is chance."""
SOME = 40.0
"""Per cent of the last ten seconds in which at least one task of the machine waited. On a large machine somebody nearly always does."""
FULL = 10.0
"""The same for all tasks of a container at once."""
THROTTLED = 0.1
"""Share of a container's periods in which it was held back."""
LEAST_PERIODS = 10


@dataclass(frozen=True)
class _Waited:
    process: EngineProcess
    share: float
    because: list[EvidenceRef]


def evaluate(view: View) -> Iterator[Finding]:
    known = False
    for node in view.nodes:
        waits = [w for p in view.engine.processes if p.info.node == node and (w := _waited(view, p)) is not None]
        hosts = [h for h in view.case.on(node, HostCpu) if h.pressure_some_avg10 is not None]
        groups = view.case.on(node, CpuGroup)
        known |= bool(waits or hosts or any(g.periods is not None for g in groups))
        starved = sorted((w for w in waits if w.share >= WAITS), key=lambda w: -w.share)
        held = _throttled(groups)
        pressed = [h for h in hosts if (h.pressure_some_avg10 or 0) >= SOME]
        full = [g for g in groups if (g.pressure_full_avg10 or 0) >= FULL]
        if starved or held:
            yield _told(view, node, Grade.ESTABLISHED, starved, held, pressed, full)
        elif (len(pressed) > 1 or full) and not waits:
            yield _told(view, node, Grade.POSSIBLE, [], [], pressed, full)
    if not known:
        raise CannotTell("nothing tells whether anybody waited for a processor", "/proc/pressure/cpu", "schedstat of the engine's threads")


def _told(
    view: View,
    node: str,
    level: Grade,
    starved: list[_Waited],
    held: list[tuple[CpuGroup, float]],
    pressed: list[HostCpu],
    full: list[CpuGroup],
) -> Finding:
    what = [f"{view.name(w.process)} waited {w.share:.0%} of the time for a processor" for w in starved[:2]]
    what += [f"and {len(starved) - 2} more processes"] if len(starved) > 2 else []
    what += [f"{g.scope} used up its quota in {share:.0%} of its periods ({g.ref.quote})" for g, share in held[:2]]
    if pressed and not what:
        what.append(f"some task of {node} waited for a processor in {max(h.pressure_some_avg10 or 0 for h in pressed):.0f} % of the time")
    if full and not what:
        what.append(f"all tasks of {full[0].scope} waited at once in {full[0].pressure_full_avg10:.0f} % of the time")
    return view.finding(
        "cpu-pressure",
        level,
        title=f"{node}: " + "; ".join(what),
        because=[
            *(ref for w in starved[:3] for ref in w.because),
            *(g.ref for g, _ in held[:2]),
            *(h.ref for h in pressed[:2]),
            *(g.ref for g in full[:2]),
        ],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        processes=[w.process for w in starved],
        nodes=[node],
        does_not_show="that it began the trouble: who waits for a processor is late, and comes",
        would_settle=[] if starved else ["schedstat of the engine's threads in two samples"],
    )


def _waited(view: View, process: EngineProcess) -> _Waited | None:
    """How much of the capture its main thread spent waiting for a processor; None where that was not read twice."""
    samples = [s for s in view.cpu_of(process, process.pid) if s.waited_seconds is not None and s.at]
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    seconds = _seconds(first, last)
    if seconds < LEAST_S:
        return None
    share = ((last.waited_seconds or 0.0) - (first.waited_seconds or 0.0)) / seconds
    words = f"waited {(last.waited_seconds or 0) - (first.waited_seconds or 0):.2f} s of {seconds:.1f} s for a processor"
    return _Waited(process, share, [EvidenceRef(source=last.ref.source, locator=last.ref.locator, quote=words)])


def _seconds(first: CpuSample, last: CpuSample) -> float:
    return (last.at.earliest_ns - first.at.earliest_ns) / 1e9 if first.at and last.at else 0.0


def _throttled(groups: list[CpuGroup]) -> list[tuple[CpuGroup, float]]:
    """Groups that were held back in a tenth of the periods between their first and last sample, with that share."""
    first: dict[str, CpuGroup] = {}
    found: dict[str, tuple[CpuGroup, float]] = {}
    for g in sorted((g for g in groups if g.periods is not None), key=lambda g: g.at.earliest_ns if g.at else 0):
        begin = first.setdefault(g.scope, g)
        periods, held = (g.periods or 0) - (begin.periods or 0), (g.throttled or 0) - (begin.throttled or 0)
        if periods >= LEAST_PERIODS and held >= THROTTLED * periods:
            found[g.scope] = (g, held / periods)
        else:
            found.pop(g.scope, None)
    return list(found.values())


TEXTS = {
    "cpu-pressure": Text(
        says="Threads of the engine waited for a processor, or their container used up its quota. An amplifier unless shown otherwise.",
        establishes="The engine's own waits (schedstat) in two samples, or a quota that was used up in many of its periods.",
        lower="Possible: only the pressure of the whole host is high, which counts everybody's tasks.",
        next_steps=("raise the container's CPU quota, or take other work off the machine; then compare the waits again",),
    ),
}

RULE = Rule(
    name="cpu_pressure",
    texts=TEXTS,
    about="Threads of the engine waited for a processor, or their container used up its quota.",
    requires=("cpu",),
    optional=("process",),
    evaluate=evaluate,
    false_positives="Ranks that spin while they wait use up a quota without needing it. Pressure of the whole host counts everybody's "
    "tasks, and is no more than possible where the engine's own waits were not read. Our own capture takes a share of a small machine.",
    references=(
        "Linux Documentation/accounting/psi.rst",
        "Linux Documentation/scheduler/sched-stats.rst: /proc/PID/schedstat",
        "Linux Documentation/admin-guide/cgroup-v2.rst: cpu.stat",
    ),
)
