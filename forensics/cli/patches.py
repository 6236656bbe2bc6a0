"""forensics patches: what is really loaded in each process.

Exit status:
  0  every witness could be read
  3  something could not be read; it is named
  4  no such process, or no engine
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forensics.cli import complain

if TYPE_CHECKING:
    from forensics.analysis.patched import Witness
    from forensics.analysis.provenance import Loaded, Provenance
    from forensics.model import CodeCheck

SCHEMA = "forensics.patches/1"
OK, INCOMPLETE, NOTHING = 0, 3, 4


def patches_command(
    *, pids: tuple[int, ...] = (), patches: Path | None = None, functions: tuple[str, ...] = (), fmt: str = "terminal", show: bool = False
) -> int:
    """Read every process (or the engines of `pids`), print one table an engine.

    `functions`: further ones, as "module:Class.method". `show`: print hashes and places as they were read, ready for patches.toml.
    """
    from forensics.analysis.provenance import provenance
    from forensics.capture.discovery import discover
    from forensics.capture.options import read_patches

    asked = [name.partition(":") for name in functions]
    if fmt not in ("terminal", "json"):
        complain(f"there is no format {fmt!r}", "choose terminal or json")
        return 2
    if any(not module or not name for module, _, name in asked):
        complain("a function is named as module:Class.method", "--function vllm.v1.engine.core:EngineCore.step")
        return 2
    text, tables = read_patches(patches)
    found = discover(pids=pids)
    if missing := [pid for pid in pids if pid not in found.pids]:
        complain(f"no process {', '.join(map(str, missing))} on {found.node}", "see which processes there are with `forensics doctor`")
        return NOTHING
    if not found.engines:
        complain(f"no engine: looked for {', '.join(found.looked_for)}", "name a process with --pid")
        return NOTHING
    with tempfile.TemporaryDirectory(prefix="forensics-patches-") as folder:
        path, blind = _look(Path(folder), found, text, tables, [{"module": module, "function": name} for module, _, name in asked])
        engines, unread = provenance([path])
        blind += unread
    if fmt == "json":
        sys.stdout.write(json.dumps(as_json(engines, blind), indent=2, ensure_ascii=True) + "\n")
    else:
        _print(line for engine in engines for line in lines(engine, show or bool(asked)))
        _print(f"not read: {line}" for line in blind)
    return INCOMPLETE if blind else OK


def _look(folder: Path, found: Any, text: str, tables: list[dict[str, Any]], functions: list[dict[str, str]]) -> tuple[Path, list[str]]:
    """Run the collectors into a bundle of their own. Returns its path and what could not be read."""
    from forensics.capture.plan import Step, make_plan, request
    from forensics.capture.runner import Runner
    from forensics.cli.collect import Writer

    wanted = ["patches", "builds", *(["rpclogs"] if any(table.get("log_marker") for table in tables) else [])]
    plan = make_plan(found, "standard", patches=tables)
    options = {step.collector: step.options for step in plan.later}
    declared = [*options["patches"].get("functions", ()), *functions]
    options["patches"] = {**options["patches"], "functions": declared, "compare": True}
    sink = Writer(folder, "loaded", found, say=False)
    if text:
        sink.add("patches/patches.toml", "patches-toml", text)
    runner = Runner(sink)
    try:
        for name in wanted:
            step = Step(name, deadline_s=120.0, options=options.get(name, {}))
            runner.start(step, request(step, found))
        while runner.busy:
            runner.turn(0.2)
    finally:  # Ctrl-C: the children must not stay behind
        runner.abort("interrupted")
        runner.close()
    return sink.seal(), sink.blind_targets


def lines(engine: Provenance, show: bool) -> Iterator[str]:
    """The table of one engine for people."""
    from forensics.analysis.patched import RUNS_CODE
    from forensics.report.buildwords import build_words, check_words

    yield f"{engine.engine.id}: {engine.engine.kind} on {', '.join(engine.engine.nodes)}"
    yield from (f"  {build_words(build)}" for build in engine.builds)
    yield from (f"  {line}" for check in engine.checks for line in check_words(check))
    rows = [(one.name, name, witness) for one in engine.processes for name, witness in one.witnesses]
    rows += [(f"node {witness.node}", name, witness) for name, witness in engine.of_nodes]
    for patch in dict.fromkeys(name for _, name, _ in rows):
        yield f"  patch {patch}"
        mine = [(who, witness) for who, name, witness in rows if name == patch]
        for who in dict.fromkeys(who for who, _ in mine):
            said = "  ".join(dict.fromkeys(f"{w.kind}: {w.status}" for each, w in mine if each == who))
            yield f"    {who:<44} {said}"
        for (kind, status), how in _how(mine).items():
            yield f"      {kind} {status}: {how}"
    for one in (one for one in engine.processes if one.process.role in RUNS_CODE):
        for reading, told in one.functions:
            if show or told.runs.name in ("OTHER_FILE", "DIFFERS"):
                place = f" ({told.where})" if told.where else ""
                name = f"{reading.module}:{reading.function}"
                yield f"  {one.name}: {name} runs {told.runs.value}{place}" + (f" [{told.why}]" if told.why else "")
                if show and told.place:
                    yield f'      code_sha256 = "{told.place.sha256}"  # CPython {reading.python}'
        for constant in one.constants:
            if show:
                yield f"  {one.name}: {constant.object} = {constant.words or constant.error or constant.status}"
        for file in one.files:
            if show and file.exists:
                yield f'  {one.name}: {file.path}  sha256 = "{file.sha256}"' + (
                    f'  source_sha256 = "{file.function_sha256}"' if file.function_sha256 else ""
                )
    for finding in engine.findings:
        yield f"  {finding.id} ({finding.grade.value}): {finding.title}"
    if not any(one.functions or one.files or one.constants for one in engine.processes):
        yield "  no code was read: no patches.toml was given, and no function is declared for this kind of engine (--function names one)"


def _how(mine: list[tuple[str, Witness]]) -> dict[tuple[str, str], str]:
    """What each kind of witness went by, where it is not plainly live."""
    return {(w.kind, w.status): w.how for _, w in mine if w.status != "live" or w.kind == "value"}


def as_json(engines: list[Provenance], blind: list[str]) -> dict[str, Any]:
    """The whole as plain JSON (forensics.patches/1)."""
    return {"schema": SCHEMA, "engines": [_engine(engine) for engine in engines], "not_read": blind}


def _engine(engine: Provenance) -> dict[str, Any]:
    from forensics.report.json import build_record

    return {
        "id": engine.engine.id,
        "kind": engine.engine.kind,
        "nodes": list(engine.engine.nodes),
        "processes": [_process(one) for one in engine.processes],
        "builds": [build_record(build) for build in engine.builds],
        "installed": [_installed(check) for check in engine.checks],
        "of_nodes": [{"patch": name, "node": w.node, "kind": w.kind, "status": w.status, "how": w.how} for name, w in engine.of_nodes],
        "findings": [
            {"id": f.id, "grade": f.grade.value, "title": f.title, "ranks": list(f.ranks), "pids": list(f.pids)} for f in engine.findings
        ],
    }


def _installed(check: CodeCheck) -> dict[str, Any]:
    kinds = {"modified": check.modified, "missing": check.missing, "added": check.added}
    return {
        "distribution": check.distribution,
        "version": check.version,
        "folder": check.folder,
        "node": check.node,
        "pids": list(check.pids),
        "named": check.named,
        "compared": check.hashed,
        "sources": check.sources,
        "sources_compared": check.sources_hashed,
        **{what: [f.path for f in files] for what, files in kinds.items()},
        "cut": check.cut or None,
    }


def _process(one: Loaded) -> dict[str, Any]:
    rank = one.process.rank
    return {
        "node": one.process.info.node,
        "pid": one.process.pid,
        "rank": rank.rank if rank else None,
        "role": one.process.role.value,
        "label": one.process.label,
        "witnesses": [{"patch": name, "kind": w.kind, "status": w.status, "how": w.how} for name, w in one.witnesses],
        "functions": [
            {
                "module": r.module,
                "function": r.function,
                "runs": v.runs.name.lower().replace("_", "-"),
                "file": v.place.file if v.place else None,
                "line": v.place.line if v.place else None,
                "code_sha256": v.place.sha256 if v.place else None,
                "python": r.python,
                "grade": v.grade.value,
                "why": v.why,
            }
            for r, v in one.functions
        ],
        "constants": [{"patch": c.patch, "object": c.object, "values": list(c.values), "why": c.error} for c in one.constants],
        "files": [{"patch": f.patch, "path": f.path, "sha256": f.sha256, "source_sha256": f.function_sha256} for f in one.files],
    }


def _print(found: Iterator[str]) -> None:
    from forensics.report.safe import visible
    from forensics.report.terminal import encodable

    for line in found:
        sys.stdout.write(encodable(visible(line), sys.stdout.encoding or "ascii") + "\n")
