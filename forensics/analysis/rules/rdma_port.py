"""A port of the network for RDMA went down. One that came back by itself before anything broke is listed, and not blamed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, part, weight
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, LinkState, LogHit, LogSpan, TimeRange

SAME_NS = 3 * SECOND
BROKE_NS = 900 * SECOND
"""How long after a port went down what it carried may still give up: the longest limit of a transfer or a collective (600 s), and more."""
UNSTABLE_NS = 3600 * SECOND
_DOWN = re.compile(r"down|error", re.I)


@dataclass(frozen=True)
class _Edge:
    at: TimeRange | None
    down: bool
    ref: EvidenceRef


@dataclass
class _Outage:
    down: list[_Edge]
    up: _Edge | None = None

    @property
    def since(self) -> TimeRange | None:
        return self.down[0].at


def evaluate(view: View) -> Iterator[Finding]:
    ports = _ports(view)
    broke = _broke(view) if ports else []
    # ports come up and go while a machine boots
    begun = min((s.first_ns for s in view.on_nodes(LogSpan) if s.first_ns is not None), default=None)
    for (node, port), edges in ports.items():
        outages = [o for o in _outages(edges) if not (o.up and o.up.at and begun and o.up.at.latest_ns < begun)]
        if not outages:
            continue
        last = outages[-1]
        blamed = last if last.since is None or last.up is None or (broke and _covers(last, broke)) else None
        shown = blamed or last
        role = _part(view, shown.since, broke) if blamed else FindingRole.CONTEXT
        flaps = [o for o in outages if o is not shown and o.up]
        # a port that is unstable has been so since it first flapped: that is when the incident began
        began = next((o.since for o in outages if grave(role) and _shortly(o, shown)), shown.since)
        before = "".join(f"; it had flapped before ({_span(o)}), and recovered by itself" for o in flaps[-2:])
        ended = f" and did not come back{before}" if not shown.up else f" and came back at {_when(shown.up)}{before}"
        yield view.finding(
            "rdma-port-down",
            Grade.ESTABLISHED,
            title=f"Port {port} of {node} went down at {_when(shown.down[0])}{ended}",
            because=[e.ref for o in (shown, *reversed(flaps)) for e in (*o.down[:3], *([o.up] if o.up else []))],
            severity=weight(view, role, shown.since),
            role=role,
            nodes=[node],
            since=began,
            until=shown.up.at if shown.up and not blamed else None,
            does_not_show="why: cable, switch or card; and which ranks used this port",
        )


def _ports(view: View) -> dict[tuple[str, str], list[_Edge]]:
    """Edges of each port in order of time. The kernel and NCCL call one port alike ("mlx5_3" and port 1) where the driver names it."""
    out: dict[tuple[str, str], list[_Edge]] = defaultdict(list)
    for e in view.kernel_feeding("rdma-port-down"):
        if e.signature != "kernel-rdma-cable":
            name = e.fields.get("device") or e.fields["bus"]
            out[e.node, f"{name}/{e.fields.get('port') or '1'}"].append(_Edge(e.at, e.role == "root", e.ref))
    for h in view.feeding("rdma-port-down"):
        event = h.fields.get("event", "")
        if event in ("port error", "port active"):
            out[h.node, f"{h.fields.get('device') or 'of unknown name'}/{h.fields.get('port') or '1'}"].append(
                _Edge(h.at, event == "port error", h.ref)
            )
    for s in view.on_nodes(LinkState):
        # a port that is down and was never said to go down may never have been cabled
        if (key := (s.node, f"{s.device}/{s.port or '1'}")) in out:
            out[key].append(_Edge(s.at, bool(_DOWN.search(s.state)), s.ref))
    for edges in out.values():
        edges.sort(key=lambda e: e.at.earliest_ns if e.at else 0)
    return {k: v for k, v in out.items() if any(e.down for e in v)}


def _outages(edges: list[_Edge]) -> list[_Outage]:
    out: list[_Outage] = []
    for edge in edges:
        if edge.down and (not out or out[-1].up):
            out.append(_Outage([edge]))
        elif edge.down:
            out[-1].down.append(edge)
        elif out and not out[-1].up:
            out[-1].up = edge
    return out


def _broke(view: View) -> list[TimeRange]:
    """When something broke, in this engine or in one that it talks to."""
    hits: list[LogHit] = [h for h in view.case.of(LogHit) if h.event in ("fatal", "worker-death", "told", "exception", "hang", "timeout")]
    hits += [h for h in view.case.of(LogHit) if h.role in ("root", "cascade") and h.feeds.startswith(("kv-", "symptom-", "nccl-"))]
    own = [view.stall.since] if view.stall and not view.stall.until else []
    return [*(at for h in hits if (at := h.began)), *own]


def _covers(outage: _Outage, broke: list[TimeRange]) -> bool:
    """Whether something broke while the port was down, or gave up soon after."""
    up = outage.up.at.latest_ns if outage.up and outage.up.at else None
    return any(
        outage.since and outage.since.earliest_ns <= b.latest_ns + SAME_NS and (up is None or b.earliest_ns <= up + SAME_NS) for b in broke
    )


def _part(view: View, since: TimeRange | None, broke: list[TimeRange]) -> FindingRole:
    own = part(view, since)
    if own is not FindingRole.CONTEXT or since is None:
        return own
    follows = any(-SAME_NS <= b.latest_ns - since.earliest_ns <= BROKE_NS for b in broke)
    return FindingRole.ROOT if follows else FindingRole.CONTEXT


def _shortly(first: _Outage, last: _Outage) -> bool:
    return bool(first.since and last.since and last.since.earliest_ns - first.since.earliest_ns <= UNSTABLE_NS)


def _when(edge: _Edge) -> str:
    return iso(edge.at.earliest_ns if edge.at else None)


def _span(o: _Outage) -> str:
    return f"{_when(o.down[0])} to {_when(o.up) if o.up else '?'}"


TEXTS = {
    "rdma-port-down": Text(
        says="A port that carries RDMA went down: transfers over it fail from then on.",
        establishes="The driver's line, NCCL's async event, or the port's state.",
        lower="Supported: it came up again before anything broke.",
        next_steps=("read the port's error counters and the switch's log", "look at cable and transceiver, and whether the link flaps"),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="rdma_port",
    texts=TEXTS,
    about="A port that carries RDMA went down.",
    any_of=("kernel", "log"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A flap that recovered before anything broke; a port that was never cabled.",
    references=("NCCL src/transport/net_ib.cc ncclIbAsyncThreadMain", "mlx5_core"),
)
