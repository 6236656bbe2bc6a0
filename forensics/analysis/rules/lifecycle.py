"""Starting, ready, stopped on request, or failed to start."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import RACE, TOGETHER
from forensics.analysis.rules._afterwards import gone
from forensics.analysis.rules._awaited import AWAITS, awaited, reason
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._raised import in_start, speaker
from forensics.analysis.rules._victims import lost_peer
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, LogSpan, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    starts = [h for h in view.events("start", "core-start") if h.at]
    ready = [h for h in view.events("ready") if h.at]
    failed = [h for h in view.hits if h.feeds == "worker-start-failed" or h.event == "start-failed" or in_start(view, h)]
    if starts:
        first = starts[0]
        assert first.at
        if ready:
            done = ready[-1]
            took = (done.at.earliest_ns - first.at.earliest_ns) / 1e9 if done.at else 0.0
            yield view.finding(
                "startup-completed",
                grade(observed=True),
                title=f"Start-up completed {duration(took)} after {iso(first.at.earliest_ns)}",
                because=[first.ref, done.ref],
                since=first.at,
                until=done.at,
            )
        elif view.starting:
            shown = max((h for h in view.hits if h.at), key=lambda h: h.at.latest_ns if h.at else 0)
            live = any(n in view.case.bundled for n in view.nodes)
            quiet_s = (view.ended_ns - (_last_line(view) or 0)) / SECOND if view.ended_ns else 0.0
            yield view.finding(
                "startup-in-progress",
                # only a start that was seen to advance while we looked is known to be going on
                grade(observed=live and quiet_s < QUIET_S, agreeing=2 if quiet_s < QUIET_S else 1),
                title="The engine is starting: no ready line yet, and ranks legitimately wait for each other for minutes",
                because=[first.ref, shown.ref],
                since=first.at,
                does_not_show="whether start-up itself is stuck: its calls have no limit",
            )
    elif not ready and not failed and not view.progress.measured and (waits := view.hits_of(*AWAITS)):
        yield awaited(view, waits)
    if failed:
        yield _start_failed(view, failed)
    yield from _stopped(view)


def _last_line(view: View) -> int | None:
    spans = [s.last_ns for s in view.on_nodes(LogSpan) if s.last_ns is not None]
    return max(spans, default=None)


def _start_failed(view: View, failed: list[LogHit]) -> Finding:
    workers = [h for h in failed if h.role == "root"]
    own = [h for h in workers if not _victim(h)]
    first = (own or workers or failed)[0]
    process = view.process(first.node, first.pid)
    # a start that waited in vain for the others is no failure of who waited
    victim = bool(workers) and not own
    # several that failed at once are not told apart: none of them is the first
    at_once = [h for h in own or workers if h.at and first.at and h.at.earliest_ns - first.at.earliest_ns <= SECOND]
    known = {p.pid: p for h in at_once if (p := view.process(h.node, h.pid))} if process else {}
    ranks = sorted({h.rank for h in at_once if h.rank is not None}) if not process else []
    who = speaker(view, first, process) if first.pid is not None or first.rank is not None or first.process else "the engine"
    if len(several := ranks or sorted({p.rank.rank for p in known.values() if p.rank and p.rank.rank is not None})) > 1:
        who = f"ranks {', '.join(map(str, several))}"
    return view.finding(
        "worker-start-failed",
        Grade.POSSIBLE if victim else grade(observed=bool(workers), agreeing=2),
        title=f"{who} failed before it was ready{reason(first)}",
        because=[h.ref for h in (own or workers or failed)[:3]],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT if own and first.feeds in OF_STARTS and not _deeper(view, first) else FindingRole.CASCADE,
        processes=list(known.values()) or ([process] if process else []),
        ranks=ranks,
        nodes=[] if process else list(dict.fromkeys(h.node for h in at_once or [first])),
        since=first.at,
        does_not_show="a failure of its own: it waited in vain for others" if victim else "",
    )


def _deeper(view: View, failed: LogHit) -> bool:
    """Whether a line just before the failure says what it failed for: a device, a full file system, a killed process."""
    if failed.at is None:
        return False
    since, until = failed.at.earliest_ns - DEEPER_S * SECOND, failed.at.latest_ns
    named = [h for h in view.hits if h.role == "root" and h.node == failed.node and h.feeds not in OF_STARTS]
    return any(h.at and since <= h.at.earliest_ns <= until and h.ref != failed.ref for h in named)


def _victim(hit: LogHit) -> bool:
    return lost_peer(hit.fields.get("exc_type", ""), hit.fields.get("exc_message", ""))


def _stopped(view: View) -> Iterator[Finding]:
    if view.stopped_ns is None:
        yield from _ended_quietly(view)
        return
    asked = [h for h in view.events("stop") if h.at and h.at.earliest_ns == view.stopped_ns]
    restarted = view.replaced_ns
    yield view.finding(
        "orderly-shutdown",
        grade(observed=True),
        title=f"Somebody stopped the engine at {iso(view.stopped_ns)}",
        because=[h.ref for h in asked[:2]],
        role=FindingRole.CONTEXT,
        since=asked[0].at,
        until=TimeRange(earliest_ns=restarted, latest_ns=restarted, basis="logged") if restarted else None,
        does_not_show="who sent the signal",
    )


def _ended_quietly(view: View) -> Iterator[Finding]:
    """Versions that log no signal: the front ended, and nothing had broken before, though the log shows the life before."""
    ends = [h for h in view.feeding("orderly-shutdown") if h.at and h.signature not in OF_OTHERS]
    broke = view.events("fatal", "death-told", "worker-death", "timeout", "told", "exception", "start-failed", "hang")
    # processes that were ended by the same signal tell of it, too
    broke = [
        h for h in (*broke, *(h for h in view.hits if h.role == "root" and h not in ends)) if h.fields.get("exit_code") not in ("-15", "-2")
    ]
    if broke:
        return
    if not ends:
        yield from _with_its_machine(view)
        return
    lived = bool(view.events("ready")) or bool(view.progress.log)
    yield view.finding(
        "orderly-shutdown",
        grade(agreeing=2 if lived and len({h.signature for h in ends}) > 1 else 1),
        title=f"The engine's front ended at {iso(ends[0].at.earliest_ns) if ends[0].at else '?'}, and nothing had broken before",
        because=[h.ref for h in ends[:3]],
        role=FindingRole.CONTEXT,
        since=ends[0].at,
        until=TimeRange(earliest_ns=view.replaced_ns, latest_ns=view.replaced_ns, basis="logged") if view.replaced_ns else None,
        does_not_show="a signal: this version prints none",
    )


def _with_its_machine(view: View) -> Iterator[Finding]:
    """Nothing was logged by the engine, but what it runs in was ended on request."""
    end = gone(view)
    if end is None or not end.wanted or not end.soon:
        return
    yield view.finding(
        "orderly-shutdown",
        Grade.SUPPORTED,
        title=f"The engine was ended with what it runs in, and nothing had broken before: {end.what}",
        because=[*end.because],
        role=FindingRole.CONTEXT,
        nodes=[end.node],
        since=end.at,
        does_not_show="that the engine itself was asked: its log has no word of it",
    )


DEEPER_S = 60
OF_STARTS = ("worker-start-failed", "worker-exception-swallowed", "orderly-shutdown")
"""What root lines of a failed start may feed without saying why it failed."""
OF_OTHERS = ("ray-actor-killed", "ray-gcs-node-ended")
"""Ends of parts, which do not show that the engine was asked to end."""
QUIET_S = 120.0
"""A start that prints nothing for longer may itself be stuck."""

TEXTS = {
    "startup-in-progress": Text(
        says="The engine is loading, compiling or capturing graphs. Ranks legitimately wait for each other for minutes.",
        establishes="Start-up lines without the ready line, and movement while we looked.",
        lower="Possible: the start's last line is old.",
        next_steps=("compare with the duration of an earlier start before calling this a hang",),
    ),
    "startup-completed": Text(
        says="A start was completed: from here on the engine answers.",
        establishes="The ready line.",
    ),
    "worker-start-failed": Text(
        says="A worker failed before the engine was ready; the engine's own line that it could not start comes later.",
        establishes="The worker's own traceback.",
        lower="Supported: only the engine's word that a worker failed.",
        next_steps=("read the first traceback of any rank: later ones follow from it",),
        over_nodes=(TOGETHER, RACE),
    ),
    "orderly-shutdown": Text(
        says="Somebody, or the platform, asked the engine to stop.",
        establishes="The signal or shutdown line before any death.",
        false_positives="A launcher prints shutdown lines after a death of the engine too: a fatal line before them decides.",
        next_steps=("find out who asked: the supervisor's or the platform's log of that moment",),
    ),
}

RULE = Rule(
    name="lifecycle",
    texts=TEXTS,
    about="Where the engine is in its life: starting, ready, failed to start, stopped on request.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="The launcher prints shutdown lines after an engine death too; a fatal line before them decides.",
    references=("vllm v1/engine/core.py", "vllm v1/executor/multiproc_executor.py WorkerProc.wait_for_ready", "uvicorn server.py"),
)
