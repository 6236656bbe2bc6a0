"""A thread that burns a CPU polling. Usually the victim: it waits for somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.stacks import STATES
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity

BURNS = 0.9
POLLING = frozenset({"collective", "rpc-idle", "rpc-response", "ring-full", "gpu-sync", "poll"})


def evaluate(view: View) -> Iterator[Finding]:
    # a cost, and no fault, only where the engine is known to have nothing to do
    intervals = view.progress.metrics
    idle = bool(intervals) and not view.stall and not any(i.moved or i.held for i in intervals) and not view.feeding("engine-died")
    for process in view.engine.processes:
        for thread in view.threads_of(process):
            load = view.cpu_fraction(process, thread.tid)
            if load is None or load < BURNS or thread.state not in POLLING or not thread.steady:
                continue
            same = thread.moved is False
            samples = view.cpu_of(process, thread.tid)
            yield view.finding(
                "idle-cpu-spin" if idle else "busy-spin",
                grade(observed=same, agreeing=2),
                title=f'{view.name(process)} thread "{thread.name}" burns {load:.0%} of a CPU {STATES[thread.state]}',
                because=[samples[0].ref, samples[-1].ref, thread.last.ref],
                severity=Severity.INFO,
                role=FindingRole.CASCADE if view.stall else FindingRole.CONTEXT,
                processes=[process],
                since=samples[0].at,
                does_not_show="a fault of this rank: a rank that spins in a wait is waiting for another",
            )


RULE = Rule(
    name="busy_spin",
    emits=("busy-spin", "idle-cpu-spin"),
    about="A thread uses at least 90 % of a CPU at the same polling place in all samples.",
    requires=("stacks", "cpu"),
    evaluate=evaluate,
    false_positives="On a host short of CPUs a spinning thread gets less than a CPU and is not named.",
)
