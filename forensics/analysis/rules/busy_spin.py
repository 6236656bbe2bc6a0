"""A thread that burns a CPU polling. Usually the victim: it waits for somebody else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.stacks import STATES
from forensics.analysis.view import View
from forensics.model import CpuSample, Finding, FindingRole, FunctionShare, Severity

BURNS = 0.9
FEW = 5.0
POLLS = re.compile(r"sched_yield|acquire_read|acquire_write|dequeue|poll|spin|wait|busy_loop")
POLLING = frozenset({"collective", "rpc-idle", "rpc-response", "ring-full", "gpu-sync", "poll"})


def evaluate(view: View) -> Iterator[Finding]:
    # a cost, and no fault, only where the engine is known to have nothing to do
    intervals = view.progress.metrics
    idle = bool(intervals) and not view.stall and not any(i.moved or i.held for i in intervals) and not view.feeding("engine-died")
    named = set()
    for process in view.engine.processes:
        for thread in view.threads_of(process):
            load = view.cpu_fraction(process, thread.tid)
            if load is None or load < BURNS or thread.state not in POLLING or not thread.steady:
                continue
            same = thread.moved is False
            named.add((process.info.node, process.pid))
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

    if idle or _idle_by_log(view):
        yield from _by_rate(view, named)
    elif not named and (
        burns := [p for p in view.engine.processes if not view.threads_of(p) and (view.cpu_fraction(p, p.pid) or 0) >= BURNS]
    ):
        raise CannotTell(f"{view.name(burns[0])} burns a CPU, and no stack tells whether it polls", "stacks")


def _idle_by_log(view: View) -> bool:
    """Whether the newest stats lines of every log say that nothing is outstanding and nothing moves."""
    tails = [lines[-2:] for lines in episodes.told(view)]
    quiet = bool(tails) and all(i.held is False and not i.moved for lines in tails for i, _ in lines)
    return quiet and not view.stall and not any(i.moved for i in view.progress.metrics) and not view.events("fatal", "stop")


def _by_rate(view: View, named: set[tuple[str, int]]) -> Iterator[Finding]:
    """Where a tool gives the rate itself (`top`), one look is enough: it is a rate over the seconds before."""
    shares = [f for f in view.case.of(FunctionShare) if f.own_percent >= FEW and POLLS.search(f.function)]
    for process in view.engine.processes:
        samples = [s for s in view.of(CpuSample) if (s.node, s.pid) == (process.info.node, process.pid) and (s.percent or 0) >= BURNS * 100]
        if not samples or (process.info.node, process.pid) in named:
            continue
        top = samples[-1]
        # a look of unknown time may come from before the engine went idle
        moved = [i.until_ns for lines in episodes.told(view) for i, _ in lines if i.moved and i.until_ns is not None]
        then = not moved or (top.at is not None and top.at.earliest_ns > max(moved))
        where = f" {shares[0].function} ({shares[0].file})" if shares else ""
        yield view.finding(
            "idle-cpu-spin",
            # a rate alone does not show that it polls
            grade(observed=then and bool(shares), agreeing=2),
            title=f"{view.name(process)} burns {top.percent:.0f}% of a CPU while nothing is outstanding"
            + (f", polling in{where}" if where else ""),
            because=[top.ref, *(f.ref for f in shares[:2]), *(i.refs[0] for lines in episodes.told(view) for i, _ in lines[-1:])],
            role=FindingRole.CONTEXT,
            processes=[process],
            since=top.at,
            does_not_show="a fault: readers of a ring poll it in older versions, whether anything comes or not",
        )


TEXTS = {
    "busy-spin": Text(
        says=(
            "A thread burns a whole CPU by polling while requests are held. Cost, and at most an amplifier: the rank that spins is "
            "usually the victim that waits."
        ),
        establishes="At least 90 % of a CPU for that thread, with the same polling frame, in all samples.",
        lower="Supported: the CPU time is the process's, and no stack says which place it is.",
        next_steps=("look at what it waits for, not at the spinning thread",),
    ),
    "idle-cpu-spin": Text(
        says="A thread polls at full speed while the engine is idle: heat and power, not a fault.",
        establishes="As busy-spin, with nothing outstanding.",
        next_steps=("on a machine whose CPU and GPU share cooling or power, let it sleep instead of polling",),
    ),
}

RULE = Rule(
    name="busy_spin",
    texts=TEXTS,
    about="A thread uses at least 90 % of a CPU at the same polling place in all samples, or a process does while nothing is outstanding.",
    requires=("cpu",),
    optional=("stacks", "log"),
    evaluate=evaluate,
    false_positives="On a host short of CPUs a spinning thread gets less than a CPU and is not named.",
    references=(
        "vllm distributed/device_communicators/shm_broadcast.py SpinCondition",
        "Linux Documentation/filesystems/proc.rst, stat utime",
    ),
)
