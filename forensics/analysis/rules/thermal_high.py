"""Is anything hot, and does anything slow down for it? Judged against each sensor's own trip points."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import POWER_FIRST
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._gpus import BEFORE_NS, THERMAL, Gpu, gpus, named, whose
from forensics.analysis.rules.gpu_power import figures
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, KernelEvent, Severity, ThermalReading, ThrottleCount

MARGIN_CELSIUS = 5.0
TRIPS = ("critical", "crit", "hot", "max")
"""Ranked: the first of them that a sensor has is its limit."""
PASSIVE = "passive"
"""Where the kernel begins to slow down. Machines that cool quietly live just below it: it counts only once it is passed."""
BROKEN_CELSIUS = 130.0
"""No silicon is read so hot: a sensor that says so is broken, or counts something else."""
COOLER_CELSIUS = 10.0
"""By so much the GPUs must be cooler than the hottest sensor of their host before the host's side is named."""


def evaluate(view: View) -> Iterator[Finding]:
    seen = gpus(view)
    for node in view.nodes:
        hot = [(r, trip) for r in view.case.on(node, ThermalReading) if r.celsius < BROKEN_CELSIUS and (trip := _near(r))]
        shut = [e for e in view.kernel_feeding("thermal-high") if e.node == node and _near_the_end(view, e)]
        mine = [g for g in seen if g.node == node]
        if hot or shut:
            yield _hot(view, node, hot, shut, mine)
        counted = _grown([t for t in view.case.on(node, ThrottleCount) if t.key.endswith("_throttle")])
        said = [e for e in view.kernel_feeding("thermal-throttled") if e.node == node and _near_the_end(view, e)]
        slowed = [g for g in mine if g.with_bits(THERMAL)]
        if counted or said or slowed:
            yield _throttled(view, node, counted, said, slowed)


def _hot(view: View, node: str, hot: list[tuple[ThermalReading, str]], shut: list[KernelEvent], mine: list[Gpu]) -> Finding:
    # one line a sensor, at its hottest
    hottest: dict[str, tuple[ThermalReading, str]] = {}
    for reading, trip in sorted(hot, key=lambda pair: -pair[0].celsius):
        hottest.setdefault(reading.key, (reading, trip))
    what = [f"{r.key} ({r.kind}) {r.celsius:.0f} C, {trip} trip {r.trips_celsius[trip]:.0f} C" for r, trip in hottest.values()]
    what += [f'the kernel said "{e.text[:120]}"' for e in shut[:1]]
    known = [t for g in mine if (t := g.newest("temperature_celsius")) is not None]
    host = max((r.celsius for r, _ in hot), default=None)
    cooler = known and host is not None and max(known) <= host - COOLER_CELSIUS
    return view.finding(
        "thermal-high",
        grade(observed=True),
        title=f"{node} is hot: {'; '.join(what[:3])}"
        + (f"; its GPUs are cooler ({max(known):.0f} C at most): the heat is on the host's side" if cooler else ""),
        because=[
            *(r.ref for r, _ in list(hottest.values())[:4]),
            *(e.ref for e in shut[:2]),
            *(g.samples[-1].ref for g in mine[:2] if cooler),
        ],
        severity=Severity.CRITICAL if shut else Severity.INFO if all(trip == PASSIVE for _, trip in hot) else Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        nodes=[node],
        since=hot[0][0].at if hot else shut[0].at,
        does_not_show="that heat began the trouble",
    )


def _throttled(view: View, node: str, counted: list[ThrottleCount], said: list[KernelEvent], slowed: list[Gpu]) -> Finding:
    what = []
    if counted:
        what.append(f"CPUs of {node} were throttled for heat during the capture: {', '.join(t.key for t in counted[:4])}")
    elif said:
        what.append(f"CPUs of {node} were throttled for heat, says its kernel ({len(said)} lines)")
    if slowed:
        what.append(f"{node}: " + named(view, slowed, "slows down for heat", lambda g: figures(g.with_bits(THERMAL)[-1])))
    at = [t.at for t in counted] + [e.at for e in said] + [s.at for g in slowed for s in g.with_bits(THERMAL)]
    return view.finding(
        "thermal-throttled",
        grade(observed=True),
        title="; ".join(what),
        because=[*(t.ref for t in counted[:4]), *(e.ref for e in said[:3]), *(g.with_bits(THERMAL)[-1].ref for g in slowed[:4])],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        nodes=[node],
        since=min((a for a in at if a), key=lambda a: a.earliest_ns, default=None),
        does_not_show="that it began the trouble: what is throttled is slow, and does not stand still",
        **whose(view, slowed),
    )


def _near(reading: ThermalReading) -> str:
    """The trip point within reach of this reading, or ""."""
    for name in TRIPS:
        trip = reading.trips_celsius.get(name)
        if trip and reading.celsius >= trip - MARGIN_CELSIUS:
            return name
    passive = reading.trips_celsius.get(PASSIVE)
    return PASSIVE if passive and reading.celsius >= passive else ""


def _near_the_end(view: View, event: KernelEvent) -> bool:
    """Whether a kernel line belongs to this incident: the log reaches back to the boot."""
    onset = view.stall.since.earliest_ns if view.stall else view.ended_ns
    return event.at is not None and (onset is None or event.at.latest_ns >= onset - BEFORE_NS)


def _grown(counts: list[ThrottleCount]) -> list[ThrottleCount]:
    """Counters that grew between two samples. Their standing value is a history since boot and says nothing of now."""
    first: dict[str, int] = {}
    grown: dict[str, ThrottleCount] = {}
    for c in sorted(counts, key=lambda c: c.at.earliest_ns if c.at else 0):
        if c.count > first.setdefault(c.key, c.count):
            grown[c.key] = c
    return list(grown.values())


TEXTS = {
    "thermal-high": Text(
        says="A sensor is near one of its trip points. Hot is a circumstance; hot while a trip acts is more.",
        establishes="A reading within five degrees of the sensor's own trip point.",
        next_steps=(POWER_FIRST, "look at fans, airflow and what spins: a SoC that is hot while its GPU is cooler points at the host side"),
    ),
    "thermal-throttled": Text(
        says="A CPU or GPU runs slower because of heat. It makes slow, it does not stop a program.",
        establishes="The throttle reason or count itself, in the interval.",
        next_steps=(POWER_FIRST, "cap the clock (nvidia-smi -lgc) until the cooling is mended"),
    ),
}

RULE = Rule(
    name="thermal_high",
    texts=TEXTS,
    about="A sensor is within five degrees of its limit or past its passive trip, or a CPU or GPU slows down for heat.",
    any_of=("thermal", "gpu"),
    optional=("kernel",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Passive trips of laptops and small machines are reached in ordinary work. A GPU's reason is that of one moment.",
    references=(
        "Linux Documentation/driver-api/thermal",
        "Linux arch/x86/kernel/cpu/mce/therm_throt.c: core_power_limit_count beside core_throttle_count counts power, not heat",
        "NVML nvmlClocksEventReason*: SwThermalSlowdown 0x20, HwThermalSlowdown 0x40",
    ),
)
