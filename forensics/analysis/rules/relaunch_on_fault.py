"""The engine was started again on a GPU or fabric whose fault was still there."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import first_at, ranks_of_gpu, started_again, troubles
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, KernelEvent, Severity

LASTING = ("gpu-off-bus", "gpu-nvlink-fault", "gpu-hardware-failure")


def evaluate(view: View) -> Iterator[Finding]:
    begun, again = started_again(view)
    if begun is None or not again or not troubles(view):
        return
    told = [e for e in view.kernel_feeding(*LASTING) if e.role == "root" and "nonfatal" not in e.text.lower()]
    asks = [e for e in view.kernel_feeding("gpu-xid") if e.fields.get("action", "None") != "None"]
    faults = [e for e in (*told, *asks) if e.at and e.at.latest_ns < begun and not _healed(view, e, begun)]
    if not faults:
        return
    first = first_at(faults)
    ranks = dict.fromkeys(r for e in faults for r in ranks_of_gpu(view, e.node, e.fields.get("bus", ""))[0])
    yield view.finding(
        "relaunch-on-faulted-fabric",
        Grade.ESTABLISHED,
        title=f"The engine was started again at {iso(begun)} on {faults[0].node}, whose fault nothing had cleared: {faults[0].text[:120]}",
        because=[e.ref for e in faults[:6]],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        nodes=list(dict.fromkeys(e.node for e in faults)),
        ranks=ranks,
        since=first,
        does_not_show="a reset that left no line in the kernel log; nor that a reset would have been enough",
    )


def _healed(view: View, fault: KernelEvent, begun: int) -> bool:
    """Whether the machine was booted, or the driver saw a recovery, between the fault and the start."""
    later = [e for e in view.on_nodes(KernelEvent) if e.node == fault.node and e.at and fault.at and e.at.earliest_ns > fault.at.latest_ns]
    later = [e for e in later if e.at and e.at.earliest_ns < begun]
    return any(e.signature == "kernel-boot" or e.fields.get("action") == "None" for e in later)


TEXTS = {
    "relaunch-on-faulted-fabric": Text(
        says="The engine was started again on a GPU or fabric whose fault nobody had cleared.",
        establishes="The fault's line before the start, and no reset or reboot between.",
        next_steps=("reset the GPU and the fabric, or take the node out, before the next start",),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="relaunch_on_fault",
    texts=TEXTS,
    about="A start followed a fault of GPU or fabric that nobody had cleared.",
    requires=("kernel", "log"),
    evaluate=evaluate,
    false_positives="A GPU that was reset without a line in the kernel log.",
    references=("NVIDIA Xid catalogue: 79 and NVLink faults last until a reset",),
)
