"""Does a GPU run slower for want of power? A cap under full load is ordinary; a power brake comes from outside and is not."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from forensics.analysis.rules._advice import POWER_FIRST
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._gpus import CAP, HW_SLOWDOWN, POWER_BRAKE, THERMAL, Gpu, gpus, named, whose
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, GpuSample, Grade, Severity

UNLIKE = 0.8
"""A power limit below this share of what its peers have is no ordinary one."""
CRAWLS = 0.45
"""A busy GPU below this share of its highest clock is held back: boards that firmware caps run at a quarter to a half."""
BUSY_PERCENT = 50.0


def evaluate(view: View) -> Iterator[Finding]:
    seen = gpus(view)
    low_limit = _far_below_peers(seen)
    for node in view.nodes:
        mine = [g for g in seen if g.node == node]
        if braked := [g for g in mine if g.with_bits(POWER_BRAKE)]:
            yield _brake(view, node, braked, Grade.ESTABLISHED)
        elif slowed := [g for g in mine if g.with_bits(HW_SLOWDOWN, without=THERMAL)]:
            yield _brake(view, node, slowed, Grade.POSSIBLE)
        if capped := [g for g in mine if g.with_bits(CAP)]:
            yield _capped(view, node, capped, [g for g in capped if g.key in low_limit])
        elif crawling := [g for g in mine if _crawls(g)]:
            yield _held_back(view, node, crawling)


def _far_below_peers(seen: list[Gpu]) -> set[tuple[str, int]]:
    """GPUs whose limit is far below the one that the GPUs of their kind have."""
    kinds: dict[str, list[tuple[Gpu, float]]] = defaultdict(list)
    for gpu in seen:
        if (name := gpu.newest_name) and (limit := gpu.newest("power_limit_watts")):
            kinds[name].append((gpu, limit))
    usual = {name: statistics.median(limit for _, limit in peers) for name, peers in kinds.items()}
    return {gpu.key for name, peers in kinds.items() for gpu, limit in peers if limit < UNLIKE * usual[name]}


def _crawls(gpu: Gpu) -> bool:
    """Busy, far below its highest clock, and the driver gives no reason."""
    if not gpu.told:
        return False
    last, reasons = gpu.told[-1]
    if reasons or last.sm_clock_mhz is None or last.sm_clock_max_mhz is None:
        return False
    return (last.utilization_percent or 0) >= BUSY_PERCENT and last.sm_clock_mhz < CRAWLS * last.sm_clock_max_mhz


def figures(sample: GpuSample) -> str:
    """ "690 of 700 W, 1410 of 1980 MHz, 64 C", as far as it was read."""
    told = []
    if sample.power_watts is not None:
        told.append(f"{sample.power_watts:.0f}" + (f" of {sample.power_limit_watts:.0f} W" if sample.power_limit_watts else " W"))
    if sample.sm_clock_mhz is not None:
        told.append(f"{sample.sm_clock_mhz:.0f}" + (f" of {sample.sm_clock_max_mhz:.0f} MHz" if sample.sm_clock_max_mhz else " MHz"))
    if sample.temperature_celsius is not None:
        told.append(f"{sample.temperature_celsius:.0f} C")
    return ", ".join(told) or "no figures"


def _brake(view: View, node: str, braked: list[Gpu], level: Grade) -> Finding:
    sure = level is Grade.ESTABLISHED
    bits = POWER_BRAKE if sure else HW_SLOWDOWN
    what = "is slowed by a power brake" if sure else "is slowed by its hardware (heat, a power brake or its draw: the driver does not say)"
    return view.finding(
        "power-brake",
        level,
        title=f"{node}: " + named(view, braked, what, lambda g: figures(g.with_bits(bits)[-1])),
        because=[s.ref for g in braked for s in g.with_bits(bits)[-2:]],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        nodes=[node],
        since=min((s.at for g in braked for s in g.with_bits(bits) if s.at), key=lambda at: at.earliest_ns, default=None),
        does_not_show="that it began the trouble: a slow GPU makes every step longer, and stops none",
        **whose(view, braked),
    )


def _capped(view: View, node: str, capped: list[Gpu], low: list[Gpu]) -> Finding:
    unlike = f"; the limit of {', '.join(f'GPU {g.index}' for g in low[:4])} is far below that of its peers" if low else ""
    return view.finding(
        "power-capped",
        grade(observed=True),
        title=f"{node}: " + named(view, capped, "runs at its power limit", lambda g: figures(g.with_bits(CAP)[-1])) + unlike,
        because=[s.ref for g in (*low, *capped) for s in g.with_bits(CAP)[-1:]],
        severity=Severity.WARNING if low else Severity.INFO,
        role=FindingRole.AMPLIFIER if low else FindingRole.CONTEXT,
        nodes=[node],
        since=min((s.at for g in capped for s in g.with_bits(CAP) if s.at), key=lambda at: at.earliest_ns, default=None),
        does_not_show="a fault: under full load a GPU ordinarily runs at its limit",
        next_steps=["set the same power limit on all GPUs of the engine: the slowest rank sets the pace"] if low else [],
        **whose(view, capped),
    )


def _held_back(view: View, node: str, crawling: list[Gpu]) -> Finding:
    return view.finding(
        "power-capped",
        Grade.POSSIBLE,
        title=f"{node}: "
        + named(view, crawling, "is busy at a fraction of its clock, without a reason from the driver", lambda g: figures(g.told[-1][0])),
        because=[g.told[-1][0].ref for g in crawling],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        nodes=[node],
        does_not_show="what holds it back: firmware may cap the whole board, which the driver does not see; a GPU that waits for the CPU "
        "counts as busy, too",
        would_settle=["clock and draw under a load that is known to fill the GPU"],
        next_steps=["take the machine off its power for a minute: a cap that its power supply negotiated is then negotiated again"],
        **whose(view, crawling),
    )


TEXTS = {
    "power-capped": Text(
        says="A GPU runs below its clock because of its power limit. It makes slow, it does not stop anything.",
        establishes="The driver's power cap reason in a sample.",
        lower="Lower: the clock is far below its highest under load, and the driver gives no reason (a supply that was negotiated low).",
        next_steps=("compare the limit and the clock with those of the other GPUs: the slowest rank sets the pace", POWER_FIRST),
    ),
    "power-brake": Text(
        says="A power brake from outside slows the GPU: the machine's supply or the rack asks for it.",
        establishes="The driver's power brake reason in a sample.",
        lower="Possible: the driver says that hardware slows the GPU, and not which.",
        next_steps=("check power supplies, the rack's power budget and the board's power cables: the signal comes from outside the GPU",),
    ),
}

RULE = Rule(
    name="gpu_power",
    texts=TEXTS,
    about="A GPU runs below its clocks because of its power limit, or because a power brake from outside slows it.",
    requires=("gpu",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Every GPU reaches its power limit under full load: a cap alone is no fault. The reasons are those of one moment.",
    references=(
        "NVML nvmlClocksEventReason*: SwPowerCap 0x4, HwSlowdown 0x8, HwPowerBrakeSlowdown 0x80",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "nvidia-smi -q -d PERFORMANCE, POWER, CLOCK",
    ),
)
