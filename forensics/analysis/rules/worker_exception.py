"""A worker raised. Was the engine told?"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forensics.analysis.rules._advice import EVIDENCE_FIRST, NO_LONGER_LIMIT, RACE, TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._raised import REPLY_S, doubts, speaker, told_at, worker_exceptions
from forensics.analysis.rules._victims import REFUSALS, lost_peer
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, Grade, LogHit, LogSpan, Severity

SILENCE_S = 4.0
"""The capture must have looked at least this long after the exception to say that nothing followed."""


def evaluate(view: View) -> Iterator[Finding]:
    raised = worker_exceptions(view)
    if not raised:
        yield from _told_from_afar(view)
    for hit, process in raised:
        # of a long message the beginning; the rest stands at the cited line
        what = f"{hit.fields.get('exc_type', 'an exception')} {hit.fields.get('exc_message', '')[:80]}".strip()
        where = f" in {hit.fields['exc_at']}" if hit.fields.get("exc_at") else ""
        name = speaker(view, hit, process)
        rank = [hit.rank] if hit.rank is not None and not process else []
        if lost_peer(hit.fields.get("exc_type", ""), hit.fields.get("exc_message", "")):
            continue
        if told_at(view, hit) or (view.profile.failures_end_it and hit.event == "exception"):
            if hit.fields.get("exc_type") not in REFUSALS:
                yield view.finding(
                    "worker-exception-fatal",
                    grade(observed=True),
                    title=f"{name} raised {what}{where}; the engine was told and ended",
                    because=[hit.ref, *(h.ref for h in view.events("told")[:1])],
                    severity=Severity.CRITICAL,
                    role=FindingRole.ROOT,
                    processes=[process] if process else [],
                    ranks=rank,
                    nodes=[] if process else [hit.node],
                    since=hit.at,
                )
            continue
        after, quiet_s = _aftermath(view, hit)
        if after is None:
            if hit.event == "exception" and _cut(view, hit):
                yield view.finding(
                    "worker-exception-fatal",
                    Grade.POSSIBLE,
                    title=f"{name} raised {what}{where}; what became of it was not read",
                    because=[hit.ref],
                    severity=Severity.WARNING,
                    role=FindingRole.ROOT,
                    processes=[process] if process else [],
                    ranks=rank,
                    nodes=[] if process else [hit.node],
                    since=hit.at,
                    does_not_show="whether the engine was told, or ended: the log ends here",
                )
            continue
        outside = [s for s in [_stack(view, process)] if s]
        too_old, others = doubts(view, hit, process)
        if quiet_s < SILENCE_S:
            others.append("the engine may be told a moment later")
        yield view.finding(
            "worker-exception-swallowed",
            Grade.POSSIBLE if too_old else grade(observed=True, alternatives=others),
            title=f"{name} raised {what}{where} at {iso(hit.at.earliest_ns) if hit.at else '?'}, and the engine was not told: {after}",
            because=[hit.ref, *outside, *(view.stall.because[:3] if view.stall else ())],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            processes=[process] if process else [],
            ranks=rank,
            nodes=[] if process else [hit.node],
            since=hit.at,
            does_not_show="; ".join(["whether it is the cause: a lost answer ends in a timeout sooner"] * too_old + others)
            or "why it raised: read the traceback at the cited line",
        )


def _cut(view: View, hit: LogHit) -> bool:
    """Whether the logs end with this exception."""
    ends = [s.last_ns for s in view.on_nodes(LogSpan) if s.last_ns is not None]
    return hit.at is None or max(ends, default=0) <= hit.at.latest_ns + REPLY_S * SECOND


def _told_from_afar(view: View) -> Iterator[Finding]:
    """A worker on another node raised, and its own log is not here: its caller prints what, with address and pid, and ends."""
    ends = [h.at.earliest_ns for h in view.events("fatal", "death-told", "start-failed") if h.at]
    told = [h for h in view.events("told") if "task_pid" in h.fields and h.fields.get("exc") not in OF_RAY and h.at]
    told = [h for h in told if h.at and any(abs(h.at.earliest_ns - e) <= REPLY_S * SECOND for e in ends)]
    for hit in told[:1]:
        ip, pid = hit.fields["ip"], int(hit.fields["task_pid"])
        finding = view.finding(
            "worker-exception-fatal",
            grade(observed=True),
            title=f"pid {pid} on {ip} raised {hit.fields['exc']} in {hit.fields['call']}; the engine was told and ended",
            because=[hit.ref],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            nodes=[ip],
            since=hit.at,
            would_settle=["the log of that process: the traceback below this line is a copy of it"],
        )
        yield msgspec.structs.replace(finding, pids=(pid,))


OF_RAY = ("ActorDiedError", "ActorUnavailableError", "RayActorError", "WorkerCrashedError", "RayChannelTimeoutError", "RayTaskError")
"""What Ray itself raises in a call: another process's end, told elsewhere."""


def _aftermath(view: View, hit: LogHit) -> tuple[str | None, float]:
    """(what followed in words, seconds seen after it), or (None, 0) where nothing did."""
    at = hit.at.earliest_ns if hit.at else None
    timeouts = [h.at for h in view.events("timeout") if h.at and (at is None or h.at.latest_ns >= at)]
    if timeouts:
        seconds = (timeouts[0].earliest_ns - at) / SECOND if at is not None else 0.0
        return f"it learned of it {duration(seconds)} later, when the call's limit ran out", max(seconds, SILENCE_S)
    if view.stall and at is not None and view.ended_ns:
        seconds = (view.ended_ns - at) / SECOND
        return f"it still waits {duration(seconds)} later", seconds
    return None, 0.0


def _stack(view: View, process: EngineProcess | None) -> EvidenceRef | None:
    thread = view.main_thread(process) if process else None
    return thread.last.ref if thread and thread.state == "rpc-idle" else None


TEXTS = {
    "worker-exception-swallowed": Text(
        says="A worker raised and the engine was not told: it waits until its limit. Only the output rank's failures are delivered.",
        establishes="The worker's exception with no matching line of the engine before the timeout.",
        lower="Supported: no timeout was seen yet.",
        next_steps=("read that worker's traceback: it is the cause, the engine's timeout is not", NO_LONGER_LIMIT),
        while_lasts=(EVIDENCE_FIRST,),
        over_nodes=(TOGETHER,),
    ),
    "worker-exception-fatal": Text(
        says="A worker raised, the engine was told and ended.",
        establishes="The worker's traceback and the engine's line about it.",
        lower="Supported: only the engine's quotation of it.",
        next_steps=("read the worker's traceback: an empty reason in the engine's line is how an exception without text looks",),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="worker_exception",
    texts=TEXTS,
    about="A worker raised an exception, and the engine went on waiting for it (swallowed) or was told and ended (fatal).",
    requires=("log",),
    optional=("stacks", "metrics"),
    evaluate=evaluate,
    false_positives="Exceptions that the worker handles: the engine moves on, and then nothing is claimed.",
    references=("vllm v1/executor/multiproc_executor.py _execute_worker_rpc: only the output rank enqueues a failure",),
)
