"""Nodes of which every log stops at one moment while time went on elsewhere, without a word of an end."""

from __future__ import annotations

from dataclasses import dataclass, field

from forensics.analysis.rules._machine import troubles
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import (
    BootTime,
    CrashRecord,
    EvidenceRef,
    GpuSample,
    Grade,
    HealthSample,
    HostCpu,
    KernelEvent,
    KernelSpan,
    LogHit,
    LogSpan,
    MemorySample,
    Observation,
    ProcessState,
    ProgressSample,
    ThreadStack,
    TimeRange,
)

TOGETHER_NS = 30 * SECOND
"""An engine that serves prints every ten seconds."""
WENT_ON_NS = 60 * SECOND
RHYTHM_NS = 120 * SECOND
SAMPLES: tuple[type[Observation], ...] = (ProcessState, MemorySample, GpuSample, HostCpu, HealthSample, ThreadStack)
GOODBYES = ("fatal", "death-told", "stop", "worker-death")


@dataclass(frozen=True)
class Silence:
    node: str
    at: TimeRange
    """The last sign of life."""
    grade: Grade
    because: list[EvidenceRef] = field(default_factory=list)
    how: str = ""


def silences(view: View) -> list[Silence]:
    if view.past:  # the end of a machine is the end of the last life
        return []
    return [s for node in view.nodes if (s := _of(view, node)) is not None]


def _of(view: View, node: str) -> Silence | None:
    logs = [s for s in view.case.on(node, LogSpan) if s.last_ns is not None]
    kernels = [s for s in view.case.on(node, KernelSpan) if s.at is not None]
    if not logs or not kernels:
        return None
    previous = [s for s in kernels if s.previous_boot]
    kernels = previous or kernels  # that of the present boot tells of the time after
    last_log, last_kernel = max(s.last_ns or 0 for s in logs), max(s.at.latest_ns for s in kernels if s.at)
    if previous and any(last_kernel < at <= last_log for at, _ in _boots(view, node)):
        return None  # it wrote again after the machine came back
    if last_log < last_kernel - TOGETHER_NS:
        return _of_a_follower(view, node, last_kernel, logs, previous)
    last = max(last_log, last_kernel)
    if _said_goodbye(view, node, last) or _seen_later(view, node, last):
        return None
    together = abs(last_log - last_kernel) <= TOGETHER_NS
    booted = [b for b in view.case.on(node, BootTime) if b.booted.earliest_ns > last]
    later = [b.ref for b in booted] + [
        e.ref for e in view.case.on(node, KernelEvent) if e.signature == "kernel-boot" and e.at and e.at.earliest_ns >= last
    ]
    others = [s for s in view.case.of(LogSpan) if s.node != node and s.last_ns is not None and s.last_ns - last > WENT_ON_NS]
    empty = [r for r in view.case.on(node, CrashRecord) if r.empty]
    # a follower is silent for hours while it serves: only one that wrote all the time is missed
    said = [p for p in view.case.on(node, ProgressSample) if p.via == "log" and p.at]
    if sum(p.at is not None and last - p.at.latest_ns <= RHYTHM_NS for p in said) < 3:
        others = []
    went_on = [*(s.ref for s in previous), *later, *(s.ref for s in others[:2])]
    if not went_on:
        return None
    grade = Grade.ESTABLISHED if together else Grade.SUPPORTED if previous or later else None
    if grade is None:
        return None
    why = "the machine was booted again" if previous or later else f"{others[0].node} went on writing"
    return Silence(
        node,
        TimeRange(earliest_ns=last - SECOND + 1, latest_ns=last, basis="logged"),
        grade,
        [*(s.ref for s in logs[:3]), *(s.ref for s in kernels[:2]), *went_on[:3], *(r.ref for r in empty[:1])],
        f"{why}; no word of a shutdown, an OOM kill or a panic" + (", and the firmware kept nothing" if empty else ""),
    )


def _of_a_follower(view: View, node: str, end: int, logs: list[LogSpan], previous: list[KernelSpan]) -> Silence | None:
    """Its engine's log is silent for hours while it serves: the kernel's log ends without a word, another boot follows, and in between
    the others of the engine began to wait or lost it."""
    after = sorted((b for b in _boots(view, node) if b[0] > end), key=lambda b: b[0])
    if not previous or not after:
        return None
    begun = [t for t, slack in troubles(view) if end - slack <= t.earliest_ns <= after[0][0]]
    if not begun or _said_goodbye(view, node, end):
        return None
    first = min(begun, key=lambda t: t.earliest_ns)
    return Silence(
        node,
        TimeRange(earliest_ns=min(end, first.earliest_ns), latest_ns=max(end, first.latest_ns), basis="inferred"),
        Grade.SUPPORTED,
        [*(s.ref for s in previous[:2]), after[0][1], *(s.ref for s in logs[:2])],
        "the machine was booted again; no word of a shutdown, an OOM kill or a panic",
    )


def _boots(view: View, node: str) -> list[tuple[int, EvidenceRef]]:
    """When this machine was booted, as far as anything tells."""
    booted = [(b.booted.earliest_ns, b.ref) for b in view.case.on(node, BootTime)]
    first = [e for e in view.case.on(node, KernelEvent) if e.signature == "kernel-boot"]
    return booted + [(e.at.earliest_ns, e.ref) for e in first if e.at]


def _said_goodbye(view: View, node: str, last: int) -> bool:
    ends = [e for e in view.case.on(node, KernelEvent) if e.at and last - e.at.latest_ns <= 10 * TOGETHER_NS]
    told = any(
        e.signature in ("kernel-reboot", "kernel-systemd-shutdown", "kernel-critical-temperature", "kernel-container-gone") for e in ends
    )
    told |= any(e.feeds in ("kernel-panic", "host-oom-kill") and e.role != "context" for e in ends)
    told |= any(not r.empty for r in view.case.on(node, CrashRecord))
    hits = [h for h in view.case.on(node, LogHit) if h.event in GOODBYES and h.at]
    return told or any(last - h.at.latest_ns <= 10 * TOGETHER_NS for h in hits if h.at)


def _seen_later(view: View, node: str, last: int) -> bool:
    """Whether somebody looked at the machine after that and found it alive, without a boot in between."""
    boots = [b.booted.earliest_ns for b in view.case.on(node, BootTime) if b.booted.earliest_ns > last]
    seen = [o for kind in SAMPLES for o in view.case.on(node, kind) if o.at and o.at.earliest_ns > last + TOGETHER_NS]
    return any(o.at and not any(b <= o.at.latest_ns for b in boots) for o in seen)
