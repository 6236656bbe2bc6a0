"""Facts derived from a report that every rendering for people shares. Pure functions; no markup, no escaping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from forensics.model import (
    Coverage,
    CoverageCell,
    EngineReport,
    EvidenceRef,
    Finding,
    FindingRole,
    Grade,
    Hypothesis,
    LedgerEntry,
    Outcome,
    Phase,
    Report,
    Root,
    RuleResult,
    RuleStatus,
    Setting,
    Severity,
    TimelineEvent,
    ranges,
)
from forensics.report import times

ROLES = (FindingRole.ROOT, FindingRole.CASCADE, FindingRole.AMPLIFIER, FindingRole.TEARDOWN, FindingRole.CONTEXT)
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_STATUSES = (RuleStatus.FIRED, RuleStatus.INCONCLUSIVE, RuleStatus.ERRORED, RuleStatus.CLEAR, RuleStatus.NOT_APPLICABLE)


def rank_words(ranks: Sequence[int]) -> str:
    """ "rank 1", "ranks 0-3,7", or "" for none."""
    return f"rank{'s' * (len(set(ranks)) > 1)} {ranges(ranks)}" if ranks else ""


# ---------------------------------------------------------------------------------------------------------- coverage


def coverage_sentence(coverage: Coverage) -> str:
    """ "2 of 2 ranks, 1 of 1 nodes seen". What is not known to exist is not counted, and that is said."""
    ranks = set(coverage.expected_ranks) | set(coverage.seen_ranks)
    nodes = set(coverage.expected_nodes) | set(coverage.seen_nodes)
    count = len(nodes) + coverage.unseen_node_count
    seen = len(set(coverage.seen_ranks))
    by_rank = f"{seen} of {len(ranks)} ranks" if ranks else "no ranks known"
    if ranks and not coverage.ranks_stated:
        known = f"{seen} of {len(ranks)} known ranks" if seen < len(ranks) else f"{seen} rank{'s' * (seen != 1)}"
        by_rank = f"{known} seen, their number is not known"
    by_node = f"{len(set(coverage.seen_nodes))} of {count} nodes seen" if count else "no nodes known"
    return f"{by_rank}, {by_node}"


@dataclass(frozen=True)
class Expected:
    """Somebody who should have been looked at. rank None: the node itself; node None: nobody knows its name."""

    node: str | None
    rank: int | None
    seen: bool


def expected(coverage: Coverage, report: Report) -> Iterator[Expected]:
    """Every expected node, then every expected rank."""
    seen_nodes, seen_ranks = set(coverage.seen_nodes), set(coverage.seen_ranks)
    for node in dict.fromkeys((*coverage.expected_nodes, *coverage.seen_nodes)):
        yield Expected(node, None, node in seen_nodes)
    for _ in range(coverage.unseen_node_count):
        yield Expected(None, None, False)
    homes = {c.rank: c.node for c in coverage.cells if c.rank is not None}
    if len(report.engines) == 1:
        homes.update({p.rank.rank: p.info.node for p in report.engines[0].processes if p.rank and p.rank.rank is not None and p.info.node})
    for rank in sorted({*coverage.expected_ranks, *coverage.seen_ranks}):
        yield Expected(homes.get(rank), rank, rank in seen_ranks)


def unseen_ranks(coverage: Coverage) -> tuple[int, ...]:
    return tuple(sorted(set(coverage.expected_ranks) - set(coverage.seen_ranks)))


def unseen_nodes(coverage: Coverage) -> tuple[str, ...]:
    return tuple(n for n in coverage.expected_nodes if n not in set(coverage.seen_nodes))


def all_cells(report: Report) -> tuple[CoverageCell, ...]:
    """The cells of the report and of its engines, each once."""
    return tuple(dict.fromkeys((*report.coverage.cells, *(c for e in report.engines for c in e.coverage.cells))))


Place = tuple[str, int | None, int | None]
"""node, rank, pid"""


@dataclass(frozen=True)
class CellGroup:
    """Cells that went the same way for the same reason, so that sixty ranks or ten sources make one line."""

    outcome: Outcome
    sources: tuple[str, ...]
    reason: str
    cure: str
    places: tuple[Place, ...]

    @property
    def source(self) -> str:
        return ", ".join(self.sources)

    @property
    def who(self) -> str:
        """ "ranks 0-3 on gpu-a", "pid 17 on gpu-a", "gpu-a"; many are counted."""
        ranks = rank_words([rank for _, rank, _ in self.places if rank is not None])
        pids = [pid for _, rank, pid in self.places if rank is None and pid is not None]
        whose = [ranks, f"pid {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes" if pids else ""]
        where = names_or_count(list(dict.fromkeys(node for node, _, _ in self.places)), "nodes")
        return " and ".join(part for part in whose if part) + f" on {where}" if any(whose) else where


_MOST_NAMES = 4


def names_or_count(names: Sequence[str], what: str) -> str:
    """ "a, b", or "8 nodes" when naming them would fill the line."""
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} {what}"


def cell_groups(cells: Iterable[CoverageCell]) -> list[CellGroup]:
    """Cells worth a word (not OK, EMPTY or ABSENT without a reason), grouped; blind ones first.

    Squares of a rank that was not even found (node "?") are left out: that it was not seen is said for itself.
    """
    by_source: dict[tuple[Outcome, str, str, str], dict[Place, None]] = {}
    for c in cells:
        if c.outcome in (Outcome.OK, Outcome.EMPTY) or (c.outcome is Outcome.ABSENT and not c.reason) or not_found(c):
            continue
        by_source.setdefault((c.outcome, c.reason, c.cure, c.source), {})[c.node, c.rank, c.pid] = None
    together: dict[tuple[Outcome, str, str, tuple[Place, ...]], list[str]] = {}
    for (outcome, reason, cure, source), places in by_source.items():
        together.setdefault((outcome, reason, cure, tuple(places)), []).append(source)
    groups = [CellGroup(outcome, tuple(names), reason, cure, places) for (outcome, reason, cure, places), names in together.items()]
    return sorted(groups, key=lambda g: (not g.outcome.blind, g.outcome is Outcome.SKIPPED, g.outcome is Outcome.ABSENT))


def not_found(cell: CoverageCell) -> bool:
    """Whether this square belongs to a rank or a node of which nothing was found, not even a name."""
    return cell.node == "?" and cell.outcome is Outcome.SKIPPED


def blind_sources(report: Report) -> list[str]:
    """Names of the sources that were not read somewhere, tried ones first."""
    return list(dict.fromkeys(s for g in cell_groups(all_cells(report)) if g.outcome.blind for s in g.sources))


# ---------------------------------------------------------------------------------------------------------- findings


def is_unseen(finding: Finding) -> bool:
    """Says what nobody could see, rather than what was."""
    return finding.id.startswith("evidence-missing:") or finding.grade is Grade.NOT_ASSESSABLE


def claims(report: Report) -> list[Finding]:
    """Findings that claim something, root first, then by role, severity and grade."""
    kept = [f for f in report.findings if f.grade is not Grade.REFUTED and not is_unseen(f)]
    return sorted(kept, key=lambda f: (not is_root(f, report), ROLES.index(f.role), _SEVERITIES.index(f.severity), -f.grade.strength))


def refuted(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.grade is Grade.REFUTED]


def unseen(report: Report) -> list[Finding]:
    return [f for f in report.findings if is_unseen(f)]


def is_root(finding: Finding, report: Report) -> bool:
    """Whether this is the finding that the top-level root, or an engine's own, names."""
    roots = [(e.id, e.root) for e in report.engines] or [("", report.root)]
    return any(_named(finding, root) and finding.engine in ("", engine) for engine, root in roots)


def _named(finding: Finding, root: Root) -> bool:
    return (
        finding.id == root.finding
        and (root.rank is None or not finding.ranks or root.rank in finding.ranks)
        and (root.node is None or not finding.nodes or root.node in finding.nodes)
    )


def contradiction(finding: Finding) -> EvidenceRef | None:
    """Of a refuted finding, the observation that refutes it."""
    return next(iter((*finding.against, *finding.because)), None)


def where_words(finding: Finding) -> str:
    """ "rank 1 · pid 4243 · node1", as far as known; many pids are counted."""
    pids = f"pid {finding.pids[0]}" if len(finding.pids) == 1 else f"{len(finding.pids)} processes" if finding.pids else ""
    return " · ".join(part for part in (rank_words(finding.ranks), pids, names_or_count(finding.nodes, "nodes")) if part)


def next_steps(report: Report) -> list[str]:
    """What to do, the root's own first, each once."""
    return list(dict.fromkeys(step for f in claims(report) for step in f.next_steps))


def would_settle(report: Report) -> list[str]:
    return list(dict.fromkeys(step for f in (*claims(report), *unseen(report)) for step in f.would_settle))


# -------------------------------------------------------------------------------------------------------- hypotheses


def ledgers(report: Report) -> list[Hypothesis]:
    """Those that were asked for first, as they were asked; of several engines one after the other."""
    return sorted(report.hypotheses, key=lambda h: not h.asked)


def told_engine(report: Report) -> str:
    """Id of the engine that the verdict is about."""
    return next((e.id for e in report.engines if e.root == report.root and e.verdict == report.verdict), "")


def ledger_sides(h: Hypothesis) -> list[tuple[str, tuple[LedgerEntry, ...]]]:
    """The three columns of a ledger that hold anything, with their headings."""
    return [(name, side) for name, side in (("for", h.supporting), ("against", h.against), ("not looked at", h.unread)) if side]


# ----------------------------------------------------------------------------------------------------- configuration


def notable(engine: EngineReport) -> list[Setting]:
    """Settings of which sources disagree, then those that matter in an incident."""
    return sorted((s for s in engine.config if s.disagreement or s.risk), key=lambda s: not s.disagreement)


def stated(engine: EngineReport) -> list[Setting]:
    """What the operator set, beyond the notable."""
    return [s for s in engine.config if s.stated and s.value and not (s.disagreement or s.risk)]


def setting_words(s: Setting) -> str:
    """ "name = value (live object): why it matters; who says otherwise"."""
    value = f"{s.name} = {s.value} ({s.via})" if s.value else f"{s.name} differs among processes"
    return "; ".join(part for part in (f"{value}: {s.risk}" if s.risk else value, s.disagreement) if part)


def seen_before_words(report: Report) -> str:
    """ "seen before: 3 times, last on 2026-09-01 (fingerprint 0123456789ab)"; "" where it was not, or nobody knows."""
    seen = report.seen_before
    if seen is None or not (seen.times or seen.other_versions):
        return ""
    same = f"{_times(seen.times)}, last on {times.day(seen.last_ns)}" if seen.times else "not with these versions"
    more = f"; with other versions {_times(seen.other_versions)}, last on {times.day(seen.other_last_ns)}" if seen.other_versions else ""
    return f"seen before: {same}{more} (fingerprint {seen.fingerprint})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# ------------------------------------------------------------------------------------------------- engines and waits


def engine_words(engine: EngineReport) -> str:
    return " ".join(part for part in (engine.id, engine.kind, engine.version) if part)


def process_label(report: Report, root: Root) -> str:
    """What people call the process that the root names ("worker TP1"), or ""."""
    for engine in report.engines:
        for p in engine.processes:
            if root.pid is not None and p.pid == root.pid and (not root.node or not p.info.node or p.info.node == root.node):
                return p.label
    return ""


def role_word(finding: Finding, report: Report) -> str:
    """The part that it plays. A claim that could be the root while none is named is only a candidate."""
    if is_root(finding, report):
        return "root"
    return "candidate" if finding.role is FindingRole.ROOT else finding.role.value


def root_parts(report: Report, root: Root) -> list[str]:
    """["rank 1", "worker TP1", "pid 4243", "node1", "since 2026-09-01T10:02:00Z"], as far as known."""
    since = times.iso(root.since_ns)
    parts = (
        f"rank {root.rank}" if root.rank is not None else "",
        process_label(report, root),
        f"pid {root.pid}" if root.pid is not None else "",
        root.node or "",
        f"since {since}" if since else "",
    )
    return [part for part in parts if part]


def no_root_words(report: Report) -> str:
    """Why no root is named."""
    if report.root.candidates:
        return "not named, several claims tie: " + ", ".join(report.root.candidates)
    if report.verdict.state in ("healthy", "starting", "stopped"):
        return "none: nothing that was seen says that anything broke"
    return "not named: the evidence does not say who broke first"


def sorted_rules(rules: Iterable[RuleResult]) -> list[RuleResult]:
    return sorted(rules, key=lambda r: (_STATUSES.index(r.status), r.rule, r.engine))


def phases_of(report: Report, engine: str) -> list[Phase]:
    return [p for p in report.phases if p.engine == engine]


def phase_words(phase: Phase) -> str:
    """ "serving 29 min from 09:34:20Z"; without a length where its end was not seen."""
    lasted = f" {times.duration(phase.seconds)}" if phase.seconds is not None else ""
    return f"{phase.name}{lasted} from {times.clock(phase.since.earliest_ns)}"


def order_unknown(before: TimelineEvent, after: TimelineEvent) -> bool:
    """Whether nothing says that `before` came first: their times overlap and no common source orders them."""
    same_source = before.node == after.node and before.ref.source == after.ref.source
    return not same_source and not before.at.before(after.at)
