"""Two host threads of one process stand in the launch of NCCL work and wait for each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.stacks import ThreadView, frame_text
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Role, Severity

_ENQUEUE = r"(?m)^(?:nccl(?:EnqueueCheck|GroupEnd\w*|GroupLaunch\w*|LaunchPrepare\w*|LaunchKernel\w*)|doLaunches|groupLaunch)\b"


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving or view.stall is None:
        return
    for process in view.engine.processes:
        if process.role is not Role.WORKER:
            continue
        inside = [t for t in view.threads_of(process) if _enqueues(t)]
        if len(inside) < 2:
            continue
        twice = all(len(t.samples) > 1 and t.moved is False for t in inside)
        names = " and ".join(f'"{t.name or t.tid}"' for t in inside[:3])
        yield view.finding(
            "nccl-host-enqueue-deadlock",
            grade(observed=twice, agreeing=2 if twice else 1),
            title=f"Threads {names} of {view.name(process)} stand in the launch of NCCL work at the same time and do not move",
            because=[r for t in inside[:4] for r in (t.samples[0].ref, t.last.ref)],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            processes=[process],
            since=view.stall.since,
            does_not_show="in which order the ranks launched on the two communicators",
            next_steps=["launch on several communicators from one thread, or in one order on every rank"],
        )


def _enqueues(thread: ThreadView) -> bool:
    """In its last two samples: native frames are read only once an engine is known to stand still."""
    return all(re.search(_ENQUEUE, frame_text(s.shown)) for s in thread.samples[-2:])


RULE = Rule(
    name="nccl_enqueue",
    emits=("nccl-host-enqueue-deadlock",),
    about="Two threads of one rank are inside NCCL's enqueue in every sample.",
    requires=("stacks",),
    evaluate=evaluate,
    false_positives="One of them may wait for a slow launch of the other: both must stand at the same place in two samples.",
    references=("NCCL user guide: using multiple NCCL communicators concurrently",),
)
