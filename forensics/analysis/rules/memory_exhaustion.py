"""Did memory run out? Asked in every postmortem, usually refuted, and then with the figures."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.rules._machine import troubles
from forensics.analysis.rules.host_oom import join, killer, kills_of
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, KernelEvent, KernelSpan, MemorySample, Severity

PLENTY = 0.10
"""With this share available nothing waits for memory."""
SCARCE = 0.02
BEFORE_S = 600.0
"""A kill, or a reading, longer before the onset than this belongs to another story."""
PRESSED = 10.0
"""Per cent of the last ten seconds in which everybody waited for memory."""


def evaluate(view: View) -> Iterator[Finding]:
    killed = [e for e in kills_of(view) if _concerns(view, e)]
    failed = [e for e in view.kernel_feeding("memory-exhaustion") if _concerns(view, e)]
    # what lies in /dev/shm is for another rule: a segment that fills it is ordinary
    known = [m for m in view.on_nodes(MemorySample) if m.scope != "shm"]
    samples = [m for m in known if m.total_bytes and m.available_bytes is not None and m.scope.startswith(("host", "cgroup"))]
    short = [m for m in samples if _share(m) < SCARCE and not _too_early(view, m)]
    pressed = [m for m in known if (m.pressure_full_avg10 or 0) > PRESSED and not _too_early(view, m)]
    if killed or short:
        # a kill of somebody else, or at a time that nobody knows, may be another story
        observed = any((j := join(view, e, killed)) and j[-1] is Grade.ESTABLISHED for e in killed)
        first = next((e for e in killed if e.at), killed[0] if killed else None)
        yield view.finding(
            "memory-exhaustion",
            Grade.ESTABLISHED if observed else Grade.SUPPORTED if short and pressed else Grade.POSSIBLE,
            title="Memory ran out: " + (_kill(first) if first else f"{short[0].scope} of {short[0].node}, {short[0].ref.quote}"),
            because=[*(e.ref for e in (*killed, *failed)[:4]), *(m.ref for m in (*short, *pressed)[:3])],
            severity=Severity.CRITICAL if observed else Severity.WARNING,
            role=FindingRole.AMPLIFIER,
            nodes=dict.fromkeys(o.node for o in (*killed, *short)),
            since=first.at if first else short[0].at,
            does_not_show="that it is the cause of the engine's trouble",
        )
        return
    yield _refuted(view, samples)


def _refuted(view: View, samples: list[MemorySample]) -> Finding:
    """Only for the nodes whose memory was read near the onset, while what the engine held was still held."""
    host = [m for m in samples if m.scope == "host"]
    if not host:
        raise CannotTell("nobody read this node's memory", "memory")
    near = [m for m in host if not _too_early(view, m)]
    if not near:
        raise CannotTell("memory was read long before the trouble began", "memory at that time")
    telling = [m for m in near if not _given_back(view, m.node, near)]
    if not telling:
        raise CannotTell("memory was read after processes of the engine had ended and given theirs back", "memory in the minutes before")
    nodes = tuple(dict.fromkeys(m.node for m in telling))
    groups = [m for m in samples if m.scope != "host" and m.node in nodes and not _too_early(view, m)]
    for m in (*telling, *groups):
        if _share(m) < PLENTY:
            of = "the host's memory" if m.scope == "host" else m.scope
            raise CannotTell(f"only {_share(m):.0%} of {of} was available on {m.node}: neither plenty nor exhausted", "a second sample")
    least = min(telling, key=_share)
    tightest = min(groups, key=_share, default=None)
    where = f" on {', '.join(nodes)}" if len(view.nodes) > 1 else ""
    limit = f"; {_free(tightest)} of the limit of {tightest.scope}" if tightest else ""
    unread = [n for n in view.nodes if n not in nodes]
    return view.finding(
        "memory-exhaustion",
        Grade.REFUTED,
        title=f"Memory did not run out{where}: at least {_free(least)} of the host's was available{limit}",
        because=[m.ref for m in (*telling, *groups)[:6]],
        against=[m.ref for m in (*telling, *groups)[:6]],
        nodes=nodes,
        does_not_show="; ".join(
            [
                *([f"anything about {', '.join(unread)}, whose memory was not read at that time"] if unread else []),
                *([] if groups else ["the container's own limit, which was not read"]),
                *(["that of the GPUs: see gpu-oom"] if view.feeding("gpu-oom") else []),
            ]
        ),
    )


def _share(m: MemorySample) -> float:
    return (m.available_bytes or 0) / (m.total_bytes or 1)


def _free(m: MemorySample) -> str:
    return f"{(m.available_bytes or 0) / 2**30:.0f} GiB ({_share(m):.0%})"


def _kill(kill: KernelEvent) -> str:
    """A kill in words: what the kernel prints of it is a line of figures."""
    victim = kill.fields.get("comm") or kill.fields.get("cgroup") or "a process"
    pid = f" (pid {kill.fields['pid']})" if "pid" in kill.fields else ""
    when = f" at {iso(kill.at.earliest_ns)}" if kill.at else ""
    return f"{killer(kill)[:1].lower()}{killer(kill)[1:]} killed {victim}{pid} on {kill.node}{when}"


def _onset(view: View) -> int | None:
    """When the trouble began; None of an engine that has none."""
    return min((at.earliest_ns for at, _ in troubles(view)), default=None)


def _too_early(view: View, m: MemorySample) -> bool:
    onset = _onset(view)
    return onset is not None and m.at is not None and onset - m.at.latest_ns > BEFORE_S * SECOND


def _given_back(view: View, node: str, host: list[MemorySample]) -> bool:
    """Whether every reading of a node is later than an end of the engine, or of a part of it: what it held is free again.

    Where the kernel's log was read, too, a kill for lack of memory would stand in it.
    """
    if any(s.lines for s in view.case.on(node, KernelSpan)):
        return False
    ends = [h.at.earliest_ns for h in view.events("fatal", "worker-death", "death-told", "start-failed") if h.at]
    return bool(ends) and all(m.at is None or m.at.earliest_ns > min(ends) for m in host if m.node == node)


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


TEXTS = {
    "memory-exhaustion": Text(
        says="Host, container, shared or KV memory ran out. Usually refuted, with the figures.",
        establishes="A kill, or an allocation that failed, with the figures of that memory at that time.",
        lower="Refuted: figures of the time show room. Not assessable: nobody read them.",
        next_steps=("see which memory it is (host, container, GPU, KV, /dev/shm): each has its own cure",),
    ),
}

RULE = Rule(
    name="memory_exhaustion",
    texts=TEXTS,
    about="Host, container or shared memory ran out.",
    any_of=("memory", "kernel"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="MemFree is not MemAvailable: page cache is given back on demand, though a container's counts towards its limit.",
    references=("Linux Documentation/filesystems/proc.rst, MemAvailable", "Linux Documentation/admin-guide/cgroup-v2.rst, memory.stat"),
)
