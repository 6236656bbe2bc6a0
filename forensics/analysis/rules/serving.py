"""Healthy: serving or idle. Slow: moving, but hardly."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.progress import Interval
from forensics.analysis.rules import _pace
from forensics.analysis.rules._advice import POWER_FIRST
from forensics.analysis.rules._afterwards import gone
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.rules.engine_died import FRONT_ENDS, failed_by_death
from forensics.analysis.rules.process_state import MATTERS
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, Role, Severity, TimeRange

RECENT_NS = 60 * 10**9
"""A stats line older than this before the end of a log says nothing of its end."""


def evaluate(view: View) -> Iterator[Finding]:
    if (view.stall and view.stall.until is None) or _over(view):
        if not (view.progress.measured or _over(view)):
            raise CannotTell("no counter and no stats line was read", "metrics")
        return
    if any(run.until is None for run in episodes.parked(view)):
        return  # requests wait and none runs: neither serving nor idle
    held_up = [p for p in view.engine.processes if p.role in MATTERS and _held_up(view, p)]
    metrics, log = view.progress.metrics, view.progress.log
    moved = [i for i in metrics if i.moved]
    recent = [i for i in log if i.until_ns and view.ended_ns and view.ended_ns - i.until_ns <= RECENT_NS and not _after_stop(view, i)]
    bundled = any(n in view.case.bundled for n in view.nodes)
    history = [i for i in log if i.moved]
    told = [] if bundled and metrics else [i for i in recent if i.moved] or ([] if moved else history[-3:])
    if held_up and not moved:
        raise CannotTell(f"{view.name(held_up[0])} cannot run: what the log and the gauges say of the engine is history", "process")
    if not moved and not told:
        yield from _idle(view, recent)
        return
    slow = _slow(moved, told)
    crawl = [] if moved else _pace.crawling(view)
    computing, then = _pace.prefilling(view)
    prefill = [i for i in moved if i.prompt_only and i.held and (i.waiting or i.running)]
    if slow:
        rate = slow[-1].rate or 0
        yield _moving(
            view,
            "slow-progress",
            slow,
            f"The engine advances, but slowly: {rate:.2g} tokens/s for {slow[-1].running or 0:g} running requests",
            Severity.WARNING,
        )
    elif crawl:
        yield _pace.crawls(view, crawl)
    elif computing and then is None:
        yield _pace.prefill(view, computing, None)
    elif prefill and len(prefill) == len(moved) and not (computing and then):
        yield _moving(view, "long-prefill", prefill, "Steps and prompt tokens advance while no output token appears", Severity.INFO)
    else:
        seen = moved or told
        word = "counters of the metrics endpoint moved" if moved else "stats lines show tokens flowing"
        # between two scrapes of which nobody knows the time it moved; with requests left at the last, nothing tells that it still did
        after = bool(moved) and not view.progress.log and moved[-1].until_ns is None and bool(moved[-1].held)
        yield _moving(
            view,
            "healthy-serving",
            seen,
            f"The engine serves: {word}",
            Severity.INFO,
            "what came after them: they have no time" if after else "",
        )
        if computing:
            yield _pace.prefill(view, computing, then)


def _slow(moved: list[Interval], told: list[Interval]) -> list[Interval]:
    """Slow only when nothing in the newest evidence was quick: a ramp up or down is not a slow engine."""
    judged = [i for i in (*told, *moved) if i.held and i.rate is not None and i.running]
    return judged if judged and all(i.slow for i in judged[-3:]) else []


def _moving(view: View, id: str, intervals: list[Interval], title: str, severity: Severity, unknown: str = "") -> Finding:
    last = intervals[-1]
    since = intervals[0].since_ns
    return view.finding(
        id,
        grade(observed=True, whole=not unknown),
        title=title,
        because=[r for i in intervals[-2:] for r in i.refs],
        severity=severity,
        role=FindingRole.CONTEXT,
        does_not_show=unknown,
        since=TimeRange(earliest_ns=since, latest_ns=since, basis="sampled") if since is not None else None,
        until=TimeRange(earliest_ns=last.until_ns, latest_ns=last.until_ns, basis="sampled")
        if last.until_ns is not None and view.stall
        else None,
    )


def _idle(view: View, recent: list[Interval]) -> Iterator[Finding]:
    gauges = [i for i in view.progress.metrics if i.held is False] or [i for i in recent if not i.held]
    mains = [(p, t) for p in view.engine.processes if p.role in (Role.CORE, Role.WORKER) and (t := view.main_thread(p))]
    idle = [t for _, t in mains if t.state in ("core-idle", "rpc-idle", "poll", "queue-get", "event")]
    if not gauges:
        if not view.progress.measured:
            raise CannotTell("no counter and no stats line was read", "metrics")
        return
    clients = [q for q in view.clients if q.depth > 0]
    # every thread of the engine has to be seen idle: what is not seen may be what holds a request
    expected = [p for p in view.engine.processes if p.role in (Role.CORE, Role.WORKER)]
    ranks = (view.engine.world_size or 1) * view.engine.dp_size
    whole = bool(mains) and len(idle) == len(mains) == len(expected) and len(view.workers) >= (ranks if view.engine.world_size != 1 else 0)
    if len(idle) < len(mains) or (clients and not whole):
        raise CannotTell("the gauges say idle, but connections are open or a thread is at work", "a second capture")
    witness: list[EvidenceRef] = [t.last.ref for t in idle[:3]]
    yield view.finding(
        "idle-healthy",
        grade(observed=whole and bool(view.clients) and not clients, agreeing=2),
        title="Nothing is outstanding: gauges are zero and stay so"
        + (", and every main thread waits for work" if whole else "")
        + ("; connections are open, as those of a scraper or a balancer are" if clients else ""),
        because=[*(r for i in gauges[-1:] for r in i.refs), *witness, *(q.ref for q in view.clients[-1:])],
        role=FindingRole.CONTEXT,
        does_not_show="" if whole and not clients else "requests that the front holds, or that arrived in a stall, do not appear in gauges",
        would_settle=[] if whole else ["stacks of every rank", "connections on the API port"],
    )


def _held_up(view: View, process: EngineProcess) -> bool:
    state = view.state_of(process)
    return state is not None and (view.ended(process) or state.state in ("T", "D"))


def _over(view: View) -> bool:
    """Whether the engine had ended by the end of the evidence: what it did before is history, not its state."""
    end = view.ended_ns or 0
    ends = [h.at.earliest_ns for h in view.events("fatal", "worker-death") if h.at]
    if view.stopped_ns is not None and not view.progress.log and not view.progress.metrics:
        return True
    if _front_ended(view) or gone(view) is not None:
        return True
    bundled = any(n in view.case.bundled for n in view.nodes)
    if failed_by_death(view) and not (bundled and view.progress.moving_metrics()):
        return True
    return any(e <= end for e in ends) or any(view.ended(c) for c in view.cores)


def _front_ended(view: View) -> bool:
    """Whether the front itself ended, though no signal was logged, and nothing moved after."""
    ends = [h.at.latest_ns for h in view.hits_of(*FRONT_ENDS) if h.at]  # it has no time of its own
    moved = view.progress.last_moved()
    return bool(ends) and (moved is None or moved.until_ns is None or max(ends) >= moved.until_ns) and not view.progress.moving_metrics()


def _after_stop(view: View, interval: Interval) -> bool:
    return view.stopped_ns is not None and interval.until_ns is not None and interval.until_ns > view.stopped_ns


TEXTS = {
    "healthy-serving": Text(
        says="Counters move: the engine serves.",
        establishes="Movement of a counter or of stats lines at the end of the evidence.",
    ),
    "idle-healthy": Text(
        says="Nothing is outstanding and nothing is wrong that could be seen.",
        establishes="Counters and in-flight evidence (rings, connections, the core's stack) agree.",
        lower="Supported: gauges alone. A worker that froze while idle looks idle.",
    ),
    "slow-progress": Text(
        says="The engine advances, but slowly. Not a stall.",
        establishes="Counters that move, at a rate far below what the same engine showed before.",
        next_steps=(POWER_FIRST, "compare batch, lengths and CPU with a good hour before calling it a regression"),
    ),
    "long-prefill": Text(
        says="No output tokens because a long prompt is being computed.",
        establishes="Iterations, KV use or prompt tokens rise; power normal.",
        lower="Supported: prompt tokens moved only once.",
        next_steps=("wait: it ends with the prompt; chunked prefill keeps others going meanwhile",),
    ),
}

RULE = Rule(
    name="serving",
    texts=TEXTS,
    about="The engine serves, idles, crawls, or computes a long prompt.",
    any_of=("metrics", "log"),
    optional=("stacks", "sockets", "process"),
    evaluate=evaluate,
    false_positives="A worker frozen while idle looks idle in every metric: gauges alone never establish idleness.",
)
