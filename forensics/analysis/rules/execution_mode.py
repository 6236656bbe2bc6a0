"""Which mode the engine really ran in, and a component in it that was written for one pass at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis import mode
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.rules._raised import worker_exceptions
from forensics.analysis.rules._victims import REFUSALS
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, LiveValue, LogHit, QueueDepth, Severity

_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def evaluate(view: View) -> Iterator[Finding]:
    said = mode.readings(view)
    if not said:
        raise CannotTell("nothing says whether passes overlap", "live objects of the core", "stacks of every worker")
    yield _mode(view, said)
    if (found := mode.overlapping(view)) and found[0]:
        yield from _incompatible(view, found[1])


def _mode(view: View, said: list[mode.Reading]) -> Finding:
    effective = [r for r in said if r.effective] or said
    on = effective[0].overlapping
    agreed = {r.overlapping for r in effective} == {on}
    values = {v.name: v for v in view.of(LiveValue) if v.name in _SIZES and not v.torn}
    sizes = [f"{name.split('_')[0]} parallel {values[name].value}" for name in _SIZES if name in values]
    limit = view.engine.execute_timeout_s or view.profile.execute_timeout_default_s
    sizes += [f"limit of one call {limit:g} s"] if limit else []
    others = [r for r in said if r.overlapping is not on]
    where = dict.fromkeys(r.where for r in effective if r.overlapping is on)
    words = f"Asynchronous scheduling is {'on' if on else 'off'}, by {', '.join(where)}"
    words += f", although {others[0].where} says otherwise" if others else ""
    return view.finding(
        "execution-mode",
        grade(observed=effective[0].effective and effective[0].certain and agreed, agreeing=len(effective) if agreed else 0),
        title="; ".join([words, *sizes]),
        because=[*(r.ref for r in effective), *(values[n].ref for n in values)],
        does_not_show="" if agreed else "which of the contradicting sources is right",
    )


def _incompatible(view: View, effective: list[mode.Reading]) -> Iterator[Finding]:
    """Room for one, at which a worker failed or its main thread waits without end, while several passes are under way."""
    refused = {(p.info.node, p.pid): hit for hit, p in worker_exceptions(view) if p and hit.fields.get("exc_type") in REFUSALS}
    for worker in view.standing:
        mine = (worker.info.node, worker.pid)
        single = [q for q in view.of(QueueDepth) if q.kind == "live" and (q.node, q.pid) == mine and q.capacity == 1 and q.depth == 1]
        main = view.main_thread(worker)
        waiting = [q for q in single if main and main.tid in q.putting and main.moved is False]
        same = [q for q in waiting if q.address == waiting[-1].address]
        if len({q.sample for q in same}) > 1 and view.fresh(same[-1]):
            yield _single(view, worker, same[-1], "waits for room in it", effective, observed=False)
        elif (hit := refused.get(mine)) and single:
            named = [q for q in single if _names(hit, q)]
            # which of its queues refused is seen where the line that raised names it
            yield _single(view, worker, (named or single)[-1], "was refused by it", effective, observed=bool(named), line=hit)


def _names(hit: LogHit, queue: QueueDepth) -> bool:
    """Whether the line that raised is about this queue: "self.pending.put_nowait(x)" and "pending (tables.py:9)"."""
    name = queue.queue.partition(" (")[0].rpartition(".")[2]
    return bool(name) and re.search(rf"\b{re.escape(name)}\.put", hit.fields.get("exc_code", "")) is not None


def _single(
    view: View,
    worker: EngineProcess,
    queue: QueueDepth,
    what: str,
    effective: list[mode.Reading],
    *,
    observed: bool,
    line: LogHit | None = None,
) -> Finding:
    return view.finding(
        "execution-mode-incompatible",
        # a hand-over with room for one is legitimate as long as somebody takes
        grade(observed=observed and effective[0].certain, agreeing=2),
        title=f"{view.name(worker)} runs overlapping passes over room for one: {queue.queue} holds 1 of 1, and a pass {what}",
        because=[queue.ref, *([line.ref] if line else []), *(r.ref for r in effective)],
        severity=Severity.CRITICAL,
        role=FindingRole.CASCADE,
        processes=[worker],
        since=view.stall.since if view.stall else queue.at,
        does_not_show="whether with room for more the passes would still mix up whose result is whose",
    )


TEXTS = {
    "execution-mode": Text(
        says="Whether passes overlap (asynchronous scheduling, batch queue), with where it was read: live object, stack or log.",
        establishes="Read in the running process. From a log it is what was asked for, and may not be what is in force.",
        lower="Supported: read in a stack or in the log.",
    ),
    "execution-mode-incompatible": Text(
        says="A component that has room for one pass at a time runs under overlapping passes: the second pass meets the first one's state.",
        establishes=(
            "The effective mode, and the component's own single slot, both read in the process; and a worker that failed or waits there."
        ),
        lower="Supported: one of the two was read in the log.",
        next_steps=(
            "turn asynchronous scheduling off, or make the component own one slot for each pass under way",
            "a larger queue alone does not repair who owns the item",
        ),
    ),
}

RULE = Rule(
    name="execution_mode",
    texts=TEXTS,
    about="Whether passes overlap, read in the running engine, and a single-slot component that they overlap over.",
    any_of=("objects", "stacks", "log"),
    applies=lambda view: "" if view.profile.delivery_threads else "this engine has no known modes",
    evaluate=evaluate,
    false_positives="A queue of one is no fault by itself: it is named only where a worker failed or waits at it under overlapping passes.",
    references=("vllm v1/engine/core.py step_with_batch_queue, v1/executor/multiproc_executor.py WorkerAsyncOutputCopy",),
)
