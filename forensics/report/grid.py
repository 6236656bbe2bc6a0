"""The coverage grid, node × rank × source, folded so that sixty ranks that went the same way make one row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forensics.model import Coverage, CoverageCell, EngineReport, Outcome, Report
from forensics.report import view

# worst first: where two attempts at one source differ, the square shows the one that limits what may be concluded
_WORST = (
    Outcome.FAILED,
    Outcome.DENIED,
    Outcome.TIMEOUT,
    Outcome.UNSUPPORTED,
    Outcome.PARTIAL,
    Outcome.SKIPPED,
    Outcome.OK,
    Outcome.EMPTY,
    Outcome.ABSENT,
)

_MOST_PIDS = 4


@dataclass(frozen=True)
class GridRow:
    """One row: who, and one outcome per source (None where no outcome was recorded)."""

    node: str
    who: str
    detail: str
    outcomes: tuple[Outcome | None, ...]
    seen: bool = True


@dataclass(frozen=True)
class Grid:
    """One table of squares. `heading` names the engine; "" is the table of the nodes themselves."""

    heading: str
    sources: tuple[str, ...]
    rows: tuple[GridRow, ...]


def grids(report: Report) -> list[Grid]:
    """The nodes' own sources, then each engine's ranks and processes."""
    cells = view.all_cells(report)
    out = []
    owned: set[CoverageCell] = set()
    for engine in report.engines:
        mine = [c for c in engine.coverage.cells if c.rank is not None or c.pid is not None]
        if not mine and len(report.engines) == 1:
            mine = [c for c in cells if c.rank is not None or c.pid is not None]
        owned.update(mine)
        coverage = engine.coverage if engine.coverage.expected_ranks or len(report.engines) > 1 else report.coverage
        out.append(_process_grid(view.engine_words(engine), mine, coverage, engine))
    rest = [c for c in cells if c not in owned and (c.rank is not None or c.pid is not None)]
    if rest or not report.engines:
        out.append(_process_grid("processes of no recognised engine", rest, report.coverage, None))
    out.append(_node_grid([c for c in cells if c.rank is None and c.pid is None], report))
    return [g for g in out if g.rows]


def _process_grid(heading: str, cells: Iterable[CoverageCell], coverage: Coverage, engine: EngineReport | None) -> Grid:
    cells = [c for c in cells if not view.not_found(c)]
    sources = tuple(dict.fromkeys(c.source for c in cells))
    by_owner: dict[tuple[str, int | None, int | None], list[CoverageCell]] = {}
    # a rank is one row however many processes (an old and a new one) carried it; a process without a rank is its own row
    for c in cells:
        by_owner.setdefault((c.node, c.rank, None if c.rank is not None else c.pid), []).append(c)
    labels = {(p.info.node, p.pid): p.label for p in engine.processes} if engine else {}
    rows: list[tuple[str, int | None, int | None, tuple[int, ...], tuple[Outcome | None, ...]]] = []
    for (node, rank, pid), mine in by_owner.items():
        pids = tuple(sorted({c.pid for c in mine if c.pid is not None}))
        rows.append((node, rank, pid, pids, _outcomes(mine, sources)))
    rows.sort(key=lambda r: (r[0], r[1] is None, r[1] if r[1] is not None else -1, r[2] or 0))

    folded: dict[object, GridRow] = {}
    alike: dict[object, list[tuple[int, tuple[int, ...]]]] = {}
    for node, rank, pid, pids, outcomes in rows:
        if rank is None:
            label = labels.get((node, pid or 0)) or labels.get(("", pid or 0)) or f"pid {pid}"
            folded[node, pid] = GridRow(node, label, f"pid {pid}" if label != f"pid {pid}" else "", outcomes)
            continue
        members = alike.setdefault((node, outcomes), [])
        members.append((rank, pids))
        all_pids = [p for _, ps in members for p in ps]
        folded[node, outcomes] = GridRow(node, view.rank_words([r for r, _ in members]), _pid_words(all_pids), outcomes)
    out = list(folded.values())
    seen = {r[1] for r in rows if r[1] is not None}
    lost = [r for r in view.unseen_ranks(coverage) if r not in seen]
    if lost:
        out.append(GridRow("?", view.rank_words(lost), "", (), seen=False))
    return Grid(heading, sources, tuple(out))


def _pid_words(pids: list[int]) -> str:
    if len(pids) > _MOST_PIDS:
        return f"{len(pids)} pids"
    return f"pid{'s' * (len(pids) > 1)} {', '.join(map(str, pids))}" if pids else ""


def _node_grid(cells: list[CoverageCell], report: Report) -> Grid:
    cells = [c for c in cells if not view.not_found(c)]
    sources = tuple(dict.fromkeys(c.source for c in cells))
    names = dict.fromkeys((*(c.node for c in cells), *report.coverage.seen_nodes))
    rows = [GridRow(n, n, "", _outcomes([c for c in cells if c.node == n], sources)) for n in names] if sources else []
    rows += [GridRow(n, n, "", (), seen=False) for n in view.unseen_nodes(report.coverage) if n not in names]
    if report.coverage.unseen_node_count:
        count = report.coverage.unseen_node_count
        rows.append(GridRow("?", f"{count} more node{'s' * (count > 1)}, name unknown", "", (), seen=False))
    return Grid("", sources, tuple(rows))


def _outcomes(cells: list[CoverageCell], sources: tuple[str, ...]) -> tuple[Outcome | None, ...]:
    found: dict[str, Outcome] = {}
    for c in cells:
        before = found.get(c.source)
        if before is None or _WORST.index(c.outcome) < _WORST.index(before):
            found[c.source] = c.outcome
    return tuple(found.get(s) for s in sources)
