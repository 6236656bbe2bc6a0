"""The PCIe bus reported a fatal error, or a network card went away."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import first_at, part, weight
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import Finding, Grade, KernelEvent

TOGETHER_NS = 10 * SECOND


def evaluate(view: View) -> Iterator[Finding]:
    lost = view.kernel_feeding("nic-lost")
    for node in dict.fromkeys(e.node for e in lost if e.role == "root"):
        mine = [e for e in lost if e.node == node]
        told = [e for e in mine if e.role == "root"]
        beside = [e for e in view.kernel_feeding("pcie-aer-fatal") if e.node == node and e.role == "root" and _together(e, told)]
        cards = sorted({e.fields["bus"] for e in told if e.fields.get("bus")})
        yield _finding(
            view,
            "nic-lost",
            f"Network card {', '.join(cards) or 'of unknown address'} of {node} stopped answering",
            node,
            told,
            [*beside, *mine],
        )
    fatal = [e for e in view.kernel_feeding("pcie-aer-fatal") if e.role == "root"]
    # the error below a GPU or a card that was lost in the same moment is told there
    named = [e for e in view.kernel_feeding("gpu-off-bus", "nic-lost") if e.role == "root"]
    alone = [e for e in fatal if not _together(e, [n for n in named if n.node == e.node])]
    for node in dict.fromkeys(e.node for e in alone):
        mine = [e for e in alone if e.node == node]
        ports = sorted({e.fields["bus"] for e in mine if e.fields.get("bus")})
        yield _finding(view, "pcie-aer-fatal", f"Fatal PCIe error at {', '.join(ports) or 'a port'} of {node}", node, mine, [])


def _together(e: KernelEvent, others: list[KernelEvent]) -> bool:
    return any(not e.at or not o.at or abs(e.at.earliest_ns - o.at.earliest_ns) <= TOGETHER_NS for o in others)


def _finding(view: View, id: str, title: str, node: str, told: list[KernelEvent], beside: list[KernelEvent]) -> Finding:
    since = first_at(told)
    role = part(view, since, lasting=id == "nic-lost", machine=True)
    return view.finding(
        id,
        Grade.ESTABLISHED,
        title=f"{title}: {told[0].text[:120]}",
        because=[e.ref for e in (*told[:6], *beside[:6])],
        severity=weight(view, role, since),
        role=role,
        nodes=[node],
        since=since,
        does_not_show="what device behind the port was hit" if id == "pcie-aer-fatal" else "which ranks used this card",
    )


TEXTS = {
    "pcie-aer-fatal": Text(
        says="The PCIe bus reported a fatal error: what hangs behind that port is lost until a reset.",
        establishes="An AER line of the kernel that says Uncorrectable (Fatal), with the address.",
        next_steps=("look at the device behind that address (lspci -t); reseat or replace it",),
    ),
    "nic-lost": Text(
        says="A network card stopped answering its driver or left the bus.",
        establishes="The driver's own line (health poll, device removed) in the kernel log.",
        lower="Supported: the card was reset and came back.",
        next_steps=("look at the device behind that address (lspci -t); reseat or replace it",),
    ),
}

RULE = Rule(
    name="bus_and_nic",
    texts=TEXTS,
    about="A fatal PCIe error was reported, or a network card was lost.",
    requires=("kernel",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Corrected PCIe errors are retried by the link and are noise.",
    references=("Linux drivers/pci/pcie/aer.c", "Linux mlx5/core/health.c"),
)
