"""Nothing in the kernel log: process death, not machine trouble. Only for nodes whose kernel log was read."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._machine import troubles
from forensics.analysis.view import View
from forensics.model import CrashRecord, Finding, KernelEvent, KernelSpan, LogSpan


def evaluate(view: View) -> Iterator[Finding]:
    spans = view.on_nodes(KernelSpan)
    # lines that merely tell (a boot, a corrected error, a link that came up) are no trouble
    trouble = {e.node for e in view.on_nodes(KernelEvent) if e.role != "context" or _rebooted(view, e)}
    trouble |= {s.node for s in spans if s.previous_boot} | {r.node for r in view.on_nodes(CrashRecord) if not r.empty}
    quiet = [s for s in spans if s.node not in trouble and s.lines]
    nodes = tuple(dict.fromkeys(s.node for s in quiet))
    if not nodes:
        return
    unread = sorted(set(view.nodes) - {s.node for s in spans})
    limits = f"anything about {', '.join(unread)}, whose kernel log was not read" if unread else "failures that silence the kernel too"
    early = [n for n in nodes if _ends_early(view, n, [s for s in quiet if s.node == n])]
    late = [n for n in nodes if _begins_late(view, [s for s in quiet if s.node == n])]
    if late:
        limits += f"; what the kernel of {', '.join(late)} said when the trouble began: the log that was read begins later"
    if early:
        limits += f"; what the kernel of {', '.join(early)} said when the trouble began: its log ends before, or it was silent"
    yield view.finding(
        "host-stable",
        grade(observed=True, whole=not late and not early),
        title=f"The kernel of {', '.join(nodes)} reported no grave Xid, machine check, OOM kill, hung task, reboot or link failure",
        because=[s.ref for s in quiet[:6]],
        nodes=nodes,
        does_not_show=limits,
    )


def _begins_late(view: View, spans: list[KernelSpan]) -> bool:
    """Whether the first line that was kept is later than the beginning of the trouble: the ring has wrapped, or it was cut."""
    onset = min((t.earliest_ns for t, _ in troubles(view)), default=None)
    begun = [s.at.earliest_ns for s in spans if s.at]
    return onset is not None and bool(begun) and min(begun) > onset


def _ends_early(view: View, node: str, spans: list[KernelSpan]) -> bool:
    """Whether the last line is older than the trouble, and nobody read the log after it began: somebody may have cut it there."""
    onset = min((t.earliest_ns for t, _ in troubles(view)), default=None)
    ended = [s.at.latest_ns for s in spans if s.at]
    read = view.case.captured.get(node)
    return onset is not None and bool(ended) and max(ended) < onset and (read is None or read.latest_ns < onset)


def _rebooted(view: View, event: KernelEvent) -> bool:
    """Whether the machine was booted, or went down, after the engine's log had begun."""
    if event.signature not in ("kernel-boot", "kernel-reboot") or event.at is None:
        return False
    begun = [s.first_ns for s in view.on_nodes(LogSpan) if s.node == event.node and s.first_ns is not None]
    return bool(begun) and event.at.earliest_ns > min(begun)


TEXTS = {
    "host-stable": Text(
        says="The kernel logs that were read show no Xid, MCE, OOM, reset or reboot: the death of a process, not trouble of the machine.",
        establishes="The whole interval of the kernel log was read on every node that it speaks of.",
        lower="Supported: the ring buffer had wrapped, or a node was not read.",
    ),
}

RULE = Rule(
    name="host_stable",
    texts=TEXTS,
    about="The kernel logs that were read hold no sign of machine trouble.",
    requires=("kernel",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A ring buffer that has wrapped no longer holds the time in question: then it is no more than supported.",
    references=("Linux kernel/printk/printk.c: the oldest lines of the ring are overwritten",),
)
