"""Where TensorRT-LLM's own hang diagnostics place its ranks: different phases or iterations of the executor loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forensics.analysis.rules._contract import grade
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity

LINE = "trtllm-hang-diagnostics"


def by_places(view: View) -> Iterator[Finding]:
    """The divergence that the lines show, if any."""
    said: dict[int, LogHit] = {}
    for hit in view.hits_of(LINE):
        rank = hit.rank if hit.rank is not None else int(hit.fields["rank"])
        said.setdefault(rank, hit)
    places = {rank: (int(h.fields["iteration"]), h.fields["phase"]) for rank, h in said.items()}
    if len(places) < 2 or len(set(places.values())) < 2:
        return
    most, count = Counter(places.values()).most_common(1)[0]
    apart = [rank for rank, place in places.items() if place != most]
    # two against two: either half may be the one that went astray
    alone = apart if len(apart) == 1 and count > 1 else []
    whole = len(places) == view.engine.world_size
    words = "; ".join(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} in {phase} of iteration {iteration}"
        for (iteration, phase) in dict.fromkeys(places.values())
        for ranks in [sorted(r for r, place in places.items() if place == (iteration, phase))]
    )
    # where a rank stands is its own word of one moment, and pipeline stages are an iteration apart by design
    iterations = [iteration for iteration, _ in places.values()]
    apart_enough = len({phase for _, phase in places.values()}) > 1 or max(iterations) - min(iterations) > 1
    yield view.finding(
        "rank-divergence-collective",
        grade(agreeing=2 if apart_enough else 1),
        title=f"The ranks stood at different places when the hang was noticed: {words}",
        because=[said[r].ref for r in (*alone, *(r for r in sorted(said) if r not in alone))][:8],
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        nodes=[said[r].node for r in alone],
        ranks=alone or sorted(places),
        since=view.stall.since
        if view.stall
        else min((h.began for h in said.values() if h.began), key=lambda t: t.earliest_ns, default=None),
        does_not_show="which collective each of them waits in" + ("" if whole else "; not every rank said where it stands"),
        would_settle=["native stacks of every rank", "NCCL RAS or flight recorder counts"],
    )
