"""A process that the kernel will not let run: stopped, or in uninterruptible sleep."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, WHOLE_NODE
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, ProcessState, Role, Severity, TimeRange

MATTERS = (Role.WORKER, Role.CORE, Role.API, Role.COORDINATOR, Role.LAUNCHER)


def evaluate(view: View) -> Iterator[Finding]:
    for process in view.engine.processes:
        states = view.states_of(process)
        if process.role not in MATTERS or not states or states[-1].gone:
            continue
        # "t" is a tracer's stop: our own stack reader causes it for milliseconds, so only one that lasts counts
        traced = len(states) > 1 and all(s.state == "t" for s in states)
        if states[-1].state == "T" or traced:
            yield _stopped(view, process, states, traced)
        elif states[-1].state == "D" and not (view.moving or view.starting):  # weights and caches are read from disks
            yield _uninterruptible(view, process, states)


def _stopped(view: View, process: EngineProcess, states: list[ProcessState], traced: bool) -> Finding:
    how = "held by a tracer (state t)" if traced else "stopped by a signal (state T)"
    word = "" if len(states) < 2 else f" in {sum(s.state == states[-1].state for s in states)} of {len(states)} samples"
    return view.finding(
        "process-stopped",
        grade(observed=True),
        title=f"{view.name(process)} is {how}{word}",
        because=[states[-1].ref, states[0].ref],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        processes=[process],
        since=_since(view, states),
        does_not_show="who stopped it, and when within the given range",
        next_steps=[f"find out who stopped pid {process.pid} (a debugger, a job shell, a freezer); SIGCONT lets it run on"],
    )


def _uninterruptible(view: View, process: EngineProcess, states: list[ProcessState]) -> Finding:
    twice = stays(states)
    return view.finding(
        "process-uninterruptible",
        grade(observed=twice, agreeing=sum(s.state == "D" for s in states[-2:])),
        title=f"{view.name(process)} is in uninterruptible sleep in {states[-1].wchan or 'an unknown kernel function'}",
        because=[s.ref for s in states[-2:]],
        severity=Severity.CRITICAL if twice else Severity.INFO,
        role=FindingRole.ROOT,
        processes=[process],
        since=_since(view, states),
        does_not_show="" if twice else "whether it stays there: short waits on a disk look the same",
        would_settle=[] if twice else ["a second sample", "its kernel stack"],
    )


def stays(states: list[ProcessState]) -> bool:
    """Whether the two newest samples show uninterruptible sleep in the same place: an instant of it is ordinary."""
    last = states[-2:]
    return len(last) == 2 and bool(last[0].wchan) and all(s.state == "D" and s.wchan == last[0].wchan for s in last)


def _since(view: View, states: list[ProcessState]) -> TimeRange | None:
    if view.stall and view.stall.since:
        return view.stall.since
    return states[0].at


TEXTS = {
    "process-stopped": Text(
        says="A rank is stopped (T) or traced: every collective waits for it.",
        establishes="Its state in /proc, in two looks or with its work outstanding.",
        lower="Supported: one look.",
        next_steps=(
            "find out who stopped it (a debugger, a job shell, a signal): TracerPid and the shell's jobs",
            "kill -CONT lets it go on, if no limit has run out yet",
        ),
        while_lasts=(EVIDENCE_FIRST,),
    ),
    "process-uninterruptible": Text(
        says=(
            "A thread of a rank is in uninterruptible sleep (D): it waits in the kernel, on a device or a file system, and no signal "
            "ends it."
        ),
        establishes="State and wait channel, unchanged in two samples.",
        lower="Supported: one sample.",
        next_steps=("no signal ends this sleep: look at the driver or file system named by the kernel function", WHOLE_NODE),
    ),
}

RULE = Rule(
    name="process_state",
    texts=TEXTS,
    about="A process of the engine is stopped, traced, or in uninterruptible sleep.",
    requires=("process",),
    evaluate=evaluate,
    false_positives="State t for an instant while a stack reader looks; D for an instant while a disk is read.",
    references=("Linux Documentation/filesystems/proc.rst, field state",),
)
