"""Two host threads of one process stand in the launch of NCCL work and wait for each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stacks import ThreadView, frame_text
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Role, Severity

_ENQUEUE = r"(?m)^(?:nccl(?:EnqueueCheck|GroupEnd\w*|GroupLaunch\w*|LaunchPrepare\w*|LaunchKernel\w*)|doLaunches|groupLaunch)\b"


def evaluate(view: View) -> Iterator[Finding]:
    for process in view.standing:
        if process.role is not Role.WORKER:
            continue
        inside = [t for t in view.threads_of(process) if _enqueues(t)]
        if len(inside) < 2:
            continue
        names = " and ".join(t.label for t in inside[:3])
        others = [t for w in view.workers if w is not process and (t := view.main_thread(w))]
        # a launch may wait for a peer that never comes: only where every peer is in its collective is it this rank's own doing
        peers_in = len(others) == len(view.workers) - 1 and all(t.state in ("collective", "gpu-sync") for t in others)
        yield view.finding(
            "nccl-host-enqueue-deadlock",
            grade(agreeing=2 if all(len(t.samples) > 1 and t.moved is False for t in inside) else 1),
            title=f"Threads {names} of {view.name(process)} stand in the launch of NCCL work at the same time and do not move",
            because=[r for t in inside[:4] for r in (t.samples[0].ref, t.last.ref)],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT if peers_in else FindingRole.CASCADE,
            processes=[process],
            since=view.stall.since if view.stall else None,
            does_not_show="that they wait for each other and not for a peer, and in which order the ranks launched",
            would_settle=["the locks inside NCCL, in a core dump or a debugger"],
        )


def _enqueues(thread: ThreadView) -> bool:
    """In its last look: native frames are read only once an engine is known to stand still."""
    return re.search(_ENQUEUE, frame_text(thread.last.shown)) is not None


TEXTS = {
    "nccl-host-enqueue-deadlock": Text(
        says=(
            "Two host threads of one process are inside NCCL's enqueue and wait for each other: communicators are used in different order."
        ),
        establishes="Native stacks of both threads at the same place in two samples.",
        lower="Supported: Python stacks only.",
        next_steps=("launch on several communicators from one thread, or in one order on every rank",),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="nccl_enqueue",
    texts=TEXTS,
    about="Two threads of one rank are inside NCCL's enqueue in every sample.",
    requires=("stacks",),
    evaluate=evaluate,
    false_positives="One of them may wait for a slow launch of the other: both must stand at the same place in two samples.",
    references=("NCCL user guide: using multiple NCCL communicators concurrently",),
)
