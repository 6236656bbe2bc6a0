"""The GPU driver could not get memory; on a machine whose GPU shares the host's memory, just before the whole host fell silent."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import first_at, part, weight
from forensics.analysis.rules._silence import Silence, silences
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, GpuSample, Grade, KernelEvent, MemorySample, Severity

BEFORE_NS = 120 * SECOND
_SHARED = re.compile(r"\b(?:GB10|GH200|GB200|GB300|Thor|Orin|Spark)\b", re.I)


def evaluate(view: View) -> Iterator[Finding]:
    quiet = {s.node: s for s in silences(view)}
    told = view.kernel_feeding("driver-alloc-failure")
    for node in dict.fromkeys(e.node for e in told if e.role == "root"):
        mine = [e for e in told if e.node == node]
        since = first_at(mine)
        silence = quiet.get(node)
        last = _just_before(mine, silence)
        role = FindingRole.ROOT if last and silence and silence.grade.strength >= 2 else part(view, since, machine=True)
        if role is FindingRole.ROOT and not last and view.feeding("gpu-oom"):
            role = FindingRole.CONTEXT  # the program's own line says whose memory ran out
        start = first_at(last) if last else since
        yield view.finding(
            "driver-alloc-failure",
            Grade.ESTABLISHED,
            title=f"The GPU driver of {node} got no memory, {len(mine)} time(s) from {iso(start.earliest_ns if start else None)}",
            because=[e.ref for e in (last or mine)[:6]],
            severity=weight(view, role, start),
            role=role,
            nodes=[node],
            since=start,
            does_not_show="how much was asked, and whether the caller coped: a program that asks for too much gets the same line",
            would_settle=["free memory of the host and of the GPU in the minutes before"],
        )
        # on a card with memory of its own the same line is about the card
        if last and silence and silence.grade.strength >= 2 and not _own_memory(view, node):
            memory = [m for m in view.on_nodes(MemorySample) if m.node == node and m.scope == "host" and m.available_bytes]
            left = f"; {(memory[-1].available_bytes or 0) / 2**30:.1f} GiB were still 'available'" if memory else ""
            yield view.finding(
                "host-wedge-unified-memory",
                Grade.SUPPORTED,
                title=f"{node} froze as machines do whose GPU shares their memory: the driver got no memory, then all logs stopped{left}",
                because=[*(e.ref for e in last[:3]), *silence.because[:5], *(m.ref for m in memory[-1:])],
                severity=Severity.CRITICAL,
                role=FindingRole.CASCADE,
                nodes=[node],
                since=silence.at,
                does_not_show="the wedge itself: a machine that is wedged writes nothing",
                would_settle=["a serial console or netconsole during the next one"],
            )


def _just_before(events: list[KernelEvent], silence: Silence | None) -> list[KernelEvent]:
    if silence is None:
        return []
    return [e for e in events if e.at and -BEFORE_NS <= e.at.earliest_ns - silence.at.latest_ns <= 5 * SECOND]


def _own_memory(view: View, node: str) -> bool:
    """Whether the GPU is known to have memory of its own."""
    gpus = [g for g in view.on_nodes(GpuSample) if g.node == node]
    named = [g for g in gpus if g.name]
    return (bool(named) and not any(_SHARED.search(g.name) for g in named)) or any(g.memory_total_bytes for g in gpus)


TEXTS = {
    "driver-alloc-failure": Text(
        says="The GPU driver could not get memory for itself.",
        establishes="Its own NV_ERR_NO_MEMORY line in the kernel log.",
        next_steps=("leave more memory free: lower gpu_memory_utilization, no swap, a smaller batch",),
    ),
    "host-wedge-unified-memory": Text(
        says=(
            "On a machine whose CPU and GPU share memory, the driver ran out of it and the whole host froze. The kernel prints no OOM "
            "line for this."
        ),
        establishes="The driver's allocation failure and then silence of the whole host, on a machine with unified memory.",
        lower="Supported: the silence was seen, but not that memory is shared.",
        next_steps=("leave more memory free: lower gpu_memory_utilization, no swap, a smaller batch",),
        references=("open-gpu-kernel-modules issue 1358",),
    ),
}

RULE = Rule(
    name="driver_alloc",
    texts=TEXTS,
    about="The GPU driver failed to allocate memory, and whether the host froze of it.",
    requires=("kernel",),
    optional=("memory", "gpu"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="An allocation that fails and is handled; on a card with memory of its own it is the card's that ran out.",
    references=("open-gpu-kernel-modules issue 1358",),
)
