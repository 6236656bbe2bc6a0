"""Who waits for whom, as far as stacks tell. Edges only from evidence; the full graph (rings, locks, queues) stands on this."""

from __future__ import annotations

from forensics.analysis.view import View
from forensics.model import EngineProcess, Grade, Role, Wait

_VIA = {
    "collective": "collective",
    "rpc-response": "rpc-response",
    "ring-full": "rpc-request",
    "queue-put": "queue",
    "lock": "lock",
    "gpu-sync": "gpu",
    "future": "future",
    "join": "join",
}


def of_engine(view: View) -> list[Wait]:
    """Edges between the main threads of one engine that stands still; [] for one that moves."""
    if view.stall is None or view.moving:
        return []
    edges = []
    # a stopped rank comes no further, though it may have been stopped inside the collective
    absent = [p for p in view.workers if _held(view, p) or (t := view.main_thread(p)) is None or t.state != "collective"]
    for process in view.engine.processes:
        thread = view.main_thread(process)
        if process.role not in (Role.CORE, Role.WORKER) or thread is None or thread.state not in _VIA or _held(view, process):
            continue
        grade = Grade.ESTABLISHED if thread.steady and len(thread.samples) > 1 else Grade.SUPPORTED
        targets: list[tuple[str, int | None]] = []
        if thread.state == "collective":
            targets = [(view.name(p), p.rank.rank if p.rank else None) for p in absent if p is not process]
        elif thread.state in ("rpc-response", "future") and process.role is Role.CORE:
            awaited = [p for p in view.workers if p.rank and p.rank.rank == view.output_rank] or list(view.workers[:1])
            targets = [(view.name(p), p.rank.rank if p.rank else None) for p in awaited]
        elif thread.state == "lock":
            # the lock's holder is not in a stack: the innermost line is all that may be said
            frame = thread.last.frames[0]
            targets = [(f"whatever holds {frame.name} ({frame.file}:{frame.line})", None)]
            grade = Grade.POSSIBLE
        for name, rank in targets or [(thread.target or "unknown", None)]:
            edges.append(
                Wait(
                    waiter=view.name(process),
                    waits_for=name,
                    via=_VIA[thread.state],
                    grade=grade,
                    ref=thread.last.ref,
                    waiter_rank=process.rank.rank if process.rank else None,
                    target_rank=rank,
                )
            )
    return edges


def _held(view: View, process: EngineProcess) -> bool:
    """Stopped or gone: where its thread stands does not say what it waits for."""
    return view.stopped(process) or view.ended(process)
