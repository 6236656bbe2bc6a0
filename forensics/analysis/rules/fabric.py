"""Did the network fail? Only counters of errors that moved say so. A timeout alone never does; counters that stayed refute it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.rules._machine import grave, part, troubles
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, LinkCounter, Severity, TimeRange

FAULTS = frozenset(
    {
        *("symbol_error", "symbol_errors", "symbolerrors", "link_error_recovery", "link_downed", "port_rcv_errors", "portrcverrors"),
        *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors", "linkdowned"),
        *(
            "linkerrorrecovery",
            "linkintegrityerrors",
            "port_xmit_constraint_errors",
            "rx_crc_errors_phy",
            "rx_symbol_err_phy",
            "rx_crc_errors",
        ),
    }
)
"""Counters that only a bad link moves."""
TRANSPORT = frozenset({"local_ack_timeout_err", "req_transport_retries_exceeded", "packet_seq_err", "rnr_nak_retry_err", "rx_discards_phy"})
"""A peer that died moves these as well."""
FAR_NS = 3600 * 10**9
"""Over a longer time than this the counters of a sound link move as well."""
ENOUGH = 3
"""A lone symbol error is within what a healthy link shows in an hour."""


def evaluate(view: View) -> Iterator[Finding]:
    series: dict[tuple[str, str, str, str], list[LinkCounter]] = defaultdict(list)
    for c in view.on_nodes(LinkCounter):
        series[c.node, c.device, c.port, plain(c.counter)].append(c)
    for v in series.values():
        v.sort(key=lambda c: c.at.earliest_ns if c.at else 0)
    pairs = {k: (v[0], v[-1]) for k, v in series.items() if len(v) > 1}
    bad = [(a, b) for k, (a, b) in pairs.items() if k[3] in FAULTS and _moved(k[3], b.value - a.value)]
    weak = [(a, b) for k, (a, b) in pairs.items() if k[3] in TRANSPORT and b.value > a.value]
    if bad or weak:
        yield _moving(view, bad, weak)
        return
    known = [v[-1] for k, v in series.items() if k[3] in FAULTS]
    still = [(a, b) for k, (a, b) in pairs.items() if k[3] in FAULTS]
    asked = bool(view.stall or troubles(view))
    if not known or not asked:
        return
    if not still and any(c.value for c in known):
        raise CannotTell("error counters were read once and are not 0: whether they moved is not known", "a second sample of the counters")
    onset = min((t.earliest_ns for t, _ in troubles(view)), default=None)
    if onset is not None and any(b.value for _, b in still) and all(a.at and a.at.earliest_ns > onset for a, _ in still):
        raise CannotTell("error counters are not 0, and were first read after the trouble began", "the same counters from before")
    against = [c.ref for _, c in still] or [c.ref for c in known]
    data = [b.value - a.value for k, (a, b) in pairs.items() if k[3] in ("port_xmit_data", "port_rcv_data", "portxmitdata", "portrcvdata")]
    moved = f"; data moved by {sum(data)} words" if any(data) else "; no data moved either: nobody sent" if data else ""
    yield view.finding(
        "fabric-fault",
        Grade.REFUTED,
        title=f"The network shows no fault: {len(still) or len(known)} error counters {'did not move' if still else 'are 0'}{moved}",
        because=against,
        against=against[:8],
        does_not_show="links of nodes whose counters were not read, and the switches",
    )


def plain(counter: str) -> str:
    """The name of a counter as FAULTS spells it."""
    return counter.rsplit("/", 1)[-1].lower().replace("-", "_").removesuffix("_counter")


def _moved(counter: str, by: int) -> bool:
    return by >= (ENOUGH if "symbol" in counter else 1)


def _moving(view: View, bad: list[tuple[LinkCounter, LinkCounter]], weak: list[tuple[LinkCounter, LinkCounter]]) -> Finding:
    moved = bad or weak
    at = moved[0][0].at
    role = part(view, at) if at else (FindingRole.ROOT if troubles(view) else FindingRole.CONTEXT)
    onset = min((t for t, _ in troubles(view)), key=lambda t: t.earliest_ns, default=None)
    since, between = at, _within(moved, onset)
    if bad and between:
        role, since = FindingRole.ROOT, onset  # they moved between two looks, and the trouble began between the same two
    if not bad or role is FindingRole.TEARDOWN:
        role = FindingRole.CONTEXT  # counters were read after the onset: they do not date what moved them
    said = ", ".join(f"{a.device} {plain(a.counter)} {a.value} to {b.value}" for a, b in moved[:4])
    refs: list[EvidenceRef] = [r for a, b in moved[:5] for r in (a.ref, b.ref)]
    return view.finding(
        "fabric-fault",
        Grade.ESTABLISHED if bad else Grade.POSSIBLE,
        title=f"Error counters of the network moved: {said}",
        because=refs,
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys(a.node for a, _ in moved)),
        since=since,
        does_not_show=("when they moved: between two looks" if between else "which end of the link is bad")
        if bad
        else "that a link is bad: a peer that died moves these counters too",
        would_settle=["the same counters at the switch"],
    )


def _within(moved: list[tuple[LinkCounter, LinkCounter]], onset: TimeRange | None) -> bool:
    """Whether two looks that are not far apart have the beginning of the trouble between them."""
    looks = [(a.at, b.at) for a, b in moved if a.at and b.at]
    return onset is not None and any(
        a.latest_ns <= onset.earliest_ns <= b.earliest_ns and b.earliest_ns - a.earliest_ns <= FAR_NS for a, b in looks
    )


TEXTS = {
    "fabric-fault": Text(
        says="A port of the fabric has errors: its counters moved, or its link went down.",
        establishes="Error counters that moved between two readings over the incident, on a named port.",
        lower="A timeout of NCCL or of a transfer is no fabric fault: with nothing but that it is possible at most.",
        next_steps=(
            "look at cable, transceiver and switch port of that end",
            "read the counters again in a minute: what stands still is history",
        ),
    ),
}

RULE = Rule(
    name="fabric",
    texts=TEXTS,
    about="Error counters of a network port moved.",
    applies=lambda view: "" if view.on_nodes(LinkCounter) else "no counters of a network port were read",
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Counters of congestion (waits, notifications) are no faults; timeouts of NCCL or of a transfer are none either.",
    references=("Linux /sys/class/infiniband/*/ports/*/counters", "mlx5 hw_counters"),
)
