"""Did memory run out? Asked in every postmortem, usually refuted, and then with the figures."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import CannotTell, Rule
from forensics.analysis.rules.host_oom import join, kills_of
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, KernelEvent, KernelSpan, MemorySample, Severity

PLENTY = 0.10
"""With this share available nothing waits for memory."""
SCARCE = 0.02
BEFORE_S = 600.0
"""A kill longer before the onset than this belongs to another story."""


def evaluate(view: View) -> Iterator[Finding]:
    killed = [e for e in kills_of(view) if _concerns(view, e)]
    failed = [e for e in view.kernel_feeding("memory-exhaustion") if _concerns(view, e)]
    samples = [m for m in view.on_nodes(MemorySample) if m.total_bytes and m.available_bytes is not None]
    short = [m for m in samples if (m.available_bytes or 0) < SCARCE * (m.total_bytes or 1)]
    pressed = [m for m in view.on_nodes(MemorySample) if (m.pressure_full_avg10 or 0) > 10]
    if killed or short:
        # a kill of somebody else, or at a time that nobody knows, may be another story
        observed = any((j := join(view, e, killed)) and j[-1] is Grade.ESTABLISHED for e in killed)
        yield view.finding(
            "memory-exhaustion",
            Grade.ESTABLISHED if observed else Grade.SUPPORTED if pressed else Grade.POSSIBLE,
            title="Memory ran out: " + (killed[0].text[:120] if killed else f"{short[0].scope} {short[0].ref.quote}"),
            because=[*(e.ref for e in (*killed, *failed)[:4]), *(m.ref for m in (*short, *pressed)[:3])],
            severity=Severity.CRITICAL if observed else Severity.WARNING,
            role=FindingRole.AMPLIFIER,
            does_not_show="that it is the cause of the engine's trouble",
        )
        return
    host = [m for m in samples if m.scope == "host"]
    if not host:
        raise CannotTell("nobody read this node's memory", "memory")
    if _given_back(view, host):
        raise CannotTell("memory was read after processes of the engine had ended and given theirs back", "memory in the minutes before")
    least = min(host, key=lambda m: (m.available_bytes or 0) / (m.total_bytes or 1))
    share = (least.available_bytes or 0) / (least.total_bytes or 1)
    if share < PLENTY:
        raise CannotTell(f"only {share:.0%} of memory was available: neither plenty nor exhausted", "a second sample")
    against: list[EvidenceRef] = [m.ref for m in samples[:6]]
    yield view.finding(
        "memory-exhaustion",
        Grade.REFUTED,
        title=f"Memory did not run out: at least {(least.available_bytes or 0) / 2**30:.0f} GiB ({share:.0%}) of the host's was available",
        because=against,
        against=against,
        does_not_show="" if any(m.scope.startswith("cgroup") for m in samples) else "the container's own limit, which was not read",
    )


def _given_back(view: View, host: list[MemorySample]) -> bool:
    """Whether every reading is later than an end of the engine, or of a part of it: what it held is free again.

    Where the kernel's log was read, too, a kill for lack of memory would stand in it.
    """
    if any(s.lines for s in view.on_nodes(KernelSpan)):
        return False
    ends = [h.at.earliest_ns for h in view.events("fatal", "worker-death", "death-told", "start-failed") if h.at]
    return bool(ends) and all(m.at is None or m.at.earliest_ns > min(ends) for m in host)


def _concerns(view: View, event: KernelEvent) -> bool:
    """Whether a kill belongs to this incident: it hit one of the engine's processes, or fell into the time around the onset.

    A kernel log reaches back to the boot; what was killed yesterday says nothing about today.
    """
    if join(view, event, kills_of(view)) is not None:
        return True
    if event.at is None:
        return True
    onset = view.stall.since.earliest_ns if view.stall else view.ended_ns
    return onset is None or onset - event.at.latest_ns <= BEFORE_S * SECOND


RULE = Rule(
    name="memory_exhaustion",
    emits=("memory-exhaustion",),
    about="Host, container or shared memory ran out.",
    any_of=("memory", "kernel"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="MemFree is not MemAvailable: page cache is given back on demand.",
    references=("Linux Documentation/filesystems/proc.rst, MemAvailable",),
)
