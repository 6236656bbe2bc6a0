"""Do all parts of one engine run the same builds of the engine, torch, NCCL and the driver?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from forensics.analysis.builds import Has, readings
from forensics.analysis.coverage import gap
from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, LogHit, Role, Severity, ranges

RUNS = (Role.API, Role.CORE, Role.WORKER, Role.COORDINATOR)
"""A launcher only starts others."""
SHARED = ("torch", "nccl", "rccl", "cudart", "driver", "nvidia.ko")
DIRECT = ("metadata", "maps", "kernel")
NODES_NAMED = 4
MISMATCH = ("nccl-version-mismatch", "nccl-ras-version-mismatch")


@dataclass
class _Group:
    """Parts of the engine that were told alike of one component."""

    via: str
    """direct | packages | log"""
    versions: frozenset[str]
    ids: frozenset[str]
    having: list[Has] = field(default_factory=list)

    def other_than(self, other: _Group) -> bool:
        """Whether the two share no version; of one version, no build. A process may hold two versions: one in common is no skew."""
        if self.via != other.via:  # what follows "+" is told by some sources only
            mine, theirs = ({v.partition("+")[0] for v in g.versions} for g in (self, other))
            return bool(mine and theirs) and not mine & theirs
        if not self.versions & other.versions and self.versions and other.versions:
            return True
        return bool(self.ids and other.ids) and not self.ids & other.ids


def evaluate(view: View) -> Iterator[Finding]:
    everybody = [h for h in readings(view) if h.process is None or h.process.role in RUNS]
    skewed = False
    for component in dict.fromkeys(h.component for h in everybody):
        package = component.partition("/")[0]
        if package in view.profile.packages or package in SHARED or component.startswith("libtorch"):
            groups = _groups([h for h in everybody if h.component == component])
            # the surest pair speaks for the component
            pairs = sorted((p for p in combinations(groups, 2) if p[0].other_than(p[1])), key=lambda p: -_grade(*p).strength)
            if pairs:
                skewed = True
                yield _finding(view, component, pairs[0])
    for hit in view.hits_of(*MISMATCH)[:1]:
        skewed = True
        yield _told(view, hit)
    if not skewed:
        _all_clear(view, everybody)


def _groups(having: list[Has]) -> list[_Group]:
    """By what is known of each process (of a log that names none: of each node), those told alike together."""
    parts: dict[tuple[str, str, int | None], list[Has]] = {}
    for h in having:
        via = "direct" if h.via in DIRECT else h.via
        parts.setdefault((via, h.node, h.process.pid if h.process and via != "log" else None), []).append(h)
    groups: dict[tuple[str, frozenset[str], frozenset[str]], _Group] = {}
    for (via, _, _), mine in parts.items():
        key = via, frozenset(h.version for h in mine if h.version), frozenset(h.build_id for h in mine if h.build_id)
        groups.setdefault(key, _Group(*key)).having.extend(mine)
    return list(groups.values())


def _grade(one: _Group, other: _Group) -> Grade:
    """A replaced file does not tell what runs, nor does a folder's name; a log line is the process's word, not the build itself."""
    if any(g.via == "packages" or all(h.stale for h in g.having) for g in (one, other)):
        return Grade.POSSIBLE
    return Grade.ESTABLISHED if all(any(h.sure for h in g.having) for g in (one, other)) else Grade.SUPPORTED


def _finding(view: View, component: str, pair: tuple[_Group, _Group]) -> Finding:
    builds = bool(pair[0].versions & pair[1].versions)
    where = "; ".join(f"{_what(g, builds)} on {_who(g)}" for g in pair)
    names = any(g.via == "packages" for g in pair)
    weak = "names of installed packages alone were read" if names else "files were replaced after the start"
    return view.finding(
        "version-skew",
        _grade(*pair),
        title=f"{component} is not the same in all parts of the engine: {where}",
        because=[h.ref for g in pair for h in sorted(g.having, key=lambda h: not h.sure)[:4]],
        severity=Severity.WARNING,
        processes=_processes(pair),
        nodes=dict.fromkeys(h.node for g in pair for h in g.having if h.node),
        does_not_show="that the difference is at fault" + (f"; what runs: {weak}" if _grade(*pair) is Grade.POSSIBLE else ""),
    )


def _processes(pair: tuple[_Group, _Group]) -> list[EngineProcess]:
    found = {(h.node, h.process.pid): h.process for g in pair for h in g.having if h.process is not None}
    return list(found.values())


def _what(group: _Group, builds: bool) -> str:
    return f"{' and '.join(sorted(group.versions))}{' build ' + ' and '.join(i[:12] for i in sorted(group.ids)) if builds else ''}".strip()


def _who(group: _Group) -> str:
    ranks = {h.process.rank.rank for h in group.having if h.process and h.process.rank and h.process.rank.rank is not None}
    named = list(dict.fromkeys(h.node for h in group.having if h.node))
    nodes = ", ".join(named[:NODES_NAMED]) + (f" and {len(named) - NODES_NAMED} more" if len(named) > NODES_NAMED else "")
    return f"rank{'s' * (len(ranks) > 1)} {ranges(sorted(ranks))} ({nodes})" if ranks else nodes


def _told(view: View, hit: LogHit) -> Finding:
    """NCCL itself compares the versions of its peers: when ranks meet, which then fails, and between its helpers (RAS)."""
    met, fields = hit.signature == MISMATCH[0], hit.fields
    failed = met and bool(view.feeding("worker-start-failed") or view.events("start-failed"))
    return view.finding(
        "version-skew",
        Grade.ESTABLISHED,
        title=f"NCCL found another version of itself on the other side: {fields['one_version']} and {fields['other_version']}",
        because=[hit.ref],
        severity=Severity.CRITICAL if failed else Severity.WARNING,
        role=FindingRole.ROOT if failed else FindingRole.CONTEXT,
        ranks=[int(fields[k][:9]) for k in ("one", "other") if k in fields],
        since=hit.at,
        next_steps=["install the same NCCL everywhere (python -c 'import torch; print(torch.cuda.nccl.version())')"],
    )


def _all_clear(view: View, everybody: list[Has]) -> None:
    """Raise unless the engine's own build was read of every process."""
    own = view.profile.packages[:1]
    read = {(h.node, h.process.pid) for h in everybody if h.sure and h.process and h.component in own}
    if unread := [p for p in view.engine.processes if p.role in RUNS and (p.info.node, p.pid) not in read]:
        raise CannotTell(f"the build that {view.name(unread[0])} runs was not read", "builds")
    if not read or not view.coverage.complete:
        raise CannotTell(gap(view.coverage) or "no build was read", "builds")


def applies(view: View) -> str:
    if len([p for p in view.engine.processes if p.role in RUNS]) > 1 or len(view.nodes) > 1 or (view.engine.world_size or 0) > 1:
        return ""
    return "the engine is one process, as far as is known"


TEXTS = {
    "version-skew": Text(
        says=(
            "Parts of one engine run different builds of the engine, torch, NCCL or the driver. That the difference is at fault is not "
            "said."
        ),
        establishes="Two versions or build ids read in processes of the same engine, or NCCL's own comparison.",
        lower="Supported: a log line is one of the two witnesses. Possible: a file was replaced later, or only names were read.",
        next_steps=("install the same build everywhere before looking further",),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="version_skew",
    texts=TEXTS,
    about="Parts of one engine run different builds of the engine, torch, NCCL or the driver.",
    any_of=("builds", "log"),
    applies=applies,
    evaluate=evaluate,
    false_positives="Another engine on the same host is another engine: builds are compared within one. Logs of two runs in one folder.",
    references=("NCCL src/init.cc initTransportsRank, src/ras/ras.cc", "vLLM distributed/device_communicators/pynccl.py"),
)
