"""Is anything hot? Judged against each sensor's own trip points."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, GpuSample, Severity, ThermalReading, ThrottleCount

MARGIN_CELSIUS = 5.0
TRIPS = ("critical", "crit", "hot", "max", "passive")
"""Ranked: the first of them that a sensor has is its limit. Passive trips are where the kernel begins to slow down."""
THERMAL_BITS = 0x20 | 0x40
"""NVML clocks event reasons SwThermalSlowdown and HwThermalSlowdown."""


def evaluate(view: View) -> Iterator[Finding]:
    for node in view.nodes:
        readings = [r for r in view.on_nodes(ThermalReading) if r.node == node]
        hot = [(r, name) for r in readings if (name := _near(r))]
        gpus = [g for g in view.on_nodes(GpuSample) if g.node == node and (g.throttle_bits or 0) & THERMAL_BITS]
        if hot or gpus:
            what = [f"{r.key} ({r.kind}) {r.celsius:.0f} C, {name} trip {r.trips_celsius[name]:.0f} C" for r, name in hot]
            what += [f"GPU {g.index} slows down for heat at {g.temperature_celsius or 0:.0f} C" for g in gpus]
            yield view.finding(
                "thermal-high",
                grade(observed=True),
                title=f"{node} is hot: {'; '.join(what[:3])}",
                because=[*(r.ref for r, _ in hot[:4]), *(g.ref for g in gpus[:2])],
                severity=Severity.WARNING,
                role=FindingRole.AMPLIFIER,
                nodes=[node],
                since=(hot[0][0] if hot else gpus[0]).at,
                does_not_show="that heat began the trouble",
                next_steps=["check power limits, clocks and fans before the hardware is suspected"],
            )
        if moved := _throttled([t for t in view.on_nodes(ThrottleCount) if t.node == node]):
            yield view.finding(
                "thermal-throttled",
                grade(observed=True),
                title=f"CPUs of {node} were throttled for heat during the capture: {', '.join(t.key for t in moved[:4])}",
                because=[t.ref for t in moved[:4]],
                severity=Severity.WARNING,
                role=FindingRole.AMPLIFIER,
                nodes=[node],
            )


def _near(reading: ThermalReading) -> str:
    """The trip point within reach of this reading, or ""."""
    for name in TRIPS:
        trip = reading.trips_celsius.get(name)
        if trip and reading.celsius >= trip - MARGIN_CELSIUS:
            return name
    return ""


def _throttled(counts: list[ThrottleCount]) -> list[ThrottleCount]:
    """Counters that grew between two samples. Their standing value is a history since boot and says nothing of now."""
    first: dict[str, int] = {}
    grown = []
    for c in sorted(counts, key=lambda c: c.at.earliest_ns if c.at else 0):
        if c.count > first.setdefault(c.key, c.count):
            grown.append(c)
    return grown


RULE = Rule(
    name="thermal_high",
    emits=("thermal-high", "thermal-throttled"),
    about="A sensor is within five degrees of one of its trip points, or a CPU or GPU slows down for heat.",
    any_of=("thermal", "gpu"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Passive trips of laptops and small machines are reached in ordinary work.",
    references=("Linux Documentation/driver-api/thermal", "NVML nvmlClocksEventReason*"),
)
