"""What torchrun's agent tells of the rank that ended first: it sees an exit status, and gives the others a signal to end."""

from __future__ import annotations

from dataclasses import dataclass

from forensics.analysis.view import View
from forensics.model import LogHit

TELLING = frozenset({"-9", "-11", "-7", "-4", "-8"})
"""Signals that end a process from without, or by a fault of its own. Another status is the end of something that the rank itself told."""
SYMPTOMS = ("nccl-watchdog-timeout", "heartbeat-monitor-abort", "symptom-peer-loss", "symptom-nccl-remote-error", "symptom-nccl-error")


@dataclass(frozen=True)
class EndedFirst:
    told: list[LogHit]
    ranks: list[int]
    """Of the whole job: the agent's first line counts the ranks of its own node, only its summary tells more."""
    explained: bool
    """Whether its end is not the beginning: the rank was told of something, or said something, before."""


def ended_first(view: View) -> EndedFirst | None:
    """The rank that the agent found ended, where nobody had asked the job to stop."""
    told = view.hits_of("torch-elastic-failed") or view.hits_of("torch-elastic-exitcode")
    if not told or view.stopped_ns is not None:
        return None
    first = told[0]
    said = {h.fields["failed_rank"] for h in view.hits_of("torch-elastic-failure") if h.fields.get("failed_rank")}
    grave = [h for h in view.hits if h.role == "root" and h.feeds != "worker-process-died"]
    before = [h for h in (*view.feeding(*SYMPTOMS), *view.raised, *grave) if view.before(h, first)]
    return EndedFirst(told, [int(r) for r in said] if len(said) == 1 else [], bool(before) or first.fields.get("exit_code") not in TELLING)
