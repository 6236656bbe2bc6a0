"""In which mode an engine really runs: overlapping passes or one at a time, read where each can be seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.view import View
from forensics.model import EvidenceRef, LiveValue, Role

_ASYNC_FLAG = re.compile(r"(?<!\S)--(no-)?async-scheduling\b|'async_scheduling': (True|False)")


@dataclass(frozen=True)
class Reading:
    """What one source says of asynchronous scheduling."""

    overlapping: bool
    where: str
    effective: bool
    """Read in the running engine itself, not in what it was asked for."""
    ref: EvidenceRef
    certain: bool = True
    """False of a conclusion from what is absent: another version may do the same by other means."""


def readings(view: View) -> list[Reading]:
    """Every source that says whether passes overlap, effective ones first."""
    return sorted(_readings(view), key=lambda r: (not r.effective, not r.certain))


def _readings(view: View) -> Iterator[Reading]:
    for role, where in ((Role.CORE, "the core's own object"), (Role.WORKER, "the workers' own objects")):
        pids = {(p.info.node, p.pid) for p in view.engine.processes if p.role is role}
        said = [v for v in view.of(LiveValue) if v.name == "async_scheduling" and (v.node, v.pid) in pids and not v.torn]
        for value in {v.value for v in said} & {"true", "false"}:
            yield Reading(value == "true", where, True, next(v.ref for v in said if v.value == value))
    names = view.profile.delivery_threads
    seen = [(w, view.threads_of(w)) for w in view.workers if view.threads_of(w)]
    carrying = [t for _, threads in seen for t in threads if t.name in names]
    if names and carrying:
        yield Reading(True, f'the thread "{carrying[0].name}" of its workers', True, carrying[0].last.ref)
    elif names and seen and len(seen) == len(view.workers):
        yield Reading(False, f'no worker has a thread "{names[0]}"', True, seen[0][1][0].last.ref, certain=False)
    for process in view.engine.processes:
        if process.role in (Role.API, Role.LAUNCHER) and (m := _ASYNC_FLAG.search(process.info.title)):
            ref = EvidenceRef(source="process table", locator=f"pid {process.pid}", quote=m[0])
            yield Reading(m[1] is None, "the command line", False, ref)
    for hit in view.hits_of("vllm-startup-args"):
        if m := _ASYNC_FLAG.search(hit.fields.get("args", "")):
            yield Reading(m[2] == "True" if m[2] else m[1] is None, "the log's start-up line", False, hit.ref)


def overlapping(view: View) -> tuple[bool, list[Reading]] | None:
    """(whether passes overlap, what says so), by the effective readings where they agree; None where nothing effective was read."""
    effective = [r for r in readings(view) if r.effective]
    said = {r.overlapping for r in effective}
    return (said.pop(), effective) if len(said) == 1 else None
