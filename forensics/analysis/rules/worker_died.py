"""A worker process ended, and it was not the teardown of something that broke earlier."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from forensics.analysis.rules._advice import RACE, TOGETHER, WHOLE_NODE
from forensics.analysis.rules._agent import ended_first
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, LogHit, ProcessState, Role, Severity, TimeRange

ABORT_S = 120
"""Seconds between the watchdogs of one collective that nobody ends: each looks by itself, and prints its stacks first."""
STOP_S = 30
"""Seconds between the ends of a front and of its workers in one stop."""


def evaluate(view: View) -> Iterator[Finding]:
    ended = _fatal_before(view)
    reported = set()
    for hit in view.events("worker-death"):
        if not hit.at or (ended is not None and hit.at.earliest_ns > ended) or _stopped_with_all(view, hit) or _follows(view, hit):
            continue
        who = _who(view, hit)
        ranks = _ranks(hit, who)
        reported |= set(ranks)
        # several processes printed a device error before: the first to be reaped is not known to be the first to fail
        errors = [e for e in view.feeding("cuda-illegal-access") if view.before(e, hit)]
        shared = sum(e.count for e in errors) > 1 and view.engine.world_size != 1
        if watchdogs := _aborted(view, hit):
            errors, shared = watchdogs, True
        refs = [hit.ref, *(e.ref for e in errors[:3])]
        yield _finding(view, who, ranks, hit.at, refs, _status(_code(hit)), shared, hit.fields.get("worker_pid", ""))
    for worker in view.workers:
        last = view.state_of(worker)
        rank_known = worker.rank.rank if worker.rank else None
        if last is None or (rank_known in reported and rank_known is not None):
            continue
        # gone together with its core is an engine that ended, not a worker that died under it
        parents = view.cores or [p for p in view.engine.processes if p.role in (Role.LAUNCHER, Role.API)]  # a follower has no core
        core_lives = any(view.state_of(p) and not view.ended(p) for p in parents)
        if view.ended(worker) and core_lives and ended is None:
            yield _finding(view, [worker], [rank_known] if rank_known is not None else [], last.at, [last.ref], _wait_status(last))

    if found := ended_first(view):
        refs, code = [h.ref for h in found.told[:3]], found.told[0].fields.get("exit_code", "")
        pid = found.told[0].fields.get("worker_pid", "")
        yield _finding(view, [], found.ranks, found.told[0].at, refs, _status(code), found.explained, pid)


def _follows(view: View, hit: LogHit) -> bool:
    """Whether the death is the end of what its own log says before: a stop, a watchdog, or an exception by which every worker ends it."""
    causes = view.events("stop", "hang", *(("exception",) if view.profile.failures_end_it else ()))
    return any(view.before(c, hit) for c in causes)


def _aborted(view: View, hit: LogHit) -> list[LogHit]:
    """Watchdogs that gave up on a collective around an abort: each ends its process so, and the collective had stood long before."""
    if _code(hit) != "-6" or hit.at is None:
        return []
    told = [h for h in view.feeding("nccl-watchdog-timeout", "heartbeat-monitor-abort") if h.at]
    near = [h for h in told if h.at and abs(h.at.earliest_ns - hit.at.earliest_ns) <= ABORT_S * SECOND]
    return [h for h in near if (h.began or h.at) and not (h.began and h.began.latest_ns >= hit.at.earliest_ns)]


def _who(view: View, hit: LogHit) -> list[EngineProcess]:
    """The workers that the line means: by pid (V0), else by rank. Each replica counts from 0: the core that says it tells which."""
    pid, rank = hit.fields.get("worker_pid"), hit.fields.get("rank")
    if pid is not None:
        found = view.process(hit.node, int(pid))
        return [found] if found else []
    mine = [w for w in view.workers if w.rank and rank is not None and w.rank.rank == int(rank)]
    core = view.process(hit.node, hit.pid)
    if len(mine) > 1 and core and core.rank and core.rank.dp is not None:
        mine = [w for w in mine if w.info.ppid == core.pid or (w.rank and w.rank.dp == core.rank.dp)] or mine
    return [w for w in mine if w.info.node == hit.node] or mine


def _ranks(hit: LogHit, who: list[EngineProcess]) -> list[int]:
    """Ray may find several gone at once, and names them all."""
    said = [int(n) for n in re.findall(r"\d+", f"{hit.fields.get('rank', '')},{hit.fields.get('ranks', '')}")]
    return said or [w.rank.rank for w in who if w.rank and w.rank.rank is not None]


def _stopped_with_all(view: View, hit: LogHit) -> bool:
    """A worker ended by SIGTERM or SIGINT while the front was ending, too: whoever stops a V0 engine signals all its processes."""
    if _code(hit) not in ("-15", "-2"):
        return False
    ends = [h.at for h in view.feeding("orderly-shutdown") if h.at]
    return any(abs(e.earliest_ns - hit.at.earliest_ns) <= STOP_S * SECOND for e in ends if hit.at)


def _fatal_before(view: View) -> int | None:
    """The engine's own end: workers that die after it die of it."""
    ends = [h.at.earliest_ns for h in view.events("fatal", "death-told", "timeout", "told") if h.at]
    died = [h.at.earliest_ns for h in view.events("worker-death") if h.at]
    ends = [e for e in ends if not any(d <= e for d in died)]
    if view.stopped_ns is not None:
        ends.append(view.stopped_ns)
    return min(ends, default=None)


def _code(hit: LogHit) -> str:
    """The exit code as Python counts it: a signal is negative, whichever way the parent names it."""
    signalled = hit.fields.get("signal", "")
    return hit.fields.get("exit_code") or (f"-{signalled}" if signalled.isdigit() else "")


def _status(code: str) -> str:
    """Words for the exit code in the parent's line. None is a race in the parent, not evidence."""
    if not code.lstrip("-").isdigit():
        return "exit status not seen"
    return _signal_name(-int(code)) if code.startswith("-") else f"exit status {code}"


def _wait_status(state: ProcessState) -> str:
    if state.exit_status is None:
        return "exit status not readable" if not state.gone else "no longer there"
    return _signal_name(state.exit_status & 0x7F) if state.exit_status & 0x7F else f"exit status {state.exit_status >> 8}"


def _signal_name(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _finding(
    view: View,
    who: list[EngineProcess],
    ranks: list[int],
    at: TimeRange | None,
    refs: list[EvidenceRef],
    status: str,
    shared: bool = False,
    pid: str = "",
) -> Finding:
    name = view.name(who[0]) if who and len(ranks) < 2 else f"rank {', '.join(map(str, ranks))}" if ranks else f"pid {pid}"
    return view.finding(
        "worker-process-died",
        grade(observed=True),
        title=f"Worker {name} ended {'before the engine was ready' if _never_ready(view) else 'while the engine was up'} ({status})",
        because=refs,
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE if shared else FindingRole.ROOT,
        processes=who,
        ranks=ranks,
        since=at,
        does_not_show="who ended it: a kill by hand, the kernel and a supervisor look the same from here without the kernel log",
        would_settle=["the kernel log of this node", "the worker's exit status as its parent saw it"],
    )


def _never_ready(view: View) -> bool:
    """Whether the log tells that this start failed, and nothing that it ever served."""
    return bool(view.events("start-failed")) and not view.events("ready") and not view.progress.measured


TEXTS = {
    "worker-process-died": Text(
        says="A worker process ended before anything else of its engine did.",
        establishes="Its exit status or signal, or its parent's line; and which came first.",
        lower="Supported: the parent's line, without a status and without the kernel's log.",
        next_steps=(WHOLE_NODE, "look for the last lines of that worker, and for a core file"),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="worker_died",
    texts=TEXTS,
    about="A worker process ended before anything else of its engine did.",
    any_of=("log", "process"),
    optional=("kernel",),
    evaluate=evaluate,
    false_positives="Workers that the engine itself terminates after a fatal error or a stop signal.",
    references=("vllm v1/executor/multiproc_executor.py MultiprocWorkerMonitor",),
)
