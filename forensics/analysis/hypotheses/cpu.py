"""CPU: was any left? Ranks that spin while they wait fill CPUs without needing them."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.analysis.rules.cpu_saturated import measured
from forensics.model import CpuSample, HostCpu

CPUS = "the CPUs"
EASY = 0.70
"""Below this share busy (or this load for each CPU) nobody queues for one."""
PRESSED = 10.0
"""Percent of the last ten seconds in which some task waited for a CPU."""


def evaluate(ask: Ask) -> Iterator[Told]:
    for node in ask.view.nodes:
        samples = ask.on(node, HostCpu)
        near = [s for s in samples if ask.near(s.at)]
        pressed = any((s.pressure_some_avg10 or 0) >= PRESSED for s in near)
        spins = bool(ask.of("busy-spin", "idle-cpu-spin", node=node))
        yield from ask.from_findings(CPUS, "cpu-pressure", node=node, decide=bool(near))
        # a full machine is nothing to an engine whose threads were not kept waiting; where that was read it is the better witness
        waits_read = any(c.waited_seconds is not None and ask.view.process(node, c.pid) for c in ask.on(node, CpuSample))
        # and full CPUs are the effect of a standstill where ranks spin; that others queue for them is not
        full = bool(near) and not waits_read and (pressed or not spins)
        yield from ask.from_findings(CPUS, "cpu-saturated", node=node, decide=full)
        if not samples:
            yield unread(CPUS, node=node)
            continue
        yield from _idle(ask, node, ask.nearest(samples), pressed)


def _idle(ask: Ask, node: str, samples: list[HostCpu], pressed: bool) -> Iterator[Told]:
    last = samples[-1]
    busy = measured(samples)
    if busy is None and (idle := [s.idle_fraction for s in samples if s.idle_fraction is not None]):
        busy = 1 - min(idle)
    loads = [s.load1 / s.cpus for s in samples if s.load1 is not None and s.cpus]
    load = f"load {last.load1:g} on {last.cpus} CPUs" if last.load1 is not None and last.cpus else ""
    squeezed = f"pressure {last.pressure_some_avg10:g} %" if last.pressure_some_avg10 is not None else ""
    words = ", ".join(part for part in (f"CPUs {busy:.0%} busy" if busy is not None else "", load, squeezed) if part)
    share = busy if busy is not None else max(loads, default=None)
    if share is None:
        yield unread("how busy the CPUs were", node=node, part=CPUS)
    elif share < EASY and not pressed and not ask.of("cpu-saturated", "cpu-pressure", node=node):
        yield "against", entry(f"{words} {ask.when(last.at)}", node=node, part=CPUS, decides=ask.decides(last.at), ref=last.ref)
        if not ask.decides(last.at):
            yield unread("the CPUs when the trouble began", node=node, part=CPUS)
    else:
        yield unread(f"whether the engine lacked them ({words} {ask.when(last.at)})", node=node, part=CPUS)


SUSPICION = Suspicion(
    name="cpu",
    claim="No CPU was left, which makes any race likelier and every step slower",
    always=True,
    evaluate=evaluate,
    does_not_show="that it began the trouble: a busy host is an amplifier",
)
