"""May times of several nodes be compared? Not below what their clocks may be apart, and not across a step of one of them."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import ClockState, Finding, Grade, KernelEvent, LogSpan, Severity

STEP_S = 0.5
"""A smaller step moves no line of a log past another that matters."""
LARGE_S = 1.0
"""Clocks that may be further apart than this leave the order of most events open."""
AROUND_NS = 3600 * SECOND
"""A word of a time server that was lost holds until another one was found: that is seldom longer."""


def evaluate(view: View) -> Iterator[Finding]:
    several = len(view.nodes) > 1
    states = {node: _state(view.case.on(node, ClockState)) for node in view.nodes}
    told = [e for e in view.kernel_feeding("clock-unsynchronised") if _concerns(view, e)]
    stepped = [e for e in told if "step" in e.fields or "direction" in e.fields]
    if stepped:
        yield _stepped(view, stepped)
    if not several:
        return
    adrift = {n: s for n, s in states.items() if s and not s[0].synchronised}
    lost = [e for e in told if e not in stepped]
    if adrift or lost:
        yield _adrift(view, adrift, lost)
        return
    aligned = {c.node for c in view.case.clocks if c.bound_ns is not None}
    errors = {n: s[0].error_s for n, s in states.items() if s and s[0].error_s is not None}
    unknown = [n for n in view.nodes if n not in aligned and n not in errors]
    worst = sorted((e for n, e in errors.items() if n not in aligned and e is not None), reverse=True)[:2]
    if unknown or sum(worst) > LARGE_S:
        yield from _apart(view, unknown, sum(worst), [s[0] for n, s in states.items() if s and n in errors])


def _state(readings: list[ClockState]) -> tuple[ClockState, bool] | None:
    """(the witness that counts, whether all agree).

    A time daemon knows; the kernel's flag stays up where chrony was not told to clear it.
    """
    if not readings:
        return None
    best = next((r for r in readings if r.via != "adjtimex"), readings[-1])
    return best, len({r.synchronised for r in readings}) == 1 and len({r.via for r in readings}) > 1


def _concerns(view: View, event: KernelEvent) -> bool:
    """Whether it fell into the time of the engine's logs: at boot every clock is set."""
    spans = [s for s in view.on_nodes(LogSpan) if s.node == event.node and s.first_ns is not None and s.last_ns is not None]
    if event.at is None or not spans:
        return False
    begun, ended = min(s.first_ns or 0 for s in spans), max(s.last_ns or 0 for s in spans)
    early = 0 if "step" in event.fields or "direction" in event.fields else AROUND_NS
    small = abs(float(event.fields.get("step", "1"))) < STEP_S
    return begun - early <= event.at.earliest_ns <= ended and not small


def _stepped(view: View, stepped: list[KernelEvent]) -> Finding:
    first = stepped[0]
    by = f" by {float(first.fields['step']):+.1f} s" if "step" in first.fields else ""
    more = f", and {len(stepped) - 1} more times" if len(stepped) > 1 else ""
    return view.finding(
        "clock-unsynchronised",
        Grade.ESTABLISHED,
        title=f"The clock of {first.node} was set{by} at {iso(first.at.earliest_ns if first.at else None)}{more}: "
        "lines before and after it are not that far apart",
        because=[e.ref for e in stepped[:6]],
        severity=Severity.WARNING,
        nodes=dict.fromkeys(e.node for e in stepped),
        since=first.at,
        does_not_show="how far off the clock was at any other time",
        next_steps=["compare times of this node on one side of the step only, or by the kernel's count since boot"],
    )


def _adrift(view: View, adrift: dict[str, tuple[ClockState, bool]], lost: list[KernelEvent]) -> Finding:
    nodes = dict.fromkeys((*adrift, *(e.node for e in lost)))
    # the kernel alone says so of a machine whose chrony leaves its flag up
    sure = any(state.via != "adjtimex" or agreed for state, agreed in adrift.values())
    errors = [state.error_s for state, _ in adrift.values() if state.error_s is not None]
    bound = f" (it may be {duration(max(errors))} off)" if errors and len(nodes) == 1 else ""
    return view.finding(
        "clock-unsynchronised",
        Grade.ESTABLISHED if sure else Grade.SUPPORTED,
        title=f"No time server keeps the clock of {', '.join(nodes)}{bound}: the order of events across nodes is uncertain",
        because=[*(state.ref for state, _ in adrift.values()), *(e.ref for e in lost[:4])],
        severity=Severity.WARNING,
        nodes=nodes,
        does_not_show="how far its clock really is off: one that nobody keeps may still be right",
        would_settle=["the offset of each node from one time server (`chronyc tracking`, `ntpq -p`)"],
    )


def _apart(view: View, unknown: list[str], error_s: float, read: list[ClockState]) -> Iterator[Finding]:
    spans = {s.node: s.ref for s in view.on_nodes(LogSpan) if not unknown or s.node in unknown}
    because = [*list(spans.values())[:4], *(r.ref for r in read[:2])]
    if not because:
        return
    who = f"How far the clocks of {', '.join(unknown[:4])} are off was not recorded" if unknown else "The clocks are not kept closely"
    left = f" and {len(unknown) - 4} more nodes" if len(unknown) > 4 else ""
    bound = f", those of the others by up to {duration(error_s)}" if unknown and error_s > LARGE_S else ""
    bound = f": they may be {duration(error_s)} apart" if not unknown else bound
    yield view.finding(
        "clock-unsynchronised",
        Grade.POSSIBLE,
        title=f"{who}{left}{bound}: events of two nodes that are close in time have no certain order",
        because=because,
        nodes=unknown or view.nodes,
        does_not_show="that any clock is wrong",
        would_settle=["the clock collector on every node, or the offset of each from one time server when the logs were written"],
    )


TEXTS = {
    "clock-unsynchronised": Text(
        says="A node's clock is not kept in step, or was set while the engine ran: the order of events across nodes is uncertain.",
        establishes="A time daemon's own word, several witnesses that agree, or the kernel's line that the clock was set.",
        lower="Supported: the kernel's flag alone. Possible: nobody read the clock of one of several nodes.",
        next_steps=(
            "let a time server keep every node's clock before the next incident",
            "until then believe the order within one node, not across nodes",
        ),
    ),
}

RULE = Rule(
    name="clock_unsynchronised",
    texts=TEXTS,
    about="The clocks of an engine's nodes may be apart, or one of them was set while the engine ran.",
    any_of=("clock", "log"),
    optional=("kernel",),
    evaluate=evaluate,
    false_positives="chrony without `rtcsync` keeps the clock and leaves the kernel's flag up: the kernel alone is no more than supported.",
    references=("adjtimex(2): STA_UNSYNC, maxerror", "chronyc(1): tracking", "chrony.conf(5): rtcsync"),
)
