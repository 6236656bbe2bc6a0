"""Heat: sensors against their own trip points, and what GPUs say of their clocks."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.analysis.rules._gpus import THERMAL
from forensics.analysis.rules.thermal_high import PASSIVE, TRIPS
from forensics.model import GpuSample, ThermalReading

SENSORS, GPUS, GONE = "the sensors", "the GPUs' temperature", "the machine"


def evaluate(ask: Ask) -> Iterator[Told]:
    for node in ask.view.nodes:
        gpus = ask.on(node, GpuSample)
        slowed = any((g.throttle_bits or 0) & THERMAL and ask.near(g.at) for g in gpus)
        yield from ask.from_findings(GPUS if slowed else SENSORS, "thermal-throttled", node=node)
        # near a trip point is warm; that clocks were lowered for it is the effect itself
        yield from ask.from_findings(SENSORS, "thermal-high", node=node, decide=False)
        if ask.root in ("", "host-stopped-logging"):  # else it is known what stopped the machine
            yield from ask.from_findings(GONE, "host-stopped-logging", node=node, decide=False)
        no_sensor, no_gpu = ask.absent("thermal", node), ask.absent("gpu", node)
        if not no_sensor:
            yield from _sensors(ask, node)
        if not no_gpu:
            yield from _gpus(ask, node, gpus)
        if no_sensor and no_gpu:
            yield unread("heat: this machine shows no sensor and no GPU", node=node)


def _sensors(ask: Ask, node: str) -> Iterator[Told]:
    tripped = [(r, limit) for r in ask.on(node, ThermalReading) if (limit := _limit(r))]
    if not tripped:
        yield unread("the sensors and their trip points", node=node, part=SENSORS)
        return
    at_hand = {id(r) for r in ask.nearest(r for r, _ in tripped)}
    closest, (name, trip) = min(((r, t) for r, t in tripped if id(r) in at_hand), key=lambda pair: pair[1][1] - pair[0].celsius)
    text = f"{closest.key} ({closest.kind}) had {closest.celsius:.0f} C against a {name} trip of {trip:.0f} C {ask.when(closest.at)}"
    hot = bool(ask.of("thermal-high", "thermal-throttled", node=node))
    yield "against", entry(text, node=node, part=SENSORS, decides=ask.decides(closest.at) and not hot, ref=closest.ref)
    if not ask.decides(closest.at):
        yield unread("the sensors when the trouble began", node=node, part=SENSORS)


def _limit(reading: ThermalReading) -> tuple[str, float] | None:
    """The lowest trip point of a sensor that means something, with its name."""
    known = [(trip, name) for name in (*TRIPS, PASSIVE) if (trip := reading.trips_celsius.get(name))]
    return (min(known)[1], min(known)[0]) if known else None


def _gpus(ask: Ask, node: str, samples: list[GpuSample]) -> Iterator[Told]:
    read = [g for g in samples if g.throttle_bits is not None or g.temperature_celsius is not None]
    if not read:
        yield unread(GPUS, node=node)
        return
    near = ask.nearest(read)
    hottest = max(near, key=lambda g: g.temperature_celsius or 0)
    # one GPU whose reasons are unknown leaves the question open
    told = all(g.throttle_bits is not None for g in near)
    clean = told and not any((g.throttle_bits or 0) & THERMAL for g in near)
    warm = (
        f"the hottest of {len({g.index for g in near})} GPU(s) had {hottest.temperature_celsius:.0f} C"
        if hottest.temperature_celsius
        else ""
    )
    words = ", ".join(part for part in (warm, "no clock was lowered for heat" if clean else "") if part)
    if words:
        yield (
            "against",
            entry(f"{words} {ask.when(hottest.at)}", node=node, part=GPUS, decides=clean and ask.decides(hottest.at), ref=hottest.ref),
        )
    if not told:
        yield unread("whether GPUs lowered their clocks for heat", node=node, part=GPUS)
    elif not ask.decides(hottest.at):
        yield unread("the GPUs when the trouble began", node=node, part=GPUS)


SUSPICION = Suspicion(
    name="thermal",
    claim="Heat was at work: a sensor at its limit, or clocks lowered for it",
    always=True,
    evaluate=evaluate,
    does_not_show="that heat began the trouble",
)
