"""Ranks that must hold the same batch hold different ones at the same step."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity

STEP = ("step", "iteration", "iter")
"""Fields that number a step."""
BATCH = ("scheduled", "context_requests", "ctx", "generation_requests", "gen", "allowed", "tokens", "states")
"""Fields that say what is in it."""


def evaluate(view: View) -> Iterator[Finding]:
    steps: dict[tuple[str, int], dict[int, tuple[dict[str, str], LogHit]]] = {}
    for hit in view.hits:
        number = next((hit.fields[f] for f in STEP if hit.fields.get(f, "").isdigit()), None)
        batch = {f: hit.fields[f] for f in BATCH if hit.fields.get(f)}
        rank = view.rank_of(hit.node, hit.pid)
        rank = hit.rank if hit.rank is not None else rank
        if number is not None and batch and rank is not None:
            steps.setdefault((hit.signature, int(number)), {})[rank] = (batch, hit)
    for (signature, step), ranks in sorted(steps.items(), key=lambda item: item[0][1]):
        if len(ranks) > 1 and len({repr(batch) for batch, _ in ranks.values()}) > 1:
            yield _finding(view, signature, step, ranks, steps)
            return


def _finding(
    view: View,
    signature: str,
    step: int,
    ranks: dict[int, tuple[dict[str, str], LogHit]],
    steps: dict[tuple[str, int], dict[int, tuple[dict[str, str], LogHit]]],
) -> Finding:
    held = {rank: ", ".join(f"{k} {v}" for k, v in batch.items()) for rank, (batch, _) in ranks.items()}
    # that the steps before agree shows that these ranks share a batch, as those of one replica do
    before = [found for (name, n), found in steps.items() if name == signature and step - 8 <= n < step and set(found) == set(ranks)]
    agreed = bool(before) and all(len({repr(b) for b, _ in found.values()}) == 1 for found in before)
    ended = view.stall is not None or bool(view.events("hang", "timeout", "fatal"))
    others = [] if agreed else ["ranks that attend to different requests hold different batches in a healthy run"]
    hits = [hit for _, hit in ranks.values()]
    dated = [h.at for h in hits if h.at]
    return view.finding(
        "rank-divergence-batch",
        grade(observed=True, alternatives=others) if ended else grade(observed=agreed, whole=False),
        title=f"At step {step} ranks hold different batches: " + "; ".join(f"rank {r}: {t}" for r, t in sorted(held.items())[:6])[:200],
        because=[h.ref for h in hits[:6]],
        severity=Severity.CRITICAL if ended else Severity.WARNING,
        role=FindingRole.ROOT if ended and agreed else FindingRole.CONTEXT,
        processes=[w for w in view.workers if w.rank and w.rank.rank in ranks],
        ranks=sorted(ranks),
        since=min(dated, key=lambda t: t.earliest_ns, default=None),
        does_not_show="which of them decided rightly, and on what they decided differently",
        would_settle=["what each rank admitted and refused at that step, and the free blocks that it counted"],
    )


RULE = Rule(
    name="rank_batch",
    emits=("rank-divergence-batch",),
    about="Ranks of one replica hold different batches, or decided differently on admission, at the same step.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Ranks with attention data parallelism hold different requests by design: their earlier steps differ too.",
    references=("TensorRT-LLM _torch/pyexecutor/py_executor.py iteration log",),
)
