"""Nothing in the kernel log: process death, not machine trouble. Only for nodes whose kernel log was read."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import Finding, KernelEvent, KernelSpan


def evaluate(view: View) -> Iterator[Finding]:
    spans = view.on_nodes(KernelSpan)
    trouble = {e.node for e in view.on_nodes(KernelEvent)}
    quiet = [s for s in spans if s.node not in trouble and s.lines]
    nodes = tuple(dict.fromkeys(s.node for s in quiet))
    if not nodes:
        return
    unread = sorted(set(view.nodes) - {s.node for s in spans})
    limits = f"anything about {', '.join(unread)}, whose kernel log was not read" if unread else "failures that silence the kernel too"
    yield view.finding(
        "host-stable",
        grade(observed=True),
        title=f"The kernel of {', '.join(nodes)} reported no Xid, machine check, OOM kill, hung task or link failure",
        because=[s.ref for s in quiet[:6]],
        nodes=nodes,
        does_not_show=limits,
    )


RULE = Rule(
    name="host_stable",
    emits=("host-stable",),
    about="The kernel logs that were read hold no sign of machine trouble.",
    requires=("kernel",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A ring buffer that has wrapped no longer holds the time in question.",
)
