"""No CPU left. An amplifier unless shown otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import CpuSample, Finding, FindingRole, HostCpu, Severity

NO_IDLE = 0.10
CROWDED = 1.2
"""Runnable tasks (or load) for each CPU above which they queue."""


def evaluate(view: View) -> Iterator[Finding]:
    for node in view.nodes:
        samples = [s for s in view.on_nodes(HostCpu) if s.node == node]
        idle = [s for s in samples if s.idle_fraction is not None and s.idle_fraction < NO_IDLE]
        busy = measured(samples)
        loaded = [s for s in samples if s.cpus and (s.load1 or 0) > CROWDED * s.cpus]
        # one look may have met the readers of this very capture
        long = [s for s in samples if s.cpus and (s.runnable or 0) > CROWDED * s.cpus]
        crowded = loaded or (long if len(long) > 1 else [])
        if not idle and (busy is None or busy < 1 - NO_IDLE):
            continue
        # engines spin while they wait: full CPUs alone are ordinary where their number is small and nobody queues for them
        queued = (
            bool(crowded)
            or any((s.runnable or 0) > 1 for s in idle if not s.cpus)
            or any((s.pressure_some_avg10 or 0) > 10 for s in samples)
        )
        hungry = sorted((c for c in view.on_nodes(CpuSample) if c.node == node and (c.percent or 0) > 100), key=lambda c: -(c.percent or 0))
        share = busy if busy is not None else 1 - (idle[-1].idle_fraction or 0)
        yield view.finding(
            "cpu-saturated",
            grade(observed=queued, agreeing=2),
            title=f"The CPUs of {node} are {share:.0%} busy" + (f"; the hungriest is {hungry[0].ref.quote}" if hungry else ""),
            because=[*(s.ref for s in (*idle, *crowded, *samples)[:3]), *(c.ref for c in hungry[:2])],
            severity=Severity.WARNING,
            role=FindingRole.AMPLIFIER,
            nodes=[node],
            does_not_show="that it started the trouble: a busy host makes any race likelier and every step slower",
        )


def measured(samples: list[HostCpu]) -> float | None:
    """Busy share of all CPUs between the first and the last sample with tick counters."""
    ticks = sorted((s.at.earliest_ns, s.busy_ticks, s.total_ticks) for s in samples if s.at and s.busy_ticks is not None and s.total_ticks)
    if len(ticks) < 2 or (ticks[-1][2] or 0) - (ticks[0][2] or 0) < 50:
        return None
    return ((ticks[-1][1] or 0) - (ticks[0][1] or 0)) / ((ticks[-1][2] or 0) - (ticks[0][2] or 0))


TEXTS = {
    "cpu-saturated": Text(
        says="The node had less than a tenth of its CPU time idle, and tasks queued for it. An amplifier unless something shows more.",
        establishes="Counts of CPU time over the interval, with tasks that wait to run, in the samples of the incident.",
        lower="Supported: only one interval was seen.",
        next_steps=(
            "take away what spins before adding CPUs: see busy-spin",
            "compare with a sample of a quiet hour: a stall itself makes ranks spin",
        ),
    ),
}

RULE = Rule(
    name="cpu_saturated",
    texts=TEXTS,
    about="Less than a tenth of the node's CPU time was idle, and tasks queued for it.",
    requires=("cpu",),
    of_nodes=True,
    evaluate=evaluate,
    references=("Linux Documentation/filesystems/proc.rst, /proc/stat",),
    false_positives="Ranks that spin while they wait fill CPUs without needing them.",
)
