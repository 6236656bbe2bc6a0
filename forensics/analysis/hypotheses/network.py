"""Network: ports, their error counters, and whether anything crosses a network at all. A timeout alone is no fault of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.analysis.rules.fabric import FAULTS, plain
from forensics.model import EvidenceRef, LinkCounter, LinkState, Role

LINKS, PEERS, HERE = "the links", "the connections", "the ranks"
FAULTS_FOUND = ("rdma-port-down", "nic-lost", "fabric-fault")
HINTS = (
    *("symptom-peer-loss", "symptom-nccl-remote-error", "kv-transfer-peer-gone", "control-plane-lease-lost"),
    *("rendezvous-peer-missing", "deepep-dispatch-timeout"),
)
"""What a network failure also looks like: consistent with it where nothing else explains them."""
_WORLD = ("vllm-world", "vllm-rank-assigned", "vllm-engine-config")
_SIZE = re.compile(r"world.size|tensor_parallel_size")
_ELSEWHERE = re.compile(r"\(\w+ pid=\d+, ip=|^\[\d+,\d+\]<std")
_TRANSFERS = re.compile(r"kv_connector|kv-transfer|nixl|mooncake|disaggregation", re.I)


def evaluate(ask: Ask) -> Iterator[Told]:
    hints = ask.of(*HINTS) if not ask.root or ask.root in HINTS else []
    alone = _alone(ask)
    for node in ask.view.nodes:
        yield from ask.from_findings(LINKS, *FAULTS_FOUND, node=node)
        yield from ask.from_findings(PEERS, *dict.fromkeys(f.id for f in hints), node=node, decide=False)
        if alone and not hints:
            yield "against", entry(alone[0], node=node, part=HERE, decides=True, ref=alone[1])
        yield from _links(ask, node, needed=not alone)


def _links(ask: Ask, node: str, *, needed: bool) -> Iterator[Told]:
    counters = [c for c in ask.on(node, LinkCounter) if plain(c.counter) in FAULTS]
    clean, words = _clean(ask, counters)
    if words:
        yield "against", entry(f"{words}, read {ask.when(counters[-1].at)}", node=node, part=LINKS, decides=clean, ref=counters[-1].ref)
    states = ask.on(node, LinkState)
    down = [s for s in states if s.state.upper() not in ("ACTIVE", "UP", "LINKUP", "LINK_UP", "UNKNOWN")]
    if states and not down:
        last = states[-1]
        text = f"{len({(s.device, s.port) for s in states})} port(s) up, {last.device} {last.state} {ask.when(last.at)}"
        yield "against", entry(text, node=node, part=LINKS, ref=last.ref)
    if needed and not clean and not ask.of(*FAULTS_FOUND, node=node):
        yield unread(
            "whether error counters moved at the onset" if counters else "error counters of the network ports", node=node, part=LINKS
        )


def _clean(ask: Ask, counters: list[LinkCounter]) -> tuple[bool, str]:
    """(whether no error counter of a node moved at the onset, that in words).

    They count since boot: one that is 0 after the onset was 0 at it; one that is not must have been read before it, too.
    """
    series: dict[tuple[str, str, str], list[LinkCounter]] = {}
    for c in sorted(counters, key=lambda c: c.at.earliest_ns if c.at else 0):
        series.setdefault((c.device, c.port, plain(c.counter)), []).append(c)
    if not series or any(mine[-1].value != mine[0].value for mine in series.values()):
        return False, ""
    standing = sum(1 for mine in series.values() if mine[-1].value)
    words = f"{len(series)} error counters of its ports {'did not move' if standing else 'are 0'}"
    if not ask.troubled:
        return not standing or all(len(mine) > 1 for mine in series.values()), words
    onset = ask.onset
    if onset is None:
        return False, words
    after = all(mine[-1].at is not None and mine[-1].at.latest_ns >= onset.latest_ns for mine in series.values())
    before = all(not mine[-1].value or (mine[0].at and mine[0].at.earliest_ns <= onset.earliest_ns) for mine in series.values())
    return after and before, words


def _alone(ask: Ask) -> tuple[str, EvidenceRef] | None:
    """That all ranks of the engine run on one node, where nothing of it talks to another engine; None where that is not known."""
    view, seen = ask.view, ask.seen
    ranks = {w.rank.rank for w in view.workers if w.rank and w.rank.rank is not None and w.info.node == view.nodes[0]}
    worlds = [h for h in view.hits_of(*_WORLD) if any(_SIZE.search(f) for f in (h.text, *h.fields.values()))]
    titles = [p.info.title for p in view.engine.processes]
    stated = bool(worlds) or any(len(p.info.argv) > 2 for p in view.engine.processes if p.role in (Role.API, Role.LAUNCHER))
    if view.engine.world_size is None or not stated or len(view.nodes) != 1 or not seen.complete:
        return None
    # a log may speak for ranks of other machines: mpirun and Ray gather what theirs say
    if len(ranks) * view.engine.dp_size != len(seen.expected_ranks) or len(ranks) != view.engine.world_size or _gathered(ask):
        return None
    starts = view.events("start", "core-start")
    if any(_TRANSFERS.search(" ".join((h.text, *h.fields.values()))) for h in starts) or any(map(_TRANSFERS.search, titles)):
        return None
    if any(h.feeds.startswith(("kv-", "control-plane")) for h in view.hits):
        return None
    ref = worlds[0].ref if worlds else EvidenceRef(source="process table", locator=view.nodes[0], quote=f"{len(view.workers)} workers")
    who = f"all {len(ranks)} ranks of the engine run" if len(ranks) > 1 else "the engine's only rank runs"
    return f"{who} on this node: nothing between its ranks crosses a network", ref


def _gathered(ask: Ask) -> bool:
    return any(_ELSEWHERE.search(h.ref.quote) or h.engine == "ray" for h in ask.view.hits) or any(
        w.info.title.startswith("ray::") or "RayWorker" in w.info.title for w in ask.view.workers
    )


SUSPICION = Suspicion(
    name="network",
    claim="The network between the engine's parts failed",
    evaluate=evaluate,
    does_not_show="which end of a link is bad",
)
