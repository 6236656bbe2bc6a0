"""Which workers raised, whether the engine outlived it or was told, and what speaks against it as the cause of what followed."""

from __future__ import annotations

from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EngineProcess, LogHit, Role, TimeRange

REPLY_S = 30.0
"""A failure that is reported at all is reported at once."""


def worker_exceptions(view: View) -> list[tuple[LogHit, EngineProcess | None]]:
    """First exception of each worker that its engine did not outlive, with its process, in order of time.

    What the engine's own line or a traceback shows.
    """
    out: dict[tuple[str, int | None, int | None], tuple[LogHit, EngineProcess | None]] = {}
    for hit in view.raised:
        process = view.process(hit.node, hit.pid) or _by_rank(view, hit)
        if hit.signature == "python-traceback" and not (process and process.role is Role.WORKER and hit.fields.get("exc_type")):
            continue
        if not _torn_down(view, hit) and not _outlived(view, hit) and not in_start(view, hit):
            out.setdefault((hit.node, process.pid if process else hit.pid, None if process else hit.rank), (hit, process))
    return list(out.values())


def in_start(view: View, hit: LogHit) -> bool:
    """Whether the exception ended a start: the engine prints the same line for a failure in serving, and had not served yet."""
    if not view.profile.failures_end_it or hit.event != "exception" or view.begun_ns is None:
        return False
    return not any(view.before(ready, hit) for ready in view.events("ready")) and not view.progress.log


def speaker(view: View, hit: LogHit, process: EngineProcess | None) -> str:
    """Whose line it is, for sentences."""
    if process:
        return view.name(process)
    if hit.pid is None:
        return f"rank {hit.rank}" if hit.rank is not None else hit.process or "a worker"
    return hit.process or f"pid {hit.pid}"


def _outlived(view: View, hit: LogHit) -> bool:
    """Whether the engine went on: it became ready, or moved, after the exception."""
    if any(view.before(hit, ready) for ready in view.events("ready")):
        return True
    witnesses = (*view.progress.metrics, *view.progress.log)
    return hit.at is not None and any(i.moved and i.since_ns is not None and i.since_ns > hit.at.earliest_ns + SECOND for i in witnesses)


def doubts(view: View, hit: LogHit, process: EngineProcess | None) -> tuple[bool, list[str]]:
    """(whether the exception is too old for what followed, other readings of what followed)."""
    known = view.engine.execute_timeout_s
    limit = known or view.profile.execute_timeout_default_s or 0.0
    seconds = _until_noticed(view, hit)
    others = []
    if hit.signature == "python-traceback":
        others.append("the worker may have handled it")
    thread = view.main_thread(process) if process else None
    if process and thread is None and not view.events("timeout"):
        others.append("its stack was not seen: it may have taken a call after the exception")
    if thread and thread.state in ("collective", "running", "gpu-sync", "lock"):
        others.append("the worker is inside a call: it may have taken one after the exception, and the engine have outlived it")
    if known and seconds is not None and seconds < known / 2 and view.events("timeout"):
        others.append("the call that timed out had been waiting long before the exception")
    # a core that waits for a lost answer gives up when the limit is over
    return bool(limit and seconds is not None and seconds > limit + REPLY_S), others


def _until_noticed(view: View, hit: LogHit) -> float | None:
    """Seconds from an exception to the timeout that it may explain, or to the end of the evidence."""
    if hit.at is None:
        return None
    timeouts = [h.at.earliest_ns for h in view.events("timeout") if h.at and h.at.latest_ns >= hit.at.earliest_ns]
    end = min(timeouts, default=view.ended_ns)
    return (end - hit.at.earliest_ns) / SECOND if end is not None else None


def _by_rank(view: View, hit: LogHit) -> EngineProcess | None:
    """The worker of the rank that a line names, where the line names no pid."""
    mine = [w for w in view.workers if hit.rank is not None and w.rank and w.rank.rank == hit.rank and w.info.node == hit.node]
    return mine[0] if hit.pid is None and len(mine) == 1 else None


def _torn_down(view: View, hit: LogHit) -> bool:
    """Exceptions after the engine's own end or a stop are its teardown."""
    ends = view.events("fatal", "timeout", "worker-death", "stop", "hang")
    return any(view.before(e, hit) for e in ends)


def told_at(view: View, hit: LogHit) -> TimeRange | None:
    """When the core was told of the failure; None when it was not.

    The executor of V1 prints that it was told by the worker's reply; before 0.9 it raised the worker's own exception again. V0 and Ray
    raise it where the engine waits, and the engine's own end follows at once.
    """
    definite = hit.signature in ("vllm-worker-exception", "python-traceback")
    ends = [h for h in view.events("fatal", "death-told", "start-failed") if not definite or (h.event == "fatal" and _same(h, hit))]
    replies = [r.at for r in (*view.events("told"), *ends) if r.at and hit.at]
    return next((r for r in replies if hit.at and 0 <= (r.latest_ns - hit.at.earliest_ns) / SECOND <= REPLY_S), None)


def _same(a: LogHit, b: LogHit) -> bool:
    kind = a.fields.get("exc_type", "")
    return bool(kind) and (kind, a.fields.get("exc_message")) == (b.fields.get("exc_type"), b.fields.get("exc_message"))
