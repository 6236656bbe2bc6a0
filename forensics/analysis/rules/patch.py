"""Is the patch that the operator believes in live in the process, and did the failure happen all the same?"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, Grade, LogHit, LogSpan, PatchReading, Role, Severity

RUNS_CODE = (Role.API, Role.CORE, Role.WORKER, Role.COORDINATOR)
Witness = tuple[str, str, EngineProcess | None, EvidenceRef]
"""(status, how it was read, process, evidence)."""


def evaluate(view: View) -> Iterator[Finding]:
    for patch in view.case.patches:
        name = str(patch["name"])
        nodes = [n for n in view.nodes if any(fnmatch.fnmatch(n, str(p)) for p in patch.get("nodes", ["*"]))]
        if not nodes:
            continue
        witnesses = [*_by_file(view, patch, nodes), *_by_marker(view, patch, nodes)]
        for status in ("live", "absent", "stale", "unreadable"):
            if mine := [w for w in witnesses if w[0] == status]:
                yield _finding(view, name, status, mine)
        per_process = {(w[2].info.node, w[2].pid): w[0] for w in witnesses if w[2] is not None and w[0] != "unreadable"}
        said = {w[0] for w in witnesses} - {"unreadable"}
        if len(said) > 1:
            yield view.finding(
                "patch-inconsistent",
                grade(observed=True),
                title=f'Patch "{name}" is not the same everywhere: {", ".join(sorted(said))} over {len(per_process)} processes',
                because=[w[3] for s in sorted(said) for w in witnesses if w[0] == s][:6],
                severity=Severity.WARNING,
                processes=[w[2] for w in witnesses if w[2] is not None and w[0] in said],
            )
        live = [w for w in witnesses if w[0] == "live"]
        if live and said == {"live"} and (failed := _failure(view)):
            yield view.finding(
                "patch-live-and-failed",
                Grade.ESTABLISHED if failed[0].strength == 3 else Grade.SUPPORTED,
                title=f'The failure happened with patch "{name}" live: it is not sufficient against this failure',
                because=[*(w[3] for w in live[:4]), failed[1]],
                severity=Severity.WARNING,
                role=FindingRole.CONTEXT,
                does_not_show="that the patch is bad: it may still be a good change, or cure another failure",
                next_steps=["do not count quiet time since the patch as a cure"],
            )


def _by_file(view: View, patch: dict[str, Any], nodes: list[str]) -> Iterator[Witness]:
    for reading in view.of(PatchReading):
        process = view.process(reading.node, reading.pid)
        if reading.patch != patch["name"] or reading.node not in nodes or (process and process.role not in RUNS_CODE):
            continue
        wanted = {k: patch[k] for k in ("contains", "sha256", "code_sha256") if patch.get(k)}
        if not wanted:
            continue
        if reading.error and not reading.exists:
            yield "unreadable", reading.error, process, reading.ref
            continue
        present = True
        if "contains" in wanted:
            present = present and reading.contains is True
        if "sha256" in wanted:
            present = present and reading.sha256 == wanted["sha256"]
        if "code_sha256" in wanted:
            present = present and reading.function_sha256 == wanted["code_sha256"]
        late = reading.changed_ns is not None and reading.image_started_ns is not None and reading.changed_ns > reading.image_started_ns
        # a file that changed after the process started is not what the process runs, whichever way it changed
        yield ("stale" if late else "live" if present else "absent"), f"{'/'.join(wanted)} of {reading.path}", process, reading.ref


def _by_marker(view: View, patch: dict[str, Any], nodes: list[str]) -> Iterator[Witness]:
    marker = patch.get("log_marker")
    if not marker:
        return
    hits: list[LogHit] = [h for h in view.hits_of("patch-marker") if h.fields.get("patch") == patch["name"] and h.node in nodes]
    for hit in hits:
        yield "live", "log marker", view.process(hit.node, hit.pid), hit.ref
    silent = [n for n in nodes if n not in {h.node for h in hits}]
    for span in view.on_nodes(LogSpan):
        # only a log that holds its own beginning can prove that a start-up line is missing
        if span.node in silent and any(h.node == span.node and h.ref.source == span.ref.source for h in view.events("start")):
            quote = f"no line with {str(marker)[:80]!r} in this log, which holds its own start"
            yield "absent", "log marker", None, EvidenceRef(source=span.ref.source, locator="whole file", quote=quote)


def _finding(view: View, name: str, status: str, witnesses: list[Witness]) -> Finding:
    who = [w[2] for w in witnesses if w[2] is not None]
    words = {"live": "is live", "absent": "is absent", "stale": "is on disk but not live: the file changed after the process started"}
    return view.finding(
        f"patch-{status}",
        grade(observed=True),
        title=f'Patch "{name}" {words.get(status, "could not be read")} in {len(witnesses)} place(s) ({witnesses[0][1]})',
        because=[w[3] for w in witnesses[:8]],
        severity=Severity.INFO if status == "live" else Severity.WARNING,
        processes=who,
        does_not_show="what the running code object is: a file or a printed line is a witness, not the code in memory",
    )


def _failure(view: View) -> tuple[Grade, EvidenceRef] | None:
    fatal = view.events("fatal", "worker-death")
    if fatal:
        return Grade.ESTABLISHED, fatal[0].ref
    return (view.stall.grade, view.stall.because[0]) if view.stall else None


RULE = Rule(
    name="patch",
    emits=("patch-live", "patch-absent", "patch-stale", "patch-unreadable", "patch-inconsistent", "patch-live-and-failed"),
    about="Per process: whether a patch of patches.toml is what it runs, and whether the failure happened with it live.",
    any_of=("patches", "log"),
    applies=lambda view: "" if view.case.patches else "no patches.toml was given",
    evaluate=evaluate,
    false_positives="A monkeypatch at run time shows in no file.",
    references=("patches.toml, as design.md describes it",),
)
