"""An allocation on the GPU failed, and the engine did not outlive it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, outlived, part, troubles
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, Severity


def evaluate(view: View) -> Iterator[Finding]:
    told = view.feeding("gpu-oom")
    failed = [h for h in told if h.role == "root"] or told
    # an engine may catch it: while it measures how much fits, or for one request
    fatal = [h for h in failed if not (h.at and outlived(view, h.at))]
    if not failed:
        return
    shown = fatal or failed
    first = next((h for h in shown if h.at), shown[0])
    ranks = {h.rank if h.rank is not None else view.rank_of(h.node, h.pid) for h in shown}
    alone = len(ranks) == 1 and None not in ranks
    # of a plain job nothing but its exceptions is heard
    ended = bool(troubles(view)) or (view.engine.kind == "torchrun" and not view.engine.processes and not view.progress.measured)
    role = part(view, first.at) if fatal and ended else FindingRole.CONTEXT
    survived = not fatal or view.moving  # seen at work after it; a log that was cut there tells neither
    fields = first.fields
    asked = f": {fields['asked']} asked" + (f", {fields['free']} free" if fields.get("free") else "") if fields.get("asked") else ""
    yield view.finding(
        "gpu-oom",
        Grade.ESTABLISHED if any(h.role == "root" for h in shown) else Grade.SUPPORTED,
        title=f"GPU memory ran out{asked}" + ("; the engine went on" if survived and not (fatal and ended) else ""),
        because=[h.ref for h in shown[:6]],
        severity=Severity.CRITICAL if grave(role) else Severity.INFO if survived else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys(h.node for h in shown)),
        ranks=[r for r in ranks if r is not None] if alone else [],
        since=first.at,
        does_not_show="who holds the memory: another process on the GPU looks the same"
        + ("" if alone else "; which rank ran out first")
        + ("" if survived or ended else "; whether the engine outlived it: nothing is read of it afterwards"),
    )


TEXTS = {
    "gpu-oom": Text(
        says="An allocation on the GPU failed and ended the engine or its start.",
        establishes="The allocator's own error in a traceback that ended the worker.",
        next_steps=("compare with nvidia-smi: memory of other processes on that GPU", "lower gpu_memory_utilization or the batch"),
    ),
}

RULE = Rule(
    name="gpu_oom",
    texts=TEXTS,
    about="A GPU allocation failed and ended the engine, or its start.",
    requires=("log",),
    optional=("gpu",),
    evaluate=evaluate,
    false_positives="Lines of advice about the allocator, and errors that the engine catches while it sizes its cache.",
    references=("pytorch c10/cuda/CUDACachingAllocator.cpp",),
)
