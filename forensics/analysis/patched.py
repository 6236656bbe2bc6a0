"""Which patch is live in which process, as each witness tells it: the file, the function in memory, a line of the log, a live value."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forensics.analysis.livecode import REPLACED, Runs, changed_since, verdict
from forensics.analysis.view import View
from forensics.model import ConstantReading, EngineProcess, EvidenceRef, FunctionReading, LogHit, LogSpan, PatchReading, Role

RUNS_CODE = (Role.API, Role.CORE, Role.WORKER, Role.COORDINATOR)
KINDS = ("file", "function", "marker", "value")
LIVE, ABSENT, STALE, UNREADABLE, NOT_THERE = "live", "absent", "stale", "unreadable", "not there"
STATUSES = (LIVE, ABSENT, STALE, UNREADABLE)
"""stale: the file changed after the process started, so it says nothing of what runs.
Besides them NOT_THERE: the process never imported the module, or holds no such object, so the question does not arise in it."""
TELLS = (LIVE, ABSENT, STALE)


@dataclass(frozen=True)
class Witness:
    """What one witness says of one patch in one process."""

    kind: str
    status: str
    how: str
    """What was looked at, and what was found instead."""
    node: str
    process: EngineProcess | None
    """None for a log line of no known process, or the lack of one on a node."""
    ref: EvidenceRef
    partly: bool = False
    """It may be otherwise: of a value, in objects that were not found or rightly differ; of a file, elsewhere than it was looked for."""


def of_patch(view: View, patch: dict[str, Any]) -> list[Witness]:
    """Every witness of one table of patches.toml, kinds in their order."""
    nodes = [n for n in view.nodes if any(fnmatch.fnmatch(n, str(p)) for p in patch.get("nodes", ["*"]))]
    if not nodes:
        return []
    found = [*_by_file(view, patch), *_by_function(view, patch), *_by_marker(view, patch, nodes), *_by_value(view, patch)]
    return [w for w in found if w.node in nodes and (w.process is None or w.process.role in RUNS_CODE)]


def _words(patch: dict[str, Any], *keys: str) -> dict[str, tuple[str, ...]]:
    """What the patch states under these keys; one text or several of which any will do."""
    found = {key: patch[key] for key in keys if patch.get(key)}
    return {key: tuple(map(str, value)) if isinstance(value, list) else (str(value),) for key, value in found.items()}


def _by_file(view: View, patch: dict[str, Any]) -> Iterator[Witness]:
    wanted = _words(patch, "contains", "sha256", "source_sha256")
    if not wanted:
        return
    for reading in view.of(PatchReading):
        if reading.patch != patch["name"]:
            continue
        process = view.process(reading.node, reading.pid)
        if reading.error and not reading.exists:
            yield Witness("file", UNREADABLE, reading.error, reading.node, process, reading.ref)
            continue
        late = reading.changed_ns is not None and reading.image_started_ns is not None and reading.changed_ns > reading.image_started_ns
        # a file that changed after the process started is not what the process runs, whichever way it changed
        status = STALE if late else LIVE if _holds(patch, reading) else ABSENT
        how = f"{'/'.join(wanted)} of {reading.path}" if reading.path else "no such file was found where its modules usually lie"
        yield Witness("file", status, how, reading.node, process, reading.ref, partly=not reading.exists)


def _holds(patch: dict[str, Any], reading: PatchReading) -> bool:
    """Whether the file has the patch as it lies there now."""
    wanted = _words(patch, "contains", "sha256", "source_sha256")
    found = {"contains": reading.contains is True, "sha256": reading.sha256, "source_sha256": reading.function_sha256}
    return all(found[key] is True if key == "contains" else found[key] in values for key, values in wanted.items())


def _by_function(view: View, patch: dict[str, Any]) -> Iterator[Witness]:
    name = f"{patch.get('module')}.{patch.get('function')}"
    hashes = _words(patch, "code_sha256").get("code_sha256", ())
    stated = bool(_words(patch, "contains", "sha256", "source_sha256"))
    in_files = {(r.node, r.pid): _holds(patch, r) for r in view.of(PatchReading) if stated and r.patch == patch["name"] and r.exists}
    for reading in view.of(FunctionReading):
        if f"{reading.module}.{reading.function}" != name:
            continue
        process, told = view.process(reading.node, reading.pid), verdict(reading)
        where = f"{reading.function} runs {told.where or told.runs.value}"
        file = in_files.get((reading.node, reading.pid))
        status = ""
        if told.runs in (Runs.NOT_IMPORTED, Runs.UNREADABLE):
            status, where = (NOT_THERE, where) if told.runs is Runs.NOT_IMPORTED else (UNREADABLE, told.why)
        elif hashes and any(link.sha256 in hashes for link in reading.chain):
            status = LIVE
        elif hashes and reading.chain and not all(link.sha256 for link in reading.chain):
            status, where = UNREADABLE, reading.error
        elif hashes or told.runs in (*REPLACED, Runs.NOT_THERE):
            status = ABSENT
        elif told.runs is Runs.AS_ON_DISK and file is not None and not changed_since(reading):
            status = LIVE if file else ABSENT  # memory holds what the file says
        elif told.runs is Runs.STALE and file:
            status = ABSENT  # the file has it now, and memory holds something else
        if status:
            yield Witness("function", status, where, reading.node, process, reading.ref)


def _by_marker(view: View, patch: dict[str, Any], nodes: list[str]) -> Iterator[Witness]:
    marker = patch.get("log_marker")
    if not marker:
        return
    hits: list[LogHit] = [h for h in view.hits_of("patch-marker") if h.fields.get("patch") == patch["name"] and h.node in nodes]
    for hit in hits:
        yield Witness("marker", LIVE, "log marker", hit.node, view.process(hit.node, hit.pid), hit.ref)
    silent = [n for n in nodes if n not in {h.node for h in hits}]
    for span in view.on_nodes(LogSpan):
        # only a log that holds its own beginning can prove that a start-up line is missing
        if span.node in silent and any(h.node == span.node and h.ref.source == span.ref.source for h in view.events("start")):
            quote = f"no line with {str(marker)[:80]!r} in this log, which holds its own start"
            ref = EvidenceRef(source=span.ref.source, locator="whole file", quote=quote)
            yield Witness("marker", ABSENT, "log marker", span.node, None, ref)


def _by_value(view: View, patch: dict[str, Any]) -> Iterator[Witness]:
    for reading in view.of(ConstantReading):
        if reading.patch != patch["name"]:
            continue
        process, what = view.process(reading.node, reading.pid), f"{reading.object} = {reading.words}"
        if reading.status == "not-imported":
            yield Witness("value", NOT_THERE, "the module is not imported", reading.node, process, reading.ref)
        elif reading.status != "read":
            status = NOT_THERE if reading.status == "not-there" else UNREADABLE
            yield Witness("value", status, reading.error or f"no {reading.object}", reading.node, process, reading.ref)
        elif reading.asked:
            # objects of one class may rightly differ (a reader waits, a writer does not): one that has the value shows the patch at work
            status, partly = LIVE if any(reading.equal) else ABSENT, reading.searched and not all(reading.equal)
            yield Witness("value", status, what, reading.node, process, reading.ref, partly)


def nowhere(witnesses: Iterable[Witness]) -> list[Witness]:
    """Witnesses of each kind that no process has: the module or the name that the patch states may be misspelt."""
    found = list(witnesses)
    return [w for w in found if all(v.status == NOT_THERE for v in found if v.kind == w.kind)]


def disagreements(witnesses: Iterable[Witness]) -> list[tuple[str, list[Witness]]]:
    """(in words, the witnesses) of every contradiction: between processes by one kind of witness, between witnesses of one process."""
    telling = [w for w in witnesses if w.status in TELLS]
    found = []
    for kind in KINDS:
        mine = [w for w in telling if w.kind == kind]
        if len({w.status for w in mine}) > 1:
            told = "; ".join(f"{s} in {_who(w for w in mine if w.status == s)}" for s in STATUSES if any(w.status == s for w in mine))
            found.append((f"{kind}: {told}", mine))
    # what is said of a node as a whole is held against everything that is said of its processes
    whole = {w.node for w in telling if w.process is None}
    places: dict[tuple[str, int], list[Witness]] = {}
    for w in telling:
        places.setdefault((w.node, 0 if w.node in whole or w.process is None else w.process.pid), []).append(w)
    split: dict[str, list[Witness]] = {}
    for mine in places.values():
        by_kind = {kind: sorted({w.status for w in mine if w.kind == kind}) for kind in KINDS if any(w.kind == kind for w in mine)}
        if len({tuple(statuses) for statuses in by_kind.values()}) > 1:
            split.setdefault(", ".join(f"{kind} {' and '.join(said)}" for kind, said in by_kind.items()), []).extend(mine)
    found += [(f"its witnesses disagree in {_who(mine)}: {told}", mine) for told, mine in split.items()]
    return found


def _who(witnesses: Iterable[Witness]) -> str:
    names = []
    for w in witnesses:
        if w.process is None:
            names.append(w.node)
        elif w.process.rank and w.process.rank.rank is not None:
            names.append(f"rank {w.process.rank.rank}")
        else:
            names.append(f"{w.process.label or w.process.role.value} (pid {w.process.pid})")
    names = list(dict.fromkeys(names))
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
