"""What is really loaded in each process of each engine: the table of `forensics patches`. Rules make their claims of the same readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forensics.analysis import builds, ingest, topology
from forensics.analysis.livecode import Verdict, verdict
from forensics.analysis.patched import Witness, of_patch
from forensics.analysis.rules import installed_code, monkeypatch, patch, version_skew
from forensics.analysis.run import run_rules
from forensics.analysis.view import View
from forensics.model import Build, CodeCheck, ConstantReading, EngineInstance, EngineProcess, Finding, FunctionReading, PatchReading

RULES = (patch.RULE, monkeypatch.RULE, installed_code.RULE, version_skew.RULE)


@dataclass
class Loaded:
    """One process: what each witness says of each patch, and what its functions and constants are."""

    process: EngineProcess
    name: str
    witnesses: list[tuple[str, Witness]] = field(default_factory=list)
    """(patch, witness)"""
    files: list[PatchReading] = field(default_factory=list)
    functions: list[tuple[FunctionReading, Verdict]] = field(default_factory=list)
    constants: list[ConstantReading] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int]:
        return self.process.info.node, self.process.pid


@dataclass
class Provenance:
    """One engine."""

    engine: EngineInstance
    processes: list[Loaded]
    of_nodes: list[tuple[str, Witness]]
    """(patch, witness) of a node as a whole: a line that its log does not hold."""
    findings: list[Finding]
    builds: tuple[Build, ...] = ()
    checks: list[CodeCheck] = field(default_factory=list)
    """Of installed files against their package's own record."""


def provenance(paths: Sequence[str | Path]) -> tuple[list[Provenance], list[str]]:
    """Read bundles (or folders): what they know of patches and functions, and what of them could not be read. Raises NothingToAnalyze."""
    case = ingest.read_inputs(paths)
    topology.build(case)
    return [_of_engine(View(case, engine)) for engine in case.engines], list(case.unread)


def _of_engine(view: View) -> Provenance:
    told = [(str(table["name"]), w) for table in view.case.patches for w in of_patch(view, table)]
    loaded = [Loaded(p, view.name(p)) for p in view.engine.processes]
    by_place = {one.place: one for one in loaded}
    for name, witness in told:
        if witness.process is not None:
            by_place[witness.node, witness.process.pid].witnesses.append((name, witness))
    for one in loaded:
        one.files = [r for r in view.of(PatchReading) if (r.node, r.pid) == one.place]
        one.functions = [(r, verdict(r)) for r in view.of(FunctionReading) if (r.node, r.pid) == one.place]
        one.constants = [r for r in view.of(ConstantReading) if (r.node, r.pid) == one.place]
    findings, _ = run_rules(view, RULES)
    checks = [c for c in view.on_nodes(CodeCheck) if any((c.node, pid) in by_place for pid in c.pids)]
    return Provenance(view.engine, loaded, [(name, w) for name, w in told if w.process is None], findings, builds.of_engine(view), checks)
