"""/dev/shm ran full; and whether it is full of what earlier starts of the same pod left there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.lives import line_number
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, outlived, part, troubles
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import (
    ContainerStatus,
    FileSystemUse,
    Finding,
    FindingRole,
    Grade,
    LogHit,
    Severity,
    ShmSegment,
    TimeRange,
)

FULL = 0.99
BELOW = 3
"""Lines from a refusal of CUDA to NCCL's own word on the segment."""
SHARE = 0.10
"""Leftovers below this part of the file system did not fill it."""
_KNOWN = re.compile(r"^(?:nccl-|psm_|sem\.|torch_|sgl_|sglang_|vllm|mp-|wnsm_|cuda\.shm|ray|plasma|nvshmem|ucx|trtllm)")


def evaluate(view: View) -> Iterator[Finding]:
    uses = [f for f in view.on_nodes(FileSystemUse) if f.mount == "/dev/shm" and f.total_bytes]
    full = [
        f for f in uses if (f.available_bytes == 0 if f.available_bytes is not None else (f.used_bytes or 0) >= FULL * (f.total_bytes or 1))
    ]
    told = [h for h in view.feeding("shm-exhausted") if not (h.at and outlived(view, h.at))]
    failed = [h for h in told if h.role == "root" and not _by_cuda(view, h)]
    # without the errno a segment may have failed for another reason
    exact = [h for h in failed if "No space" in h.fields.get("what", "")]
    if failed or (full and not view.moving):
        yield _exhausted(view, failed, exact, told, full)
    yield from _leaks(view, uses, full, failed)


def _by_cuda(view: View, hit: LogHit) -> bool:
    """Whether CUDA refused the segment that had been made: NCCL then says the same words, and no errno, just below."""
    if "No space" in hit.fields.get("what", ""):
        return False
    refused = [h for h in view.hits_of("nccl-cuda-failure", "cuda-failure-nccl") if (h.node, h.ref.source) == (hit.node, hit.ref.source)]
    return any(0 < line_number(hit.ref) - line_number(h.ref) <= BELOW for h in refused)


def _exhausted(view: View, failed: list[LogHit], exact: list[LogHit], told: list[LogHit], full: list[FileSystemUse]) -> Finding:
    first = next((h for h in failed if h.at), failed[0] if failed else None)
    at = first.at if first else None
    role = part(view, at) if first else FindingRole.AMPLIFIER
    size = f" ({(full[0].total_bytes or 0) / 2**30:.1f} GiB, all used)" if full else ""
    path = next((h.fields["path"] for h in failed if h.fields.get("path")), "")
    level = Grade.ESTABLISHED if exact or (failed and full) else Grade.SUPPORTED
    return view.finding(
        "shm-exhausted",
        level,
        title=f"/dev/shm is full{size}" + (f": {path} could not be made" if path else ""),
        because=[*(h.ref for h in (*exact, *failed, *told)[:6]), *(f.ref for f in full[:2])],
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys([*(h.node for h in failed), *(f.node for f in full)])),
        since=at,
        does_not_show="who filled it" if failed else "that anything failed for it",
        would_settle=["ls -l /dev/shm with times and owners"],
    )


def _leaks(view: View, uses: list[FileSystemUse], full: list[FileSystemUse], failed: list[LogHit]) -> Iterator[Finding]:
    segments = [s for s in view.on_nodes(ShmSegment) if s.changed and _KNOWN.match(s.name.rsplit("/", 1)[-1])]
    for node in dict.fromkeys(s.node for s in segments):
        containers = [c for c in _containers(view, node) if c.restarts]
        started = _started(view, node, containers)
        if started is None:
            continue
        old = [s for s in segments if s.node == node and s.changed and s.changed.latest_ns < started.earliest_ns]
        again = bool(containers) or view.life > 1
        total = max((f.total_bytes or 0 for f in uses if f.node == node), default=0)
        size = sum(s.size_bytes for s in old)
        if not old or not again:
            continue
        first: TimeRange | None = min((s.changed for s in old if s.changed), key=lambda t: t.earliest_ns)
        mine = [h for h in failed if h.node == node]
        filled = bool(mine or any(f.node == node for f in full)) and (not total or size >= SHARE * total)
        blamed = filled and bool(mine) and (bool(troubles(view)) or not view.engine.processes or grave(part(view, mine[0].at)))
        times = f"after {containers[0].restarts} restarts" if containers else "after a restart"
        yield view.finding(
            "shm-leak-across-restarts",
            Grade.ESTABLISHED,
            title=f"/dev/shm of {node} holds {len(old)} segments ({size / 2**20:.0f} MiB) from before the present start, {times}",
            because=[*(s.ref for s in old[:6]), *(c.ref for c in containers[:2]), *(f.ref for f in full[:1] if f.node == node)],
            severity=Severity.CRITICAL if blamed else Severity.WARNING,
            role=FindingRole.ROOT if blamed else FindingRole.AMPLIFIER if filled else FindingRole.CONTEXT,
            nodes=[node],
            since=first,
            does_not_show=f"why the earlier run ended without removing them; the present one began at {iso(started.earliest_ns)}",
            next_steps=[
                "delete the pod, not only the container: its /dev/shm lives as long as the pod",
                "clear /dev/shm in the start script",
            ],
        )


def _containers(view: View, node: str) -> list[ContainerStatus]:
    """The container's status: a file that names no node speaks of the only one that has segments."""
    known = view.case.of(ContainerStatus)
    holders = {s.node for s in view.case.of(ShmSegment)}
    return [c for c in known if c.node == node or (c.node not in {n for e in view.case.engines for n in e.nodes} and holders == {node})]


def _started(view: View, node: str, containers: list[ContainerStatus]) -> TimeRange | None:
    starts = [c.started for c in containers if c.started]
    if starts:
        return max(starts, key=lambda t: t.earliest_ns)
    if view.begun_ns is None or node not in view.nodes:
        return None
    return TimeRange(earliest_ns=view.begun_ns, latest_ns=view.begun_ns, basis="logged")


TEXTS = {
    "shm-exhausted": Text(
        says="Shared memory ran out.",
        establishes="An allocation of shared memory that failed, or /dev/shm full by its own figures at that time.",
        next_steps=(
            "df /dev/shm and ls -l /dev/shm before the restart: the names tell whose segments they are",
            "give the container a larger /dev/shm (--shm-size, or an emptyDir of medium Memory)",
        ),
    ),
    "shm-leak-across-restarts": Text(
        says="Segments that earlier runs left behind fill shared memory.",
        establishes="Segments whose makers are gone, older than the present start.",
        lower="Supported: their makers are not known.",
        next_steps=("remove segments that no process has mapped (lsof or /proc/*/maps first)",),
    ),
}

RULE = Rule(
    name="shm",
    texts=TEXTS,
    about="Shared memory of the host or container ran out, and of what.",
    any_of=("log", "memory"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A full disk has the same errno: only paths of shared memory count. /dev/shm of a host holds others' segments.",
    references=("NCCL src/misc/shmutils.cc", "pytorch aten/src/ATen/MapAllocator.cpp"),
)
