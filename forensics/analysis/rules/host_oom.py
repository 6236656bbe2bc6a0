"""The kernel (or a guard in user space) killed a process of the engine because memory ran out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import SLACK_NS, first_at, grave, named_process, ours_by_name, part, troubles
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import (
    ContainerStatus,
    EngineProcess,
    EvidenceRef,
    Finding,
    FindingRole,
    Grade,
    KernelEvent,
    LogHit,
    LogSpan,
    MemorySample,
    PlatformEvent,
    Severity,
    TimeRange,
)

NOTICED_NS = 15 * SECOND
"""A parent reaps its child within seconds of the kill, unless the machine is thrashing."""
FOLLOWS_NS = 120 * SECOND
SILENT_NS = 30 * SECOND
_SERVICE = re.compile(r"vllm|sglang|trtllm|tensorrt|tritonserver|dynamo", re.I)
"""Names of a unit or scope that are an engine's."""


def evaluate(view: View) -> Iterator[Finding]:
    kills = kills_of(view)
    joined = [k for kill in kills if (k := join(view, kill, kills)) is not None]
    for kill, process, rank, refs, level in joined:
        role = FindingRole.ROOT if _ended_with(view, kill) else part(view, kill.at, machine=True)
        who = view.name(process) if process else f"rank {rank}" if rank is not None else "a process of the engine"
        victim = kill.fields.get("comm") or kill.fields.get("cgroup", "?")
        victim += f", pid {kill.fields['pid']}" if "pid" in kill.fields else ""
        yield view.finding(
            "host-oom-kill",
            level,
            title=f"{killer(kill)} killed {who} ({victim}) for lack of memory at {iso(kill.at.earliest_ns if kill.at else None)}",
            because=[kill.ref, *refs, *(e.ref for e in view.kernel_feeding("host-oom-kill") if e.node == kill.node and e is not kill)],
            severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
            role=role,
            nodes=[kill.node],
            ranks=[] if rank is None else [rank],
            processes=[process] if process else (),
            since=first_at([kill]),
            does_not_show="who used the memory up: the victim is chosen by size"
            + ("" if process else "; its pid is the host's, not the container's"),
        )
    if not joined:
        yield from _hinted(view)


def kills_of(view: View) -> list[KernelEvent]:
    """One event a kill: the line of the kill, or where that was lost the kernel's summary of it."""
    told = view.kernel_feeding("host-oom-kill")
    kills = [e for e in told if e.role == "root"]
    known = {(e.node, e.fields.get("pid")) for e in kills}
    return kills + [e for e in told if e.signature == "kernel-oom-task" and (e.node, e.fields.get("pid")) not in known]


_Joined = tuple[KernelEvent, EngineProcess | None, int | None, list[EvidenceRef], Grade]


def join(view: View, kill: KernelEvent, kills: list[KernelEvent]) -> _Joined | None:
    """Whose process was killed: by pid, else by the parent's own line about a worker that ended at that moment; None when not ours."""
    comm = kill.fields.get("comm", "")
    process = named_process(view, kill.node, kill.fields.get("pid"), comm)
    if process is not None:
        return kill, process, process.rank.rank if process.rank else None, [], Grade.ESTABLISHED
    told = [d for d in view.events("worker-death") if d.node == kill.node and d.fields.get("worker_pid", "?") == kill.fields.get("pid")]
    if told and ours_by_name(comm)[0]:
        return kill, None, _rank(told[0]), [told[0].ref], Grade.ESTABLISHED
    ours, named = ours_by_name(comm)
    if not view.engine.processes:  # no log of an engine was read on this node: the name alone tells
        return (kill, None, None, [], Grade.ESTABLISHED) if named else None
    if (comm and not ours) or kill.at is None:
        return None
    deaths = [d for d in view.events("worker-death") if d.at and _follows(kill.at, d.at)]
    rivals = [k for k in kills if k is not kill and k.at and any(d.at and _follows(k.at, d.at) for d in deaths)]
    shared = sum(kill.node in e.nodes for e in view.case.engines) > 1
    # a whole cgroup ends with all its processes: the first to be missed is not the one that was picked
    if len(deaths) == 1 and comm and not rivals and not shared and "Core" not in comm:
        return kill, None, _rank(deaths[0]), [deaths[0].ref], Grade.ESTABLISHED if named else Grade.SUPPORTED
    if not comm and not shared and _ended_with(view, kill):  # a whole service, ended at once
        return kill, None, None, [], Grade.ESTABLISHED if _SERVICE.search(kill.fields.get("cgroup", "")) else Grade.SUPPORTED
    if deaths or any(0 <= t.latest_ns - kill.at.earliest_ns + SLACK_NS <= FOLLOWS_NS for t, _ in troubles(view)):
        # which rank is not told; without a word of its parent it may be a process of somebody else's engine
        lost = [h for h in view.feeding("symptom-peer-loss", "symptom-nccl-remote-error") if h.at and _follows(kill.at, h.at)]
        sure = named and bool(deaths or lost) and not shared
        return kill, None, None, [h.ref for h in (*deaths[:4], *lost[:2])], Grade.ESTABLISHED if sure else Grade.SUPPORTED
    # nothing that was written later shows this node's engine alive: a follower writes little
    if named and not shared and (_ended_with(view, kill) or (not view.cores and (view.ended_ns or 0) < kill.at.earliest_ns)):
        return kill, None, None, [s.ref for s in view.case.of(LogSpan) if s.node == kill.node][:2], Grade.SUPPORTED
    return None


def _ended_with(view: View, kill: KernelEvent) -> bool:
    """Whether the log of an engine that was serving stops at that moment without a word: all of it was killed."""
    last, moved = view.ended_ns, view.progress.last_moved()
    if view.past:  # it is replaced a while after it ended
        said = [h.at.latest_ns for h in view.hits if h.at] + [i.until_ns for i in view.progress.log if i.until_ns is not None]
        last = max(said, default=None)
    if troubles(view) or kill.at is None or last is None or moved is None or moved.until_ns is None or view.stopped_ns is not None:
        return False
    return last - moved.until_ns <= SILENT_NS and kill.at.latest_ns - last >= -SLACK_NS and kill.at.earliest_ns - last <= SILENT_NS


def _rank(death: LogHit) -> int | None:
    return int(death.fields["rank"]) if death.fields.get("rank", "").isdigit() else None


def _follows(kill: TimeRange, death: TimeRange) -> bool:
    return death.latest_ns - kill.earliest_ns >= -SLACK_NS and death.earliest_ns - kill.latest_ns <= NOTICED_NS


def killer(kill: KernelEvent) -> str:
    if kill.signature == "kernel-systemd-oomd-kill":
        return "systemd-oomd"
    if kill.signature == "kernel-earlyoom-kill":
        return "earlyoom"
    return "The kernel (limit of a container or cgroup)" if "cgroup" in kill.fields.get("scope", "") else "The kernel"


def _hinted(view: View) -> Iterator[Finding]:
    """Without the kernel's line: the platform's own word is worth more than an exit status."""
    # the status tells of the container that ended last: of the life before the present one
    before = view.past and view.life == view.lives.last - 1
    ended = [c for c in view.case.of(ContainerStatus) if c.node in view.nodes and c.reason == "OOMKilled" and (before or not view.past)]
    words: list[ContainerStatus | PlatformEvent] = [*ended]
    words += [p for p in view.on_nodes(PlatformEvent) if p.reason in ("OOMKilled", "OOMKilling", "SystemOOM")]
    samples = [m for m in view.on_nodes(MemorySample) if m.oom_kills is not None]
    counted = [
        b for a, b in itertools.pairwise(samples) if a.scope == b.scope and a.node == b.node and (b.oom_kills or 0) > (a.oom_kills or 0)
    ]
    said = [h for h in view.feeding("host-oom-kill") if h.signature == "killed-word"]
    status = [h for h in view.events("worker-death") if h.fields.get("exit_code") in ("-9", "137")]
    if not words and not counted and not (said and status):
        return
    at = next((w.ended if isinstance(w, ContainerStatus) else w.at for w in words), None) or next((c.at for c in counted), None)
    sure = bool(words or counted)
    role = FindingRole.ROOT if before and words else part(view, at) if sure else FindingRole.CONTEXT
    yield view.finding(
        "host-oom-kill",
        Grade.SUPPORTED if sure else Grade.POSSIBLE,
        title="The container's limit of memory was hit: the platform says OOMKilled"
        if words
        else "Processes of the container were killed for lack of memory while it was watched"
        if counted
        else "A process was ended by SIGKILL: the OOM killer is one of those who may have sent it",
        because=[*(w.ref for w in words[:3]), *(c.ref for c in counted[:3]), *(h.ref for h in (*said, *status)[:3])],
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        since=at,
        does_not_show="which process was killed" if sure else "that memory had anything to do with it",
        would_settle=["the kernel log of this node"],
    )


TEXTS = {
    "host-oom-kill": Text(
        says="The kernel's OOM killer ended a process of the engine.",
        establishes=(
            "The kernel's own line with the pid of a process that is known to be the engine's, or the container's oom_kill count with "
            "the death."
        ),
        lower="Possible: exit status 137 or the word Killed. Many things send SIGKILL; the kernel log settles it.",
        next_steps=(
            "read memory use of the container and the host over the minutes before",
            "see whether the limit is the container's or the machine's: the line says which",
        ),
    ),
}

RULE = Rule(
    name="host_oom",
    texts=TEXTS,
    about="The OOM killer ended a process of the engine.",
    any_of=("kernel", "log"),
    optional=("memory", "process"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Exit status 137, the word Killed and Ray's guess are no OOM kill; a kill of another program's process is not ours.",
    references=("Linux mm/oom_kill.c", "systemd src/oom", "earlyoom kill.c"),
)
