"""Not everybody came: the ranks of a job met at a store, a barrier or a full mesh, and some stayed away."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forensics.analysis.rules._advice import RACE, TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._lived_on import served_after
from forensics.analysis.rules._rendezvous import COUNTED, MISSING, UNSEEN, Absence, absences, unseen_nodes
from forensics.analysis.times import duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Severity

UNREACHED = ("c10d-client-timed-out", "c10d-client-timed-out-seconds", "torch-elastic-rendezvous-unreachable")


def evaluate(view: View) -> Iterator[Finding]:
    found = absences(view)
    if not found:
        return
    # a line that counts says most; of several the first in time
    best = next((a for a in found if a.signature in COUNTED and _short(a)), None) or found[0]
    over = served_after(view, best.hit)  # a launcher that tried again, and met
    if over and best.signature not in COUNTED:
        return
    counted = best.signature in COUNTED and _short(best)
    limit = duration(best.hit.limit_s) if best.hit.limit_s else best.fields.get("timeout", "")
    within = f" within {limit}" if limit else ""
    nodes = unseen_nodes(view, best)
    where = f"; nothing was read of {', '.join(nodes)}" if nodes and UNSEEN not in nodes else ""
    finding = view.finding(
        MISSING,
        grade(observed=counted, agreeing=2),
        title=f"{_what(best)}{within}{where}",
        because=[a.hit.ref for a in (best, *(a for a in found if a is not best))][:6],
        severity=Severity.INFO if over else Severity.CRITICAL,
        role=FindingRole.CONTEXT if over else FindingRole.ROOT,
        nodes=dict.fromkeys([*(a.hit.node for a in found), *(n for n in nodes if n != UNSEEN)]),
        since=best.hit.at,
        until=over,
        does_not_show="why they did not come: never started, died before, could not reach this node, or were told another address or world",
        would_settle=["the log of the nodes whose ranks are missing, from the same minutes"],
    )
    # the node that waited is no place to look at where those that stayed away are not known
    yield msgspec.structs.replace(finding, nodes=()) if UNSEEN in nodes else finding


def _what(best: Absence) -> str:
    at = f" at {iso(best.hit.at.earliest_ns)}" if best.hit.at else ""
    if best.signature in COUNTED and best.joined is not None and best.expected:
        gap = best.expected - best.joined
        return f"{best.joined} of {best.expected} ranks came to the rendezvous that failed{at}: {gap} did not come"
    if best.signature in UNREACHED:
        to = f" ({best.fields['host'].strip()}, port {best.fields['port']})" if best.fields.get("host") else ""
        return f"The rank that listens{to} was not reached, and the rendezvous failed{at}"
    if keys := best.fields.get("keys", ""):
        source = f" of rank {best.fields['source_rank']}" if best.fields.get("source_rank") else ""
        return f"Another rank's word{source} did not come to the store (key {keys[:80]}), and the rendezvous failed{at}"
    return f"Not every rank came, and the rendezvous failed{at}"


def _short(absence: Absence) -> bool:
    joined, expected = absence.joined, absence.expected
    return joined is not None and expected is not None and joined < expected


TEXTS = {
    "rendezvous-peer-missing": Text(
        says="Not all ranks came to the rendezvous of a start.",
        establishes="The store's own count: k of N joined within its limit.",
        lower="Supported: a client's word, without the count.",
        next_steps=(
            "do not raise the limit of the rendezvous before it is known whether the missing ranks were started at all",
            "look at the nodes whose ranks did not come: their own logs say why",
        ),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="rendezvous",
    texts=TEXTS,
    about="Some ranks of the job did not come to the rendezvous of its start.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A first attempt whose launcher tried again and met: reported as over. The line of a client that still tries is none.",
    references=("torch c10d TCPStore.cpp waitForWorkers", "torch distributed_c10d.py _store_based_barrier"),
)
