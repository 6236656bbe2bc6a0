"""Which finding broke first, or none: symptoms and cascades never win, and what ties is not guessed."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.analysis.lives import line_number
from forensics.model import Finding, FindingRole, Grade, Root, TimeRange

SPECIFIC = (
    # the machine
    *("kernel-panic", "host-oom-kill", "ray-oom-kill", "gpu-off-bus", "pcie-aer-fatal", "gpu-hardware-failure", "gpu-nvlink-fault"),
    *("gpu-ecc-contained", "gpu-mmu-fault", "gpu-xid", "nic-lost", "rdma-port-down", "fabric-fault", "driver-alloc-failure"),
    *("host-wedge-unified-memory", "host-stopped-logging", "shm-leak-across-restarts", "shm-exhausted", "fd-exhausted"),
    *(
        "ipc-objects-removed",
        "relaunch-on-faulted-fabric",
        "interposer-deadlock",
        "gpu-oom",
        "cuda-illegal-access",
        "cuda-device-assert",
        "kernel-lockup",
        "kernel-task-blocked",
        "sigsegv",
        "native-crash",
    ),
    # a mechanism of the engine
    *("process-stopped", "bounded-queue-overflow", "lock-deadlock", "nccl-host-enqueue-deadlock", "gil-held", "queue-at-capacity"),
    *("circular-wait", "scheduler-head-of-line-unschedulable", "grammar-spec-livelock", "kv-sender-failed", "kv-transfer-peer-gone"),
    *("kv-receiver-waits-forever", "kv-transfer-not-retrieved", "kv-blocks-not-freed-after-abort", "deepep-dispatch-timeout"),
    *("control-plane-lease-lost", "healthy-engine-restarted"),
    # who, but not why: from WHO on
    *("address-in-use", "orphan-rank-from-previous-run", "comm-init-stuck", "rendezvous-peer-missing", "dp-peer-missing-from-collective"),
    *("worker-process-died", "worker-start-failed", "rank-divergence-batch", "rank-behind-in-collective"),
    *("worker-exception-swallowed", "worker-exception-fatal", "process-uninterruptible", "gpu-kernel-not-terminating"),
    *("rank-not-responding", "rank-divergence-collective", "one-rank-not-in-collective", "ray-actor-died"),
)
"""Of several claims about the same rank at the same time, the earlier in this list says more about why."""

WHO = "address-in-use"
SYMPTOMS = ("symptom-", "nccl-watchdog-timeout", "heartbeat-monitor-abort")
"""Ids, or how they begin, of what every hang produces: never a root, whatever role its rule gave it."""
LOUD = ("ray-actor-died",)
"""What may be the root, but not while anything earlier is unexplained, be it only possible."""
PEER_LOST = ("kv-transfer-peer-gone", "kv-sender-failed", "kv-receiver-waits-forever", "kv-transfer-not-retrieved")
"""Findings that say: the other side of a transfer, another engine, is where to look."""
PEER_NS = 900 * 10**9
"""How long before a peer was lost what broke it can have begun: longest limit of a transfer (480 s), and as much again."""
CONTROL = ("control-plane-lease-lost",)
ASKED_NS = 120 * 10**9
"""How long after the control plane lost it a sound engine is asked to stop."""


def choose_root(findings: Sequence[Finding]) -> Root:
    """The finding that broke first, or nothing, whatever the order of `findings`.

    Symptoms and cascades never win, and a tie between ranks is not guessed: then what ties is named as candidates.
    """
    claims = [f for f in findings if f.role is FindingRole.ROOT and not f.id.startswith(SYMPTOMS)]
    able = [f for f in claims if f.grade.strength >= Grade.SUPPORTED.strength]
    if not able:
        return Root()
    first = [f for f in able if not any(_earlier(g, f) for g in able)]
    strongest = max(f.grade.strength for f in first)
    first = sorted((f for f in first if f.grade.strength == strongest), key=_preferred)
    best = first[0]
    if best.id in LOUD and (before := [f for f in claims if f.grade is Grade.POSSIBLE and _earlier(f, best)]):
        first = [*sorted(before, key=_preferred), *first]
        return Root(candidates=_named(first))
    if any(not _one_story(best, f) for f in first):
        return Root(candidates=_named(first))
    alone = len(best.ranks) == 1
    return Root(
        finding=best.id,
        grade=best.grade,
        node=best.nodes[0] if len(best.nodes) == 1 else None,
        rank=best.ranks[0] if alone else None,
        pid=best.pids[0] if len(best.pids) == 1 else None,
        since_ns=best.since.earliest_ns if best.since else None,
        candidates=tuple(dict.fromkeys(f.id for f in first if f.id != best.id)),
    )


def _named(tied: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(f"{f.id} (rank {', '.join(map(str, f.ranks)) or '?'})" for f in tied)


def _specific(f: Finding) -> int:
    return SPECIFIC.index(f.id) if f.id in SPECIFIC else len(SPECIFIC)


def _preferred(f: Finding) -> tuple[object, ...]:
    """By how much it says; of two that say as much the one that names no rank, so that none is named by accident of order."""
    return _specific(f), bool(f.ranks), f.id, f.nodes, f.ranks, f.pids, f.since.earliest_ns if f.since else -1, f.title


def _one_story(best: Finding, other: Finding) -> bool:
    """Whether both can be the same event: at one place, of one rank as far as both name ranks; else they tie, and neither is guessed."""
    if best.nodes and other.nodes and not set(best.nodes) & set(other.nodes):
        return False
    if _specific(best) == _specific(other) and best.id != other.id:
        return False  # two ids outside the list: nobody knows which says more
    if best.ranks and other.ranks:
        return best.ranks == other.ranks
    if not best.ranks and not other.ranks and best.pids and other.pids:
        return best.pids[:1] == other.pids[:1]
    why = _specific(best) < SPECIFIC.index(WHO)
    if not why and best.pids and other.pids and not set(best.pids) & set(other.pids):
        return False
    # what names no rank says why, or it is not known to speak of the same one
    return not best.ranks or why


def _earlier(a: Finding, b: Finding) -> bool:
    """By time; of two undated ones in one file by their lines."""
    if a is b:
        return False
    if a.since and b.since:
        return a.since.before(b.since)
    first, second = a.because[0], b.because[0]
    return not a.since and not b.since and first.source == second.source and 0 < line_number(first) < line_number(second)


def of_its_peers(findings: Sequence[Finding], elsewhere: Sequence[Finding]) -> list[Finding]:
    """What broke in another engine, or on a node without one, shortly before this engine lost what it needs of others.

    That is a peer that it transfers to or from; or the control plane, which asks a sound engine to stop.
    """
    lost = [f.since for f in findings if f.id in PEER_LOST and f.since and f.grade.strength >= Grade.SUPPORTED.strength]
    asked = [f.since for f in findings if f.id == "orderly-shutdown" and f.since]
    able = [f for f in elsewhere if f.role is FindingRole.ROOT and f.since]
    peers = [f for f in able if any(_just_before(f, at, PEER_NS) for at in lost)]
    control = [f for f in able if f.id in CONTROL and any(_just_before(f, at, ASKED_NS) for at in asked)]
    return [*peers, *(f for f in control if f not in peers)]


def _just_before(f: Finding, at: TimeRange, within_ns: int) -> bool:
    return f.since is not None and 0 <= at.earliest_ns - f.since.earliest_ns <= within_ns
