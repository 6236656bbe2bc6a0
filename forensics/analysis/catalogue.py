"""Every finding id that there is, by family, with the rule that makes it. Ids are stable for ever; none is reused.

What an id means stands beside its rule. Here stand only the list, and the ids that no rule makes yet, with the reason. Whether
an id is implemented is never written down: it is what the rules say that they make.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forensics.analysis.compare.asymmetric import RULE as ASYMMETRIC
from forensics.analysis.rules import Rule, Text, rules

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "State of the engine": (
        *("engine-stalled", "engine-alive-not-progressing", "engine-died", "transient-stall-recovered", "slow-progress", "long-prefill"),
        *("idle-healthy", "healthy-serving", "startup-in-progress", "startup-completed", "slow-weight-load", "orderly-shutdown"),
        *("healthy-engine-restarted", "health-endpoint-misleading", "health-probe-timeout-under-load"),
    ),
    "Symptoms": (
        *("symptom-rpc-timeout", "symptom-shm-broadcast-wait", "symptom-ray-channel-timeout", "symptom-peer-loss"),
        *("symptom-nccl-remote-error", "nccl-watchdog-timeout", "heartbeat-monitor-abort", "ray-actor-died"),
    ),
    "Who broke first": (
        *("rank-not-responding", "rank-divergence-collective", "rank-behind-in-collective", "one-rank-not-in-collective"),
        *("rank-divergence-batch", "dp-peer-missing-from-collective", "worker-process-died", "worker-start-failed"),
        *("worker-exception-swallowed", "process-stopped", "process-uninterruptible", "orphan-rank-from-previous-run"),
        *("rendezvous-peer-missing", "rendezvous-race-on-relaunch", "comm-init-stuck", "address-in-use", "relaunch-on-faulted-fabric"),
    ),
    "Mechanisms inside the engine": (
        *("bounded-queue-overflow", "queue-at-capacity", "circular-wait", "shared-event-reuse", "failure-head-of-line-blocked"),
        *("input-overwritten", "execution-mode-incompatible", "lock-deadlock", "gil-held", "busy-spin", "idle-cpu-spin"),
        *("scheduler-head-of-line-unschedulable", "scheduler-parked-on-kv-load", "kv-transfer-not-retrieved", "kv-transfer-peer-gone"),
        *("kv-sender-failed", "kv-receiver-waits-forever", "kv-blocks-not-freed-after-abort", "queue-waiting-behind-capacity"),
        *("grammar-compile-blocking", "grammar-matcher-after-termination", "grammar-spec-livelock", "jit-compile-during-serving"),
        *("nccl-host-enqueue-deadlock", "gpu-kernel-not-terminating", "deepep-dispatch-timeout", "control-plane-lease-lost"),
        *("interposed-cuda-library", "interposer-deadlock"),
    ),
    "Layers below": (
        *("host-oom-kill", "ray-oom-kill", "gpu-oom", "cuda-illegal-access", "gpu-xid", "gpu-off-bus", "gpu-mmu-fault"),
        *("gpu-ecc-contained", "gpu-nvlink-fault", "gpu-hardware-failure", "pcie-aer-fatal", "nic-lost", "rdma-port-down", "fabric-fault"),
        *("driver-alloc-failure", "host-stopped-logging", "host-wedge-unified-memory", "kernel-panic", "shm-exhausted"),
        *("shm-leak-across-restarts", "fd-exhausted", "ipc-objects-removed", "nccl-ras-port-taken", "sigsegv", "native-crash"),
        *("container-restarted", "tool-self-kill"),
    ),
    "Circumstances": (
        *("memory-exhaustion", "cpu-saturated", "cpu-pressure", "thermal-high", "thermal-throttled", "power-capped", "power-brake"),
        *("host-stable", "clock-unsynchronised", "log-clock-offset", "time-limit-raised", "execution-mode", "load-at-onset"),
        "backlog-before-onset",
    ),
    "Provenance and comparison": (
        *("patch-live", "patch-absent", "patch-stale", "patch-unreadable", "patch-inconsistent", "patch-live-and-failed"),
        *("installed-code-modified", "version-skew", "comparison-asymmetric", "crash-on-other-node", "no-crash-found"),
    ),
    "Evidence": tuple(
        f"evidence-missing:{source}" for source in ("log", "stacks", "kernel", "gpu", "metrics", "ras", "recorder", "raylet-log")
    ),
}
FURTHER = "Further"
"""Ids that rules make beyond the list; adding one needs no entry here."""
MISSING = "evidence-missing:"
_NO_RULE = "no rule of this version makes it"
_RECORDER = "it needs an in-process recorder: nothing outside the process sees it happen"


@dataclass(frozen=True)
class Unmade:
    """An id that no rule makes yet."""

    reason: str
    text: Text


UNMADE: Mapping[str, Unmade] = {
    "shared-event-reuse": Unmade(
        _RECORDER,
        Text(
            says=(
                "One event handle was recorded again before an earlier wait on it had been established: the waiter waits for "
                "the wrong work."
            ),
            establishes="A recorder's trace of record and wait on the same handle. Without one it is never more than possible.",
            false_positives="Reuse after the earlier wait was enqueued is correct and common.",
            next_steps=("give each pass under way an event of its own, or run without overlapping passes and see whether it comes back",),
            references=("CUDA runtime API, cudaStreamWaitEvent: a wait captures the most recent record at the time of the call",),
        ),
    ),
    "input-overwritten": Unmade(
        _RECORDER,
        Text(
            says="Preparation of later work overwrote a buffer that earlier work still needed.",
            establishes="A recorder's trace of both uses of the buffer. Wrong output alone is not this.",
            next_steps=("run once without overlapping passes: if it is gone, look at who owns the buffer between two passes",),
        ),
    ),
    "evidence-missing:gpu": Unmade(
        "the coverage grid tells it for each node; no rule makes a finding of it",
        Text(says="No reading of the GPUs: whether one is idle, throttled or gone stays open.", establishes="The outcome of the attempt."),
    ),
    "evidence-missing:ras": Unmade(
        "no collector asks NCCL's RAS port in this version; an answer that lies in a folder is read",
        Text(
            says="NCCL RAS was not asked: which rank is behind in which communicator stays open.",
            establishes="No answer of RAS lies among the inputs.",
            next_steps=("before the restart, on one live rank's node: echo 'verbose status' | nc localhost 28028",),
            references=("NCCL user guide, RAS",),
        ),
    ),
    "evidence-missing:recorder": Unmade(
        "there is no in-process recorder in this version",
        Text(
            says="No in-process recorder ran: what reused which event or buffer stays open.", establishes="No recording among the inputs."
        ),
    ),
}


@dataclass(frozen=True)
class Entry:
    """One id of the catalogue."""

    id: str
    family: str
    rule: Rule | None
    """The rule that makes it; None: UNIMPLEMENTED."""
    reason: str = ""
    """Why no rule makes it."""

    @property
    def status(self) -> str:
        return "IMPLEMENTED" if self.rule else "UNIMPLEMENTED"

    @property
    def text(self) -> Text | None:
        mine = self.rule.texts.get(self.id) if self.rule else None
        return mine or (UNMADE[self.id].text if self.id in UNMADE else None)

    @property
    def signatures(self) -> tuple[str, ...]:
        """Ids of the log signatures that feed it."""
        from forensics.analysis.signatures import signatures

        return tuple(sorted(s.id for s in signatures() if s.feeds == self.id))


def entries(own: Sequence[Rule] = ()) -> tuple[Entry, ...]:
    """Every id of the catalogue and every one that a rule makes, in the catalogue's order."""
    by_id = {id: rule for rule in (*rules(), ASYMMETRIC, *own) for id in rule.emits}
    listed = [(family, id) for family, ids in FAMILIES.items() for id in ids]
    known = {id for _, id in listed}
    more = sorted((id for id in by_id if id not in known), key=lambda id: (not id.startswith(MISSING), id))
    listed += [("Evidence" if id.startswith(MISSING) else FURTHER, id) for id in more]
    return tuple(_entry(id, family, by_id.get(id)) for family, id in listed)


def _entry(id: str, family: str, rule: Rule | None) -> Entry:
    reason = "" if rule else UNMADE[id].reason if id in UNMADE else _NO_RULE
    return Entry(id, family, rule, reason)


def find(id: str, own: Sequence[Rule] = ()) -> Entry | None:
    """The entry of an id as a report shows it: of evidence-missing:log/node1 that of evidence-missing:log."""
    bare = id.partition("/")[0]
    return next((e for e in entries(own) if e.id == bare), None)


def nearest(id: str, own: Sequence[Rule] = ()) -> list[str]:
    """Ids that somebody may have meant."""
    known = [e.id for e in entries(own)]
    part = [k for k in known if id in k or k in id]
    return list(dict.fromkeys([*difflib.get_close_matches(id, known, 5, 0.55), *part]))[:5]


def known_ids() -> Iterator[str]:
    """What no other rule may claim to make."""
    return (e.id for e in entries())
