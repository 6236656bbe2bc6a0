"""A patch: has it a part in the failure? Only where it was live; and where it was live, it was not enough against it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told, entry, unread
from forensics.model import Finding

LIVE = "the patch"


def evaluate(ask: Ask) -> Iterator[Told]:
    if not ask.troubled:
        yield unread("a failure: nothing that was seen says that anything broke", part=LIVE)
        return
    live, absent, blind = (_of(ask, *ids) for ids in (("patch-live",), ("patch-absent", "patch-stale"), ("patch-unreadable",)))
    stated = [str(p["name"]) for p in ask.view.case.patches]
    if not (live or absent or blind):
        known = f"those stated are {', '.join(stated)}" if stated else "no patches.toml is among the inputs"
        yield unread(f"a witness of this patch: {known}", part=LIVE)
        return
    alone = _only_where_it_broke(ask, live, absent)
    for node in ask.view.nodes:
        here = [f for f in live if node in f.nodes]
        for f in here:
            words = (
                "live in exactly the ranks that broke first, and in no other"
                if alone
                else f"{f.title}: not sufficient against this failure"
            )
            yield "for", entry(words, node=node, part=LIVE, decides=alone, finding=f.id, ref=f.because[0])
        gone = [f for f in absent if node in f.nodes]
        for f in gone:
            # a process without it does not clear the ones with it
            yield "against", entry(f.title, node=node, part=LIVE, decides=not here, finding=f.id, ref=f.because[0])
        for f in [f for f in blind if node in f.nodes]:
            yield unread(f.title, node=node, part=LIVE)
        if not (here or gone or any(node in f.nodes for f in blind)):
            yield unread("whether the patch is live", node=node, part=LIVE)


def _of(ask: Ask, *ids: str) -> list[Finding]:
    return [f for f in ask.of(*ids) if f'"{ask.argument}"' in f.title]


def _only_where_it_broke(ask: Ask, live: list[Finding], absent: list[Finding]) -> bool:
    """Whether the ranks that have it are exactly those that broke first, and others were seen without it."""
    broke = {r for f in ask.findings if f.id == ask.root for r in f.ranks}
    having = {r for f in live for r in f.ranks}
    lacking = {r for f in absent for r in f.ranks}
    return bool(broke) and having == broke and bool(lacking) and not lacking & having


SUSPICION = Suspicion(
    name="patch",
    claim='Patch "{argument}" has a part in the failure',
    takes="NAME",
    evaluate=evaluate,
    does_not_show="that it is bad, or that it is good: only a comparison without it tells",
)
