"""A kernel on a GPU touched memory that it may not. Where it was noticed is not where it happened, nor who did it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, outlived, part
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity, TimeRange

OF_GPU = ("gpu-off-bus", "gpu-ecc-contained", "gpu-hardware-failure", "gpu-nvlink-fault", "gpu-mmu-fault", "gpu-xid")
NEAR_NS = 60 * 10**9
EXACT = ("illegal", "ILLEGAL", "misaligned")


def evaluate(view: View) -> Iterator[Finding]:
    hits = [h for h in view.feeding("cuda-illegal-access") if h.role == "root" and not (h.at and outlived(view, h.at))]
    exact = [h for h in hits if any(w in h.fields.get("what", "") for w in EXACT)]
    seen = [e for e in view.kernel_feeding(*OF_GPU) if e.role == "root"]
    if not hits or (not exact and any(e.feeds != "gpu-mmu-fault" and e.fields.get("code") != "13" for e in seen)):
        return  # a launch that failed because the GPU did
    at = min((h.at for h in hits if h.at), key=lambda t: t.earliest_ns, default=None)
    ranks = {h.rank if h.rank is not None else view.rank_of(h.node, h.pid) for h in hits}
    # one process says it twice, by its pid and as a rank; nameless lines may be of anybody
    alone = None not in ranks and len(ranks) == 1
    alone = alone and all(d.fields.get("rank") in (None, *(str(r) for r in ranks)) for d in view.events("worker-death"))
    role = _part(view, at)
    driver = [e for e in seen if e.feeds == "gpu-mmu-fault" or e.fields.get("code") == "13"]
    driver = [e for e in driver if e.at and at and at.earliest_ns - NEAR_NS <= e.at.earliest_ns <= at.latest_ns + NEAR_NS]
    if driver and role is FindingRole.ROOT:
        role = FindingRole.CASCADE  # the driver's own line says more: on which GPU
    where = next((h.fields["what"] for h in exact or hits if h.fields.get("what")), "")
    count = sum(h.count for h in hits)
    yield view.finding(
        "cuda-illegal-access",
        Grade.ESTABLISHED if exact else Grade.SUPPORTED,
        title=f"CUDA reported {where.removesuffix(' was encountered')}" + (f" ({count} lines of it)" if count > 1 else ""),
        because=[h.ref for h in (*exact[:6], *(h for h in hits if h not in exact))[:8]] + [e.ref for e in driver[:2]],
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys(h.node for h in hits)),
        ranks=[r for r in ranks if r is not None] if alone else [],
        since=at,
        does_not_show="which kernel did it: errors are reported at a later call"
        + ("" if alone else "; which rank was first: several report it"),
        would_settle=["the kernel log (Xid 13 or 31 names the GPU)", "a run with CUDA_LAUNCH_BLOCKING=1", "a GPU core dump"],
    )


def _part(view: View, at: TimeRange | None) -> FindingRole:
    """Of the engine's end it is the cause unless the end came clearly before: its lines are often undated."""
    ends: list[LogHit] = [h for h in view.events("worker-death", "fatal", "told") if h.at]
    if at is not None and any(h.at and h.at.before(at) for h in ends):
        return FindingRole.TEARDOWN
    return FindingRole.ROOT if part(view, at) is not FindingRole.CONTEXT or at is None else FindingRole.CONTEXT


TEXTS = {
    "cuda-illegal-access": Text(
        says="CUDA reported an access to memory that is not the program's; every later CUDA call of the process fails.",
        establishes="The error in a worker's own line.",
        lower="Supported: it is quoted from another rank.",
        next_steps=(
            "set CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 and compute-sanitizer on the shape that fails",
            "do not blame the kernel in the traceback: launches are asynchronous, CUDA_LAUNCH_BLOCKING=1 names the right one",
        ),
    ),
}

RULE = Rule(
    name="cuda_fault",
    texts=TEXTS,
    about="CUDA reported an access to memory that is not the program's.",
    requires=("log",),
    optional=("kernel",),
    evaluate=evaluate,
    false_positives="The operation in the traceback is the one that noticed; a collective often notices what a kernel before it did.",
    references=("CUDA runtime errors 700, 716 and 719",),
)
