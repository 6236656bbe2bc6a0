"""An assertion in a GPU kernel failed: mostly an index that is out of range. The process can use its GPU no more."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import ENDS, grave, outlived, part
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, Severity


def evaluate(view: View) -> Iterator[Finding]:
    hits = [h for h in view.feeding("cuda-device-assert") if not (h.at and outlived(view, h.at))]
    if not hits:
        return
    at = min((h.at for h in hits if h.at), key=lambda t: t.earliest_ns, default=None)
    ranks = {h.rank if h.rank is not None else view.rank_of(h.node, h.pid) for h in hits}
    alone = len(ranks) == 1 and None not in ranks
    assertion = next((h.fields["what"] for h in hits if h.signature == "cuda-kernel-assertion"), "")
    role = part(view, at)
    if role is FindingRole.CONTEXT and not any(h.at and at and h.at.before(at) for h in view.events(*ENDS)):
        role = FindingRole.ROOT  # the error stays: nothing that runs on this GPU in this process comes after it
    yield view.finding(
        "cuda-device-assert",
        Grade.ESTABLISHED,
        title="An assertion in a GPU kernel failed" + (f": {assertion}" if assertion else ""),
        because=[h.ref for h in hits[:6]],
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys(h.node for h in hits)),
        ranks=[r for r in ranks if r is not None] if alone else [],
        since=at,
        does_not_show="which request did it, and from where the wrong value came" + ("" if alone else "; which rank was first"),
        would_settle=["a run with CUDA_LAUNCH_BLOCKING=1: its traceback names the operation"],
    )


TEXTS = {
    "cuda-device-assert": Text(
        says="An assertion in a GPU kernel failed, mostly an index out of range; the process has lost its GPU and must end.",
        establishes="The assertion's line, or CUDA error 710 of that process.",
        next_steps=("compare token ids and lengths of the last requests with the vocabulary and max_model_len",),
    ),
}

RULE = Rule(
    name="device_assert",
    texts=TEXTS,
    about="An assertion in a GPU kernel failed, by which the process lost its GPU.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Test runs that provoke it: an engine that moves afterwards was another process.",
    references=("CUDA runtime error 710",),
)
