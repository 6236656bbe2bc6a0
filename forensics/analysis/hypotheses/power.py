"""Power: GPUs that are capped or braked, and machines that went off without a word."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.model import GpuSample

GPUS, GONE = "the GPUs' power", "the machine"
SECRETIVE = "GB10"
"""Its firmware lowers the limit (a weak supply) and shows no reason; its clock then stands between 500 and 850 MHz."""
SLOW_MHZ = 850.0


def evaluate(ask: Ask) -> Iterator[Told]:
    for node in ask.view.nodes:
        # a cap under full load is ordinary work: the rule then tells it as a mere circumstance
        yield from ask.from_findings(GPUS, "power-brake", "power-capped", node=node)
        if ask.root in ("", "host-stopped-logging"):  # else it is known what stopped the machine
            yield from ask.from_findings(GONE, "host-stopped-logging", node=node, decide=False)
        read = [g for g in ask.on(node, GpuSample) if g.throttle_bits is not None or g.power_watts is not None]
        if not read:
            yield unread("power: nothing on this machine tells of it" if ask.absent("gpu", node) else GPUS, node=node, part=GPUS)
        elif not ask.of("power-brake", "power-capped", node=node):
            yield from _free(ask, node, ask.nearest(read))


def _free(ask: Ask, node: str, near: list[GpuSample]) -> Iterator[Told]:
    most = max(near, key=lambda g: g.power_watts or 0)
    told = all(g.throttle_bits is not None for g in near)
    secret = [g for g in near if SECRETIVE in g.name and not (g.sm_clock_mhz or 0) > SLOW_MHZ]
    parts = [f"{len({g.index for g in near})} GPU(s) neither capped nor braked" if told else ""]
    limit = f" of {most.power_limit_watts:.0f} W" if most.power_limit_watts else ""
    parts.append(f"the most drawn was {most.power_watts:.0f} W{limit}" if most.power_watts is not None else "")
    words = ", ".join(p for p in parts if p)
    sure = told and not secret
    yield "against", entry(f"{words} {ask.when(most.at)}", node=node, part=GPUS, decides=sure and ask.decides(most.at), ref=most.ref)
    if not told:
        yield unread("why GPUs lower their clocks (clocks event reasons)", node=node, part=GPUS)
    elif secret:
        yield unread(f"the supply: {secret[0].name} lowers its power limit without saying so", node=node, part=GPUS)
    elif not ask.decides(most.at):
        yield unread("the GPUs' power when the trouble began", node=node, part=GPUS)


SUSPICION = Suspicion(
    name="power",
    claim="Power was short: GPUs capped or braked, or a machine that lost it",
    always=True,
    evaluate=evaluate,
    does_not_show="that it began the trouble",
)
