"""A rank of the previous run is still there: it holds memory, a port, or the place of a new one."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, LogHit, ProcessState, Role, Severity

OLDER_S = 15.0
"""A worker that started this long before its head is not its child."""
DIES_S = 120.0
"""What is left of a run may print for this long while it is ended."""
HEADS = (Role.LAUNCHER, Role.API, Role.CORE)


def evaluate(view: View) -> Iterator[Finding]:
    reported = {p.pid for f in _by_start(view) for p in f}
    for group in _by_start(view):
        yield _older(view, group)
    for hit in _by_lines(view):
        if hit.pid not in reported:
            yield _speaks(view, hit)
    if twice := view.hits_of("nccl-rank-checked-in-twice"):
        yield view.finding(
            "orphan-rank-from-previous-run",
            grade(observed=False, agreeing=2),
            title=f"Two processes came to one rendezvous as rank {twice[0].fields['twice']} of {twice[0].fields['nranks']}",
            because=[h.ref for h in twice[:3]],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            ranks=[int(twice[0].fields["twice"])],
            since=twice[0].at,
            does_not_show="whether the second one is left over from a previous run, or was started twice",
            would_settle=["the process table of every node with start times"],
        )


def _by_start(view: View) -> list[list[EngineProcess]]:
    """Live workers of this engine's nodes that are older than its head, by engine."""
    begun = [p.info.started_ns for p in view.engine.processes if p.role in HEADS and p.info.started_ns]
    if not begun or view.past:
        return []
    limit = min(begun) - OLDER_S * SECOND
    found = []
    for engine in view.case.engines:
        if engine is not view.engine and (engine.kind != view.engine.kind or any(p.role in HEADS for p in engine.processes)):
            continue
        old = [
            w
            for w in engine.workers
            if w.info.node in view.nodes and w.info.started_ns and w.info.started_ns < limit and _lives(view, w) and not _of_a_pool(w)
        ]
        if old:
            found.append(old)
    return found


def _of_a_pool(worker: EngineProcess) -> bool:
    """Whether Ray started it: a raylet keeps processes ready, and gives an engine that begins later one of them."""
    return any("ray::" in said for said in (worker.info.title, worker.info.comm))


def _lives(view: View, worker: EngineProcess) -> bool:
    states = [s for s in view.case.of(ProcessState) if (s.node, s.pid) == (worker.info.node, worker.pid)]
    return not any(s.gone or s.state in ("Z", "X") for s in states) and worker.info.state not in ("Z", "X")


def _older(view: View, old: list[EngineProcess]) -> Finding:
    heads = [p for p in view.engine.processes if p.role in HEADS and p.info.started_ns]
    head = min(heads, key=lambda p: p.info.started_ns or 0)
    age = ((head.info.started_ns or 0) - (old[0].info.started_ns or 0)) / SECOND
    refs = [s.ref for w in old for s in view.case.of(ProcessState) if (s.node, s.pid) == (w.info.node, w.pid)][:4]
    for p in (*old[:3], head):
        said = f"pid {p.pid} started {iso(p.info.started_ns)}"
        refs.append(EvidenceRef(source="process table", locator=f"pid {p.pid} on {p.info.node}", quote=said))
    hurt = bool(view.events("start-failed", "fatal") or view.feeding("address-in-use", "rendezvous-peer-missing"))
    return view.finding(
        "orphan-rank-from-previous-run",
        grade(observed=True),
        title=f"{', '.join(view.name(w) for w in old[:4])} started {duration(age)} before this engine's head: left from a previous run",
        because=refs,
        severity=Severity.CRITICAL if hurt else Severity.WARNING,
        role=FindingRole.ROOT if hurt else FindingRole.CONTEXT,
        processes=old,
        does_not_show="whether it stands in the way of the new run: look at the GPU memory, ports and shared memory that it holds",
    )


def _by_lines(view: View) -> list[LogHit]:
    """First line in this life of each process that took its place in an earlier one, long after that was over."""
    if view.begun_ns is None:
        return []
    places = [h for h in view.every_hit if h.event == "place" and h.pid is not None]
    mine = {(h.node, h.pid) for h in places if view.lives.of(h.node, h.ref, h.at) == view.life}
    earlier = {(h.node, h.pid) for h in places if view.lives.of(h.node, h.ref, h.at) < view.life} - mine
    found: dict[tuple[str, int | None], LogHit] = {}
    for hit in view.hits:
        late = hit.at is not None and hit.at.earliest_ns > view.begun_ns + DIES_S * SECOND
        if mine and late and (hit.node, hit.pid) in earlier:
            found.setdefault((hit.node, hit.pid), hit)
    return list(found.values())


def _speaks(view: View, hit: LogHit) -> Finding:
    rank = view.rank_of(hit.node, hit.pid)
    return view.finding(
        "orphan-rank-from-previous-run",
        grade(observed=True),
        title=f"{hit.process or 'A process'} (pid {hit.pid} on {hit.node}) of the run before still prints at "
        f"{iso(hit.at.earliest_ns) if hit.at else '?'}, after this one began at {iso(view.begun_ns)}",
        because=[hit.ref],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        nodes=[hit.node],
        ranks=[rank] if rank is not None else [],
        since=hit.at,
        does_not_show="what it still holds",
        would_settle=["the process table of that node with start times"],
    )


TEXTS = {
    "orphan-rank-from-previous-run": Text(
        says="A rank of the previous run is still alive beside the present engine: it holds memory, ports, or a place in the rendezvous.",
        establishes="Start times of both, or log epochs of both.",
        lower="Supported: only one of the two was dated.",
        next_steps=(
            "end the old rank by its pid on its node, then start again",
            "a supervisor must wait until every process of the old run is gone on every node",
        ),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="orphan_rank",
    texts=TEXTS,
    about="A rank of the previous run was still alive after the present one began.",
    any_of=("process", "log"),
    evaluate=evaluate,
    false_positives="Workers that are being ended print for a while; a container that gives the same pids again names its ranks anew; "
    "a raylet's workers are older than the engine that is given them.",
    references=("NCCL bootstrap.cc bootstrapRoot", "vllm v1/executor/multiproc_executor.py parent death pipes"),
)
