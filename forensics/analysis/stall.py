"""Is (or was) the engine standing still with work outstanding, since when, and how firmly may that be said?

Three independent witnesses, any of which may be missing:
- live: counters that stay the same over the capture while work is held, or, where no counter answers, stacks that do;
- stats lines that say Running > 0 and 0.0 tokens/s, again and again;
- timeouts: each says that nothing came for as long as its limit, so the stall began that much earlier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from forensics.analysis.progress import STATS_WINDOW_NS, STEPS_ENOUGH, STILL_ENOUGH_S, Interval
from forensics.analysis.stacks import ThreadView, frame_text
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Grade, LogHit, LogSpan, QueueDepth, Role, TimeRange

WORKING = frozenset({"rpc-response", "ring-full", "collective", "gpu-sync", "queue-put", "lock", "running", "future", "join"})
"""States of a main thread that hold work: it was given something and has not finished it."""
_COMPILES = (
    r"(?m)\(subprocess\.py|torch/_inductor/(?:compile_fx|async_compile|codecache)|torch/_dynamo/(?:convert_frame|symbolic_convert)"
    r"|triton/compiler/|^\S*(?:capture_model|capture_cudagraphs?|_do_compile|_jit_compile|build_and_load|run_ninja|make_cubin) \("
)
"""Frames of compilation and graph capture. What merely runs compiled code (inductor wrappers, graph replay) is not among them."""
BARE_ENOUGH_S = 30.0
"""Of scrapes in a folder nobody knows what lay between them: twice the stillness, and more, of what a capture saw itself."""
WAITING_FOR_OTHERS = frozenset({"collective", "rpc-idle", "core-idle", "monitor", "poll", "rpc-response", "ring-full"})
"""States in which a changed line number is only another turn of the same wait."""


@dataclass(frozen=True)
class Stall:
    since: TimeRange
    until: TimeRange | None
    """None: it lasts to the end of the evidence."""
    grade: Grade
    because: tuple[EvidenceRef, ...]
    how: str
    """In words: what was seen standing still, for how long."""
    unsure: tuple[str, ...] = ()
    """Other readings that the evidence leaves open."""
    vague: str = ""
    """What makes its beginning less sure than it looks."""
    live: bool = False
    """Seen while it lasted, not only told by a log."""
    replicas: tuple[str, ...] = ()
    """Which data-parallel replicas stand still, where only some do; () for the whole engine."""


def find_stall(view: View) -> Stall | None:
    """The stall of the newest incident, or None when nothing speaks for one."""
    if view.starting:
        return None
    told = _told_by_log(view)
    seen = _seen_live(view)
    if seen is None:
        return told
    if told is None or told.until is not None:
        return seen
    # the log knows when it began, the capture that it lasts
    since = told.since if told.since.earliest_ns <= seen.since.latest_ns else seen.since
    grade = max(told.grade, seen.grade, key=lambda g: g.strength)
    because, how = (*seen.because, *told.because), f"{seen.how}; {told.how}"
    return replace(seen, since=since, grade=grade, because=because, how=how)


# ---- live


def _seen_live(view: View) -> Stall | None:
    if not any(n in view.case.bundled for n in view.nodes):
        return _from_bare_samples(view)
    if (view.stopped_ns is not None and not view.progress.metrics) or _dead(view):
        return None
    mains = [(p, t) for p in view.engine.processes if p.role in (Role.CORE, Role.WORKER) and (t := view.main_thread(p))]
    if view.progress.metrics:
        found = {replica: s for replica in view.progress.replicas if (s := _replica(view, replica, mains))}
        if not found:
            return None
        worst = max(found.values(), key=lambda s: s.grade.strength)
        return replace(worst, replicas=tuple(found)) if len(found) < max(len(view.progress.replicas), view.engine.dp_size) else worst
    working = [t for _, t in mains if t.state in WORKING and t.steady]
    if not working:
        return None
    if _moved(mains) or compiling(mains):
        return None
    return _by_stacks(view, [t for _, t in mains], working, _stopped(view, mains))


Mains = list[tuple[EngineProcess, ThreadView]]


def _dead(view: View) -> bool:
    """Whether the engine had ended when the capture began to look: a dead engine does not stand still."""
    began = min((view.case.captured[n].earliest_ns for n in view.nodes if n in view.case.captured), default=0)
    ends = [h.at.latest_ns for h in view.ends if h.at]
    return any(e <= began + STATS_WINDOW_NS for e in ends) or (bool(view.cores) and all(view.ended(c) for c in view.cores))


def _replica(view: View, replica: str, mains: Mains) -> Stall | None:
    """Whether one data-parallel replica stands still. Only evidence that is certainly its own is heard for it."""
    run = view.progress.still_run(replica)
    if not run:
        return None
    if any(i.moved for i in view.progress.metrics if i.replica == replica) and _span(run) < STILL_ENOUGH_S:
        # it moved earlier within this very capture: too short a look to call it standing still
        return None
    alone = len(view.progress.replicas) == 1 and view.engine.dp_size == 1
    mine = mains if alone else [(p, t) for p, t in mains if p.rank and p.rank.dp is not None and str(p.rank.dp) == replica]
    clients = [q.ref for q in view.clients if q.depth > 0 and q.sample == run[-1].sampled[1]] if alone else []
    return _judge(view, run, mine, clients)


def _moved(mains: Mains) -> list[ThreadView]:
    """Main threads that advanced inside their work: other lines of the same wait do not count."""
    return [t for _, t in mains if t.moved and not set(t.states) <= WAITING_FOR_OTHERS]


def _stopped(view: View, mains: Mains) -> list[EvidenceRef]:
    return [s.ref for p, _ in mains if (s := view.state_of(p)) and view.stopped(p)]


def _span(run: list[Interval]) -> float:
    first, last = run[0].since_ns, run[-1].until_ns
    return (last - first) / SECOND if first is not None and last is not None else 0.0


def _judge(view: View, run: list[Interval], mains: Mains, clients: list[EvidenceRef]) -> Stall | None:
    working = [(p, t) for p, t in mains if t.state in WORKING and t.steady]
    moved, stopped = _moved(mains), _stopped(view, mains)
    gauges = any(i.held for i in run)
    core_works = any(p.role is Role.CORE for p, _ in working)
    load = [q.ref for q in view.of(QueueDepth) if q.kind == "server-load" and q.depth > 0] if clients else []
    if not gauges and not core_works and not load and not (clients and stopped):
        return None
    still_s = _span(run)
    step = max((i.mean_step_s or 0 for i in run), default=0.0)
    enough = max(STILL_ENOUGH_S, STEPS_ENOUGH * step)
    unsure = []
    if moved:
        unsure.append("a worker moved inside its step: a long step, not a standstill")
    if compiles := compiling(mains):
        unsure.append(f"a kernel is being compiled ({compiles[0].last.ref.quote.split(' <')[0]})")
    if timed := _on_a_timer(view, mains):
        where = timed[0].last.ref.quote.split(" <")[0]
        unsure.append(f"a worker sleeps on a timer in its step ({where}): it may go on by itself")
    if not (gauges or core_works or load):
        unsure.append("an open connection is not yet a request")
    if not mains and not stopped:
        unsure.append("no stack was read: a step that takes so long looks the same")
    if still_s < enough and not stopped:
        unsure.append(f"{duration(still_s)} without movement is short of the {duration(enough)} that a slow step can take")
    refs = [*(r for i in (run[0], run[-1]) for r in i.refs), *stopped, *(t.last.ref for _, t in working[:3]), *clients[:1], *load[:1]]
    held = []
    if gauges:
        held.append(f"{run[-1].running or 0:g} running and {run[-1].waiting or 0:g} waiting requests in the gauges")
    if core_works:
        held.append("the core is inside a step")
    if clients:
        held.append("clients hold connections open")
    if load:
        held.append("the front counts requests in flight")
    agreeing = 1 + len(held) + bool(stopped)
    step_goes_on = moved or compiles
    grade = Grade.ESTABLISHED if not unsure else Grade.SUPPORTED if agreeing >= 3 and not step_goes_on else Grade.POSSIBLE
    since = _since(view, run[0].since_ns)
    how = f"no counter moved for {duration(still_s)} while work is held ({', '.join(held)})"
    return Stall(since, None, grade, tuple(refs), how, tuple(unsure), live=True)


def _on_a_timer(view: View, mains: Mains) -> list[ThreadView]:
    """Worker main threads that the kernel will wake by itself: a sleep in the middle of a step, however long, comes to its end."""
    found = []
    for process, thread in mains:
        wchans = [s.wchan for s in view.states_of(process) if s.wchan]
        asleep = len(wchans) > 1 and all("nanosleep" in w for w in wchans[-2:])
        if process.role is Role.WORKER and asleep and thread.state not in WAITING_FOR_OTHERS:
            found.append(thread)
    return found


def compiling(mains: Mains) -> list[ThreadView]:
    """Main threads that wait for a compiler or record a graph: minutes in which an engine at work shows no movement."""
    return [t for _, t in mains if re.search(_COMPILES, frame_text(t.last.frames))]


def _by_stacks(view: View, mains: list[ThreadView], working: list[ThreadView], stopped: list[EvidenceRef]) -> Stall | None:
    """No counter answers (a follower node, a torchrun job, a front that hangs): only stacks can tell."""
    spans = [t.span_s for t in mains if len(t.samples) > 1]
    if not spans:
        return None
    still_s = min(spans)
    unsure = [] if still_s >= STILL_ENOUGH_S or stopped else [f"stacks were watched for {duration(still_s)} only"]
    since = _since(view, min((t.samples[0].at.earliest_ns for t in mains if t.samples[0].at), default=None))
    how = f"no main thread moved for {duration(still_s)}, {len(working)} of {len(mains)} inside a call that does not end"
    refs = tuple(r for t in working[:4] for r in (t.samples[0].ref, t.last.ref))
    grade = Grade.POSSIBLE if unsure and not stopped else Grade.ESTABLISHED if not unsure else Grade.SUPPORTED
    if not unsure and not stopped and not view.on_nodes(LogSpan):
        unsure.append("neither a log nor a counter was read: an engine that starts looks the same")
        grade = Grade.SUPPORTED
    return Stall(since, None, grade, (*refs, *stopped), how, tuple(unsure), live=True)


def _from_bare_samples(view: View) -> Stall | None:
    """Scrapes and stacks of unknown distance in a folder: still and held is an indication, no more, unless a log confirms it."""
    run = view.progress.still_run()
    if view.progress.moving_metrics() or view.stopped_ns is not None:
        return None
    cores = [t for c in view.cores if (t := view.main_thread(c)) and t.steady and t.state in WORKING and t.moved is False]
    held = [i for i in run if i.held]
    if not held and not cores:
        return None
    refs = [*(r for i in (run[:1] + run[-1:]) for r in i.refs), *(t.last.ref for t in cores)]
    since = _since(view, run[0].since_ns if run else None)
    how = "the counters are equal in all scrapes" if run else "the core's stack is the same in all samples"
    how += " while requests run" if held else ", and the core is inside a step"
    # two scrapes may lie within one step of each other, unless they say when they were made
    dated_s = _span(held) if held else 0.0
    step = max((i.mean_step_s or 0 for i in held), default=0.0)
    if dated_s >= max(BARE_ENOUGH_S, STEPS_ENOUGH * step) and not compiling([(c, t) for c in view.cores if (t := view.main_thread(c))]):
        return Stall(since, None, Grade.ESTABLISHED, tuple(refs), f"{how}, over {duration(dated_s)}")
    grade = Grade.SUPPORTED if len(held) > 1 or (held and cores) else Grade.POSSIBLE
    return Stall(since, None, grade, tuple(refs), how, ("the samples carry no time",) if not dated_s else ())


def _since(view: View, first_ns: int | None) -> TimeRange:
    """Between the last movement that any witness saw and the first sample that stood still."""
    now = view.ended_ns or 0
    first = first_ns if first_ns is not None else now
    last = view.progress.last_moved(first)
    if last and last.until_ns is not None:
        earliest = last.until_ns
    else:
        # nobody saw the last movement; a call that had waited longer than its limit would have ended in a timeout
        limit = view.engine.execute_timeout_s or view.profile.execute_timeout_default_s or 0.0
        earliest = max(first - int(limit * SECOND), view.begun_ns or 0)
    return TimeRange(earliest_ns=min(earliest, first), latest_ns=first, basis="inferred")


# ---- told by the log


def _told_by_log(view: View) -> Stall | None:
    timeouts = [h for h in view.events("timeout") if h.at]
    waits = [h for h in view.events("wait") if h.at and not _starting(view, h) and not _moved_since(view, h)]
    zero = _zero_lines(view)
    if timeouts:
        # the newest incident; each is printed several times within its second
        at = timeouts[-1].at
        first = next(h for h in timeouts if h.at and at and at.earliest_ns - h.at.earliest_ns < 30 * SECOND)
        return _by_timeout(view, first, waits, zero)
    if (hang := _by_hang(view)) is not None:
        return hang
    if (collective := _by_collective(view)) is not None:
        return collective
    # lines of one moment (several fronts) are one observation
    repeated = bool(zero) and (zero[-1].until_ns or 0) - (zero[0].until_ns or 0) >= STATS_WINDOW_NS // 2
    if zero and (repeated or waits):
        since = _minus(zero[0].until_ns or 0, STATS_WINDOW_NS)
        how = f"{len(zero)} stats line(s) in a row say 0.0 tokens/s with {zero[-1].running:g} requests running"
        lasted = ((zero[-1].until_ns or 0) - since.earliest_ns) / SECOND
        # the tokens of a prompt count when its steps end: what came before says how long such steps are here, of the prompts that came
        enough_s = PROMPT_S if any(i.moved for i in view.progress.log) else PREFILL_S
        unsure = () if waits or lasted >= enough_s else ("one step over a very long prompt",)
        refs = tuple(r for i in zero for r in i.refs) + tuple(h.ref for h in waits)
        return Stall(since, _end(view), Grade.SUPPORTED if unsure else Grade.ESTABLISHED, refs, how, unsure)
    if waits and waits[0].at:
        limit = int(waits[0].fields["seconds"])
        since = _minus(waits[0].at.earliest_ns, limit * SECOND)
        refs = tuple(h.ref for h in waits)
        if waits[0].feeds == "health-endpoint-misleading":
            lasted = ((waits[-1].at or waits[0].at).earliest_ns - waits[0].at.earliest_ns) / SECOND
            how = f"the engine's own health check got no token for {limit} s {len(waits)} times, and no step was logged since"
            firm = Grade.SUPPORTED if len(waits) > 1 and lasted >= PROBED_S else Grade.POSSIBLE
            return Stall(since, _end(view), firm, refs, how, ("a prefill of that length answers as late",))
        unsure = ("a long compilation or a very long step prints the same line",)
        how = f"a ring reader waited {limit} s {len(waits)} times"
        return Stall(since, _end(view), Grade.POSSIBLE, refs, how, unsure)
    return None


PREFILL_S = 90.0
"""The step of one very long prompt may take this long, or the compilation that it sets off; a log that shows nothing else cannot tell."""
PROMPT_S = 60.0
"""The same of an engine that has served: its kernels are compiled, and a prompt longer than all before it takes a minute."""
PROBED_S = 60.0
"""Health checks that fail for longer than this, without a step between, are more than one long prefill."""
HALF_LIMIT = "sglang"
"""The engine whose watchdog looks only every half limit."""


def _by_hang(view: View) -> Stall | None:
    """The engine's own hang detector: it saw no step for its limit, while there was one to be made."""
    hangs = [h for h in view.events("hang") if h.at and h.limit_s]
    if not hangs or hangs[-1].at is None:
        return None
    newest = hangs[-1].at.earliest_ns
    first = next(h for h in hangs if h.at and newest - h.at.earliest_ns < 60 * SECOND)
    assert first.at and first.limit_s
    at = first.at.earliest_ns
    began = _minus(at, int(first.limit_s * SECOND))
    replica = re.search(r"\bDP(\d+)\b", first.process)
    steps = [i for i in view.progress.log if i.moved and i.until_ns is not None and (not replica or i.replica in (replica[1], ""))]
    moved = next((i for i in reversed(steps) if (i.until_ns or 0) <= at), None)
    late = False
    if moved and moved.until_ns is not None and began.latest_ns < moved.until_ns:
        began = TimeRange(earliest_ns=moved.until_ns, latest_ns=at, basis="inferred")
        late = (moved.until_ns - at) / SECOND + first.limit_s > STATS_WINDOW_NS / SECOND
    again = [i for i in steps if (i.until_ns or 0) > first.at.latest_ns]
    if again and first.fields.get("soft") == "True":
        return None  # it only reports, and went on: see forensics.analysis.episodes
    over = [h for h in (*view.ends, *view.events("worker-death", "stop")) if view.before(first, h)]
    # nothing more is read of it: it stands still at the end of the evidence
    until = first.at if over or again or view.replaced_ns is not None else _end(view)
    started = view.begun_ns is None or any(view.before(ready, first) for ready in view.events("ready")) or moved is not None
    ranks = sorted({h.rank for h in hangs if h.rank is not None})
    who = first.fields.get("who") or (f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "the engine")
    how = f"its own watchdog ({who}) saw no step for {duration(first.limit_s)}"
    held = [h.ref for h in view.events("held")[:1]]
    vague = ""
    if view.engine.kind == HALF_LIMIT:
        vague = f"how long before the last step was: the watchdog looks every {duration(first.limit_s / 2)}"
    unsure = () if started else ("the engine was still starting",)
    if late:  # idle time before the last step was counted, too (SGLang 0.4)
        unsure = (*unsure, "a step was logged within the limit: the watchdog may have counted time in which there was nothing to do")
    grade = Grade.SUPPORTED if unsure else Grade.ESTABLISHED
    refs = (*(h.ref for h in hangs[-8:]), *held, *(moved.refs if moved else ()))
    return Stall(began, until, grade, refs, how, unsure, vague)


ENDED = ("torch-watchdog-aborts", "torch-watchdog-terminated", "torch-heartbeat-terminates")
"""Lines by which a rank's watchdog ends its process."""


def _by_collective(view: View) -> Stall | None:
    """A collective of a plain job that did not end within its limit: it was entered, and so it is outstanding work."""
    if view.engine.kind != PLAIN:
        return None  # the ranks of an engine wait for work in collectives, too: its own witnesses are asked
    hits = [h for h in view.feeding("nccl-watchdog-timeout") if h.role == "cascade" and h.at and h.began and h.limit_s]
    if not hits or hits[-1].at is None:
        return None
    newest = hits[-1].at.earliest_ns
    told = [h for h in hits if h.at and newest - h.at.earliest_ns < 60 * SECOND]
    first = min(told, key=lambda h: h.began.earliest_ns if h.began else 0)
    assert first.at and first.began and first.limit_s
    if any(i.moved and i.since_ns is not None and i.since_ns > newest for i in view.progress.log):
        return None
    over = [h for h in view.hits_of(*ENDED) if view.before(told[0], h)] or view.ends
    ranks = sorted({h.rank for h in told if h.rank is not None})
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:16]))}{', …' * (len(ranks) > 16)}" if ranks else "a rank"
    how = f"{first.fields.get('op', 'a collective')} of {who} did not end within {duration(first.limit_s)}"
    return Stall(first.began, first.at if over else _end(view), Grade.ESTABLISHED, tuple(h.ref for h in told[:8]), how)


PLAIN = "torchrun"
"""A job of ranks without an engine that hands out the work."""


def _by_timeout(view: View, timeout: LogHit, waits: list[LogHit], zero: list[Interval]) -> Stall:
    assert timeout.at
    at = timeout.at.earliest_ns
    limit = timeout.limit_s or view.engine.execute_timeout_s or view.profile.execute_timeout_default_s or 0.0
    known = view.engine.execute_timeout_s is not None
    before = view.progress.last_moved(at)
    last = before.until_ns if before and before.until_ns is not None else view.begun_ns
    near = [h for h in waits if h.at and at - (limit + 60) * SECOND <= h.at.earliest_ns <= at]
    began = _minus(at, int(limit * SECOND))
    if not limit:
        began = TimeRange(earliest_ns=last if last is not None else at, latest_ns=at, basis="inferred")
    # the default limit is only believed when nothing moved within it (a stats line speaks of the ten seconds before it)
    elif not known and last is not None and last > began.latest_ns + STATS_WINDOW_NS:
        began = TimeRange(earliest_ns=last - STATS_WINDOW_NS if before else last, latest_ns=at, basis="inferred")
    elif not known and may_be_short(view, timeout):
        began = TimeRange(earliest_ns=began.earliest_ns, latest_ns=at - int(SHORT_LIMIT_S * SECOND), basis="inferred")
    if zero and zero[0].since_ns is not None and zero[0].until_ns is not None and zero[0].until_ns < began.earliest_ns:
        # lines without movement before that: the limit is longer than thought, or the call only the last of several
        began = TimeRange(earliest_ns=zero[0].since_ns, latest_ns=zero[0].until_ns, basis="inferred")
    if near and near[0].at:
        warned = _minus(near[0].at.earliest_ns, int(near[0].fields["seconds"]) * SECOND)
        if began.latest_ns - began.earliest_ns > 2 * SECOND and began.earliest_ns <= warned.latest_ns <= began.latest_ns:
            began = TimeRange(earliest_ns=began.earliest_ns, latest_ns=warned.latest_ns, basis="inferred")
    held = [h for h in view.events("held") if h.at and abs(h.at.earliest_ns - at) < 5 * SECOND]
    agreeing = [*(h.ref for h in near), *(r for i in zero for r in i.refs), *(h.ref for h in held if h.fields.get("running") != "0")]
    call = f"the call {timeout.fields['method']}" if timeout.fields.get("method") else "a step"
    how = f"{call} got no answer until its limit ran out"
    # an execution call is itself outstanding work, and its timeout says that no answer came
    return Stall(began, timeout.at, Grade.ESTABLISHED, (timeout.ref, *agreeing), how)


SHORT_LIMIT_S = 40.0
"""How long vLLM 0.7 and 0.8 wait for a step; 300 s since."""


def may_be_short(view: View, timeout: LogHit) -> bool:
    """Whether the log may be of a version with the shorter limit: those put no process in front of the core's lines."""
    version = re.match(r"0\.(\d+)", view.engine.version or "")
    old = int(version[1]) < 9 if version else not timeout.process
    return view.engine.kind == "vllm" and old and not timeout.limit_s


def _minus(at_ns: int, limit_ns: int) -> TimeRange:
    return TimeRange(earliest_ns=at_ns - limit_ns, latest_ns=at_ns - limit_ns + SECOND - 1, basis="inferred")


def _zero_lines(view: View) -> list[Interval]:
    """The last unbroken run of one replica's stats lines that say nothing moved with requests running, before any stop."""
    runs: dict[str, list[Interval]] = {}
    for interval in view.progress.log:
        if interval.moved or not interval.running:
            runs[interval.replica] = []
        elif not (view.stopped_ns is not None and interval.until_ns is not None and interval.until_ns > view.stopped_ns):
            runs.setdefault(interval.replica, []).append(interval)
    return max(runs.values(), key=len, default=[])


def _starting(view: View, hit: LogHit) -> bool:
    """Whether the line falls between a start and its ready line: ranks wait long for each other there."""
    return view.begun_ns is not None and not any(view.before(ready, hit) for ready in view.events("ready"))


def _moved_since(view: View, hit: LogHit) -> bool:
    """Whether the engine advanced during or after the wait that the line reports: then it was a long step and no standstill."""
    if hit.at is None:
        return False
    since = hit.at.latest_ns - int(hit.fields["seconds"]) * SECOND + STATS_WINDOW_NS
    return any(i.moved and i.since_ns and i.since_ns >= since for i in view.progress.log)


def _end(view: View) -> TimeRange | None:
    """What ended a stall that only the log tells: a stop or a restart; None while neither is seen."""
    ends = [e for e in (view.stopped_ns, view.replaced_ns) if e is not None]
    return TimeRange(earliest_ns=min(ends), latest_ns=min(ends), basis="logged") if ends else None
