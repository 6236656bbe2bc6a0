"""Ranks at different collectives, as torch's own lines, flight recorders and RAS counts tell: no stack is needed."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import grade
from forensics.analysis.rules._positions import SAME_SIZE, STATUS, Group, Position, groups, rank_of, stuck, timeouts
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, LogHit, Severity, TimeRange

ID = "rank-divergence-collective"


def by_counts(view: View) -> Iterator[Finding]:
    """At most one finding, from the most direct witness."""
    for found in (_mismatch(view), _recorded(view), _gave_up(view)):
        if found is not None:
            yield found
            return


def _mismatch(view: View) -> Finding | None:
    """torch compared what the ranks are about to run."""
    hits = view.hits_of("torch-collective-mismatch")
    if not hits:
        return None
    f = hits[0].fields
    other = f" and rank {f['other']} another one" if f.get("other") else ""
    differs = f": {' '.join(f['differs'].split())[:160]}" if f.get("differs") else ""
    ranks = [int(f["one"]), *([int(f["other"])] if f.get("other") else [])]
    title = f"Ranks run different collectives at the same step, as torch found: rank {f['one']} runs one{other}{differs}"
    return _finding(view, Grade.ESTABLISHED, title, [h.ref for h in hits[:3]], ranks, hits[0].at, FindingRole.ROOT)


def _recorded(view: View) -> Finding | None:
    """Recorders or RAS of several ranks: one waits in an operation that another one has not entered."""
    why = stuck(view)
    for group in groups(view):
        if group.via == "log" or group.pairwise or not (why or group.repeated):
            continue
        refs = [p.ref for p in group.positions.values()][:6]
        sure = grade(observed=True, alternatives=["numbered within the communicator"] * group.mixed, whole=group.whole)
        if different := _different(group):
            text = "; ".join(f"rank {p.rank} in {p.pending} number {p.pending_seq}" for p in different[:4])
            ranks = _odd(group, different) or sorted(p.rank for p in different)
            since = min((p.at for p in different if p.at), key=lambda t: t.earliest_ns, default=None) if group.via == "log" else None
            since = since or (view.stall.since if view.stall else None)
            return _finding(view, sure, f"Ranks stand at different collectives: {text}", [*refs, *why], ranks, since, FindingRole.ROOT)
        if group.behind:
            late = [p.rank for p in group.behind]
            lead = max(p.count for p in group.ahead)
            names = ", ".join(map(str, late))
            title = f"Rank {names} has not entered collective {lead} of group {group.name}, in which {len(group.ahead)} other rank(s) wait"
            since = view.stall.since if view.stall else None
            return _finding(view, sure, title, [*(p.ref for p in group.behind[:3]), *refs, *why], late, since, FindingRole.ROOT)
    return None


def _different(group: Group) -> list[Position]:
    """Ranks that wait in different operations with the same number."""
    by_seq: dict[int, dict[str, Position]] = {}
    for p in group.positions.values():
        if p.pending and p.pending_seq is not None:
            by_seq.setdefault(p.pending_seq, {}).setdefault(p.pending, p)
    return next((list(found.values()) for found in by_seq.values() if len(found) > 1), [])


def _odd(group: Group, different: list[Position]) -> list[int]:
    """The one rank of the whole group that waits in another operation than all the others, several of them; [] where none is alone."""
    if len(different) != 2 or not group.whole:
        return []
    waiting = [p for p in group.positions.values() if p.pending_seq == different[0].pending_seq]
    lone = [d for d in different if sum(p.pending == d.pending for p in waiting) == 1]
    return [lone[0].rank] if len(lone) == 1 and len(waiting) == len(group.positions) > 2 else []


def _gave_up(view: View) -> Finding | None:
    """Watchdogs of one group gave up on operations of one number that are not the same operation."""
    group_of = {(rank_of(h), h.fields.get("seq", "")): h.fields.get("guid") or h.fields.get("pg") for h in view.hits_of(*STATUS)}
    works: dict[tuple[str | None, int], list[tuple[int, LogHit]]] = {}
    for (rank, seq), hit in timeouts(view).items():
        if seq >= 0:
            works.setdefault((group_of.get((rank, str(seq))), seq), []).append((rank, hit))
    for (name, seq), ranks in works.items():
        kinds = {hit.fields.get("op", "") for _, hit in ranks}
        sizes = {hit.fields.get("numel_in", "") for _, hit in ranks}
        unequal = len(kinds) > 1 or (len(sizes) > 1 and kinds <= SAME_SIZE)
        if len(ranks) < 2 or not unequal or kinds & {"SEND", "RECV", "COALESCED"}:
            continue
        shown = "; ".join(f"rank {r} in {h.fields.get('op')} of {h.fields.get('numel_in', '?')} elements" for r, h in sorted(ranks)[:4])
        began = [h.began for _, h in ranks if h.began]
        return _finding(
            view,
            # without its group a number may belong to two different ones
            grade(observed=name is not None, agreeing=2 if name is not None else 1),
            f"Ranks stand at different collectives: at number {seq}, {shown}",
            [h.ref for _, h in ranks[:6]],
            sorted(r for r, _ in ranks),
            min(began, key=lambda t: t.earliest_ns, default=None),
            FindingRole.ROOT,
        )
    return None


def _finding(
    view: View, sure: Grade, title: str, refs: list[EvidenceRef], ranks: list[int], since: TimeRange | None, role: FindingRole
) -> Finding:
    return view.finding(
        ID,
        sure,
        title=title,
        because=refs,
        severity=Severity.CRITICAL,
        role=role,
        processes=[w for w in view.workers if w.rank and w.rank.rank in ranks],
        ranks=ranks,
        since=since,
        does_not_show="which of them is right, and why they parted",
        would_settle=["the Python stack of each rank at that collective: the flight recorder keeps it"],
    )
