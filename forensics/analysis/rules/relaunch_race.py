"""The first start after an end failed at the rendezvous or at a port, and the next one, unchanged, worked."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._lived_on import served
from forensics.analysis.rules._rendezvous import MISSING, absences
from forensics.analysis.rules.lifecycle import OF_STARTS
from forensics.analysis.times import duration, iso
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, Severity, TimeRange

RACES = ("symptom-peer-loss", "symptom-nccl-remote-error", "address-in-use", "orphan-rank-from-previous-run")
LIVES_BACK = 8


def evaluate(view: View) -> Iterator[Finding]:
    for life in range(max(1, view.life - LIVES_BACK), view.life):
        failed, after = View(view.case, view.engine, life), View(view.case, view.engine, life + 1)
        why = _failed_in_init(failed)
        ready = served(after)
        if not why or not ready or failed.begun_ns is None or after.begun_ns is None:
            continue
        # without a life before it this was a first start, which races with nobody
        relaunched = life > 1 or bool(View(view.case, view.engine, life - 1).hits)
        yield view.finding(
            "rendezvous-race-on-relaunch",
            grade(observed=relaunched, agreeing=2),
            title=f"The start at {iso(failed.begun_ns)} failed before it was ready, and the next one, "
            f"{duration((after.begun_ns - failed.begun_ns) / 1e9)} later, worked",
            because=[*why[:4], *(h.ref for h in after.events("ready")[:1])],
            severity=Severity.WARNING,
            role=FindingRole.CONTEXT,
            since=TimeRange(earliest_ns=failed.begun_ns, latest_ns=failed.begun_ns, basis="logged"),
            until=ready,
            does_not_show="what was in the way: ports, ranks or memory of the run before, or a peer that was not up yet",
        )


def _failed_in_init(view: View) -> list[EvidenceRef]:
    """Lines that say that this life did not come together; [] where it served, or failed for another reason."""
    if served(view) or any(h.role == "root" and h.feeds not in (*RACES, *OF_STARTS, MISSING) for h in view.hits):
        return []
    absent = [a.hit.ref for a in absences(view)]
    other = [h.ref for h in view.feeding(*RACES) if h.role in ("cascade", "root")]
    return [*absent, *other]


TEXTS = {
    "rendezvous-race-on-relaunch": Text(
        says="The first relaunch failed in its rendezvous, and a later clean start worked: ranks of the old run were still there.",
        establishes="Both attempts in the logs.",
        next_steps=("let a supervisor wait until every process of the old run is gone on every node before it starts anew",),
    ),
}

RULE = Rule(
    name="relaunch_race",
    texts=TEXTS,
    about="A relaunch failed in its rendezvous, and the next clean start worked.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="A start that failed for a reason of its own (memory, a missing file): its lines do not speak of ranks or ports.",
    references=("torch c10d TCPStore.cpp", "torch c10d socket.cpp: the address is in use"),
)
