"""A worker raised. Was the engine told?"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.rules._victims import lost_peer
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, LogHit, Role, Severity, TimeRange

REPLY_S = 30.0
"""A failure that is reported at all is reported at once."""
SILENCE_S = 4.0
"""The capture must have looked at least this long after the exception to say that nothing followed."""


def worker_exceptions(view: View) -> list[tuple[LogHit, EngineProcess | None]]:
    """First exception of each worker with its process, in order of time: what the engine's own line or a traceback shows."""
    out: dict[tuple[str, int | None], tuple[LogHit, EngineProcess | None]] = {}
    for hit in view.hits_of("vllm-worker-exception", "python-traceback"):
        process = view.process(hit.node, hit.pid) or _by_rank(view, hit)
        if hit.signature == "python-traceback" and not (process and process.role is Role.WORKER and hit.fields.get("exc_type")):
            continue
        if _torn_down(view, hit):
            continue
        out.setdefault((hit.node, process.pid if process else hit.pid), (hit, process))
    return list(out.values())


def _by_rank(view: View, hit: LogHit) -> EngineProcess | None:
    """The worker of the rank that a line names, where the line names no pid."""
    mine = [w for w in view.workers if hit.rank is not None and w.rank and w.rank.rank == hit.rank and w.info.node == hit.node]
    return mine[0] if hit.pid is None and len(mine) == 1 else None


def _torn_down(view: View, hit: LogHit) -> bool:
    """Exceptions after the engine's own end or a stop are its teardown."""
    ends = view.hits_of("vllm-engine-fatal", "vllm-rpc-timeout", "vllm-worker-died", "vllm-shutdown-signal")
    return any(view.before(e, hit) for e in ends)


def told_at(view: View, hit: LogHit) -> TimeRange | None:
    """When the core was told of the failure through the worker's own reply; None when it was not."""
    replies = [r.at for r in view.hits_of("vllm-worker-failed-reply") if r.at and hit.at]
    return next((r for r in replies if hit.at and 0 <= (r.latest_ns - hit.at.earliest_ns) / SECOND <= REPLY_S), None)


def evaluate(view: View) -> Iterator[Finding]:
    for hit, process in worker_exceptions(view):
        what = f"{hit.fields.get('exc_type', 'an exception')} {hit.fields.get('exc_message', '')}".strip()
        where = f" in {hit.fields['exc_at']}" if hit.fields.get("exc_at") else ""
        name = view.name(process) if process else hit.process or f"pid {hit.pid}"
        rank = [hit.rank] if hit.rank is not None and not process else []
        if lost_peer(hit.fields.get("exc_type", ""), hit.fields.get("exc_message", "")):
            yield view.finding(
                "symptom-peer-loss",
                grade(observed=True),
                title=f"{name} lost a peer: {what}{where}",
                because=[hit.ref],
                severity=Severity.WARNING,
                role=FindingRole.CASCADE,
                processes=[process] if process else [],
                ranks=rank,
                since=hit.at,
                does_not_show="which peer went first, and why",
            )
            continue
        if told_at(view, hit):
            if "Full" not in hit.fields.get("exc_type", ""):
                yield view.finding(
                    "worker-exception-fatal",
                    grade(observed=True),
                    title=f"{name} raised {what}{where}; the engine was told and ended",
                    because=[hit.ref, *(h.ref for h in view.hits_of("vllm-worker-failed-reply")[:1])],
                    severity=Severity.CRITICAL,
                    role=FindingRole.ROOT,
                    processes=[process] if process else [],
                    ranks=rank,
                    since=hit.at,
                )
            continue
        after, quiet_s = _aftermath(view, hit)
        if after is None:
            continue
        outside = [s for s in [_stack(view, process)] if s]
        yield view.finding(
            "worker-exception-swallowed",
            grade(observed=True, alternatives=[] if quiet_s >= SILENCE_S else ["the engine may be told a moment later"]),
            title=f"{name} raised {what}{where} at {iso(hit.at.earliest_ns) if hit.at else '?'}, and the engine was not told: {after}",
            because=[hit.ref, *outside, *(view.stall.because[:3] if view.stall else ())],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            processes=[process] if process else [],
            ranks=rank,
            since=hit.at,
            does_not_show="why it raised: read the traceback at the cited line",
            next_steps=["only the output rank's failures reach the core; any other rank that raises waits for its next call"],
        )


def _aftermath(view: View, hit: LogHit) -> tuple[str | None, float]:
    """(what followed in words, seconds seen after it), or (None, 0) when the engine went on: then nothing was broken."""
    at = hit.at.earliest_ns if hit.at else None
    witnesses = (*view.progress.metrics, *view.progress.log)
    if at is not None and any(i.moved and i.since_ns is not None and i.since_ns > at + SECOND for i in witnesses):
        return None, 0.0
    timeouts = [h.at for h in view.hits_of("vllm-rpc-timeout") if h.at and (at is None or h.at.latest_ns >= at)]
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


RULE = Rule(
    name="worker_exception",
    emits=("worker-exception-swallowed", "worker-exception-fatal", "symptom-peer-loss"),
    about="A worker raised an exception, and the engine went on waiting for it (swallowed) or was told and ended (fatal).",
    requires=("log",),
    optional=("stacks", "metrics"),
    evaluate=evaluate,
    false_positives="Exceptions that the worker handles: the engine moves on, and then nothing is claimed.",
    references=("vllm v1/executor/multiproc_executor.py _execute_worker_rpc: only the output rank enqueues a failure",),
)
