"""Ranks that must hold the same batch hold different ones at the same step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, ProgressSample, Severity

Told = LogHit | ProgressSample
SAME_STEP_NS = 60 * SECOND
"""Ranks of one replica print a step within moments; the same number at another time is another run's."""
STEP = ("step", "iteration", "iter")
"""Fields that number a step."""
BATCH = ("scheduled", "context_requests", "ctx", "generation_requests", "gen", "allowed", "tokens", "states")
"""Fields that say what is in it."""


def evaluate(view: View) -> Iterator[Finding]:
    steps: dict[tuple[str, int], dict[int, tuple[dict[str, str], Told]]] = {}
    for s in view.of(ProgressSample):
        # lines that every rank prints with each step, numbered; a restart counts anew
        if not (s.step and s.rank is not None and s.at and "steps" in s.counters and s.running is not None) or view.past:
            continue
        peers = steps.setdefault(("", int(s.counters["steps"])), {})
        apart = [s.at.earliest_ns - other.at.earliest_ns for _, other in peers.values() if other.at]
        if max(apart, default=0) > SAME_STEP_NS:
            peers.clear()
        if min(apart, default=0) >= -SAME_STEP_NS:
            peers[s.rank] = ({"requests": f"{s.running:g}"}, s)
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
    ranks: dict[int, tuple[dict[str, str], Told]],
    steps: dict[tuple[str, int], dict[int, tuple[dict[str, str], Told]]],
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
        processes=[w for w in view.workers if w.rank and w.rank.rank in (_alone(held) or ranks)],
        ranks=_alone(held) or sorted(ranks),
        since=min(dated, key=lambda t: t.earliest_ns, default=None),
        does_not_show="which of them decided rightly, and on what they decided differently",
        would_settle=["what each rank admitted and refused at that step, and the free blocks that it counted"],
    )


def _alone(held: dict[int, str]) -> list[int]:
    """The one rank that holds something else than all its peers, of which there are several; [] where there is no such one."""
    most, count = Counter(held.values()).most_common(1)[0]
    odd = [rank for rank, batch in held.items() if batch != most]
    return odd if len(odd) == 1 and count >= 2 else []


TEXTS = {
    "rank-divergence-batch": Text(
        says="Ranks of one replica hold different batches at the same step: their next collective cannot match.",
        establishes="Per-rank lines or dumps of the same step that differ.",
        next_steps=(
            "look for what each rank decides by itself: time, randomness, memory, the order of arrivals",
            "take the lines of the first step that differs: later ones follow",
        ),
    ),
}

RULE = Rule(
    name="rank_batch",
    texts=TEXTS,
    about="Ranks of one replica hold different batches, or decided differently on admission, at the same step.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Ranks with attention data parallelism hold different requests by design: their earlier steps differ too.",
    references=("TensorRT-LLM _torch/pyexecutor/py_executor.py iteration log",),
)
