"""One rank has entered fewer collectives than its peers: they wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._positions import Group, groups, need_witness, rank_of, stuck, timeouts
from forensics.analysis.rules._raised import worker_exceptions
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, Grade, Severity, TimeRange

WITNESS = {"ras": "NCCL's RAS counts", "recorder": "the flight recorders count", "log": "the watchdogs' own lines count"}
LAGGARDS = ("torch-desync-report", "torch-desync-never-joined", "gloo-monitored-barrier", "gloo-monitored-barrier-first")


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving:
        return
    named: set[int] = set()
    why = stuck(view)
    for group in groups(view):
        ranks = {p.rank for p in group.behind}
        if not ranks or group.pairwise or ranks & named or not (why or group.repeated):
            continue
        named |= ranks
        yield _counted(view, group, why)
    for hit in view.hits_of(*LAGGARDS):
        late = {int(r) for r in hit.fields["ranks"].replace(".", " ").replace(",", " ").split() if r.isdigit()}
        if late and not late & named:
            named |= late
            # a desync report is torch's own belief; a monitored barrier counts who came
            sure = hit.signature.startswith("gloo-monitored")
            word = "did not come to the barrier" if sure else "did not join the collective that its peers wait in"
            yield _finding(view, grade(observed=sure, agreeing=2), late, f"{word}, says torch's own check", [hit.ref], hit.began)
    if named:
        return
    need_witness(view)
    yield from _silent(view)


def _counted(view: View, group: Group, why: list[EvidenceRef]) -> Finding:
    behind, ahead = group.behind, group.ahead
    lead = max(p.count for p in ahead)
    others = []
    if not group.named:
        others.append("the lines do not name their group: the ranks may count in different ones")
    if group.mixed:
        others.append("ranks are numbered within the communicator")
    sure = grade(observed=True, alternatives=others, whole=group.whole)
    waits = next((f" in {p.pending}" for p in ahead if p.pending), "")
    state = f"{behind[0].count} operations against {lead} of {len(ahead)} other rank(s){waits} ({WITNESS[group.via]}, group {group.name})"
    refs = [*(p.ref for p in behind[:3]), *(p.ref for p in ahead[:4]), *why]
    since = [p.at for p in ahead if p.at]
    began = min(since, key=lambda t: t.earliest_ns) if since and group.via == "log" else (view.stall.since if view.stall else None)
    if group.via == "ras":
        others.append("RAS counts launches by the host: a rank that launches ahead of its turn is ahead here without being anywhere else")
    unseen = "" if group.whole else "; not every rank of the group was counted, so another one may be further behind"
    return _finding(view, sure, {p.rank for p in behind}, f"is behind: {state}", refs, began, unseen + "".join(f"; {o}" for o in others))


def _silent(view: View) -> Iterator[Finding]:
    """All but one gave up on the same operation: the one that says nothing is suspect, no more: its peers may have ended it first."""
    fired = timeouts(view)
    by_work: dict[tuple[int, str], set[int]] = {}
    for (rank, seq), hit in fired.items():
        by_work.setdefault((seq, hit.fields.get("op", "")), set()).add(rank)
    speaking = {r for s in (rank_of(h) for h in view.hits) if (r := s) is not None}
    size = view.engine.world_size
    for ranks in by_work.values():
        quiet = (set(range(size)) if size else speaking) - ranks
        if len(quiet) == 1 and len(ranks) > 1 and quiet <= speaking:
            refs = [h.ref for (rank, _), h in fired.items() if rank in ranks]
            yield _finding(view, Grade.POSSIBLE, quiet, "alone did not report the timeout that all its peers report", refs[:4], None)
            return


def _finding(
    view: View, sure: Grade, ranks: set[int], state: str, refs: list[EvidenceRef], since: TimeRange | None, more: str = ""
) -> Finding:
    who: list[EngineProcess] = [w for w in view.workers if w.rank and w.rank.rank in ranks]
    excused = [p for _, p in worker_exceptions(view) if p]
    explained = bool(who) and all(p in excused or view.stopped(p) or view.ended(p) for p in who)
    return view.finding(
        "rank-behind-in-collective",
        sure,
        title=f"Rank {', '.join(map(str, sorted(ranks)))} {state}",
        because=refs,
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE if explained else FindingRole.ROOT,
        processes=who,
        ranks=sorted(ranks),
        since=since,
        does_not_show=f"why it does not come; the ranks whose watchdogs fired are its victims{more}",
        would_settle=["a stack of that rank, or the flight recorder of every rank"],
    )


TEXTS = {
    "rank-behind-in-collective": Text(
        says="One rank has entered fewer collectives of a group than the others, which wait for it in the next one.",
        establishes="Counts of RAS, the flight recorder or the process group of all ranks of the group, unmoved.",
        lower="Supported: counts of some ranks.",
        next_steps=("look at the rank with the lowest count: it is late or gone, whoever reported the timeout",),
        over_nodes=(TOGETHER,),
        references=("NCCL user guide, RAS: replays of CUDA graphs are not counted",),
    ),
}

RULE = Rule(
    name="rank_behind",
    texts=TEXTS,
    about="One rank has entered fewer collectives of a group than the others, which wait in the next one.",
    optional=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Counts of a running job differ at any moment, and groups with send and receive never agree: neither is claimed.",
    references=("torch ProcessGroupNCCL PG status", "NCCL RAS operation counts", "torch ProcessGroupGloo monitoredBarrier"),
)
