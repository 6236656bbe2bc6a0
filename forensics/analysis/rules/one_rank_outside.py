"""One rank idle while the others spin, told by CPU or GPU load where its stack could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, TOGETHER
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, GpuSample, Grade, Severity, ThreadStack

SPINS = 0.8
IDLES = 0.1


def evaluate(view: View) -> Iterator[Finding]:
    if view.stall is None and not view.progress.measured and not view.of(ThreadStack):
        raise CannotTell("nothing tells whether the engine stands still", "metrics", "stacks")
    if view.moving or view.stall is None:
        return
    of_gpu = {(g.node, pid): g.utilization_percent for g in view.on_nodes(GpuSample) if g.utilization_percent is not None for pid in g.pids}
    for workers in view.groups:
        loads = [(w, load) for w in workers if (load := _load(view, w, of_gpu)) is not None]
        busy = [w for w, load in loads if load >= SPINS]
        idle = [w for w, load in loads if load <= IDLES]
        if busy and len(idle) == 1 and len(busy) == len(workers) - 1:
            yield _idling(view, idle[0], busy)


def _idling(view: View, idle: EngineProcess, busy: list[EngineProcess]) -> Finding:
    thread = view.main_thread(idle)
    refs = [s[-1].ref for w in (idle, *busy) if (s := view.cpu_of(w, w.pid))]
    refs += [g.ref for g in view.on_nodes(GpuSample) if any(w.pid in g.pids for w in (idle, *busy))]
    return view.finding(
        "one-rank-not-in-collective",
        grade(agreeing=2 if view.stall and view.stall.grade.strength >= Grade.SUPPORTED.strength else 1),
        title=f"{view.name(idle)} idles while the {len(busy)} other rank(s) spin",
        because=refs,
        severity=Severity.WARNING,
        # where its stack was read, the stack says more than the load does
        role=FindingRole.CASCADE if thread else FindingRole.ROOT,
        processes=[idle],
        since=view.stall.since if view.stall else None,
        does_not_show="where it stands: load only says that it does not spin with the others",
        would_settle=["its stack"],
    )


def _load(view: View, worker: EngineProcess, of_gpu: dict[tuple[str, int], float]) -> float | None:
    """Share of its GPU, else of a CPU, that it used in the newest look."""
    percent = of_gpu.get((worker.info.node, worker.pid))
    return percent / 100 if percent is not None else view.cpu_fraction(worker, worker.pid)


TEXTS = {
    "one-rank-not-in-collective": Text(
        says="During a stall all ranks but one spin, so that one is not in the collective.",
        establishes="It is not established by load: stacks of that rank and its peers do (rank-divergence-collective).",
        lower="Supported: CPU, utilisation or power of one rank differs from all others.",
        next_steps=("take the stack of the quiet rank",),
        while_lasts=(EVIDENCE_FIRST,),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="one_rank_outside",
    texts=TEXTS,
    about="During a stall all ranks but one spin.",
    any_of=("cpu", "gpu"),
    evaluate=evaluate,
    false_positives="Backends that block instead of spinning in a collective show no difference of load.",
    references=("NCCL kernels and host threads poll in a collective",),
)
