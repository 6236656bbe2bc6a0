"""A data-parallel engine stays out of the wave in which its peers run: with expert parallelism they all wait for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stacks import IDLE, ThreadView, frame_text, place
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, LogHit, Severity

LONG_S = 20.0
"""No step takes so long without a line."""
JOINED, LEFT = ("vllm-dp-wave-joined",), ("vllm-dp-wave-done",)


def evaluate(view: View) -> Iterator[Finding]:
    if view.moving or (view.stall is None and not view.events("timeout", "fatal")):
        return
    found = _by_stacks(view) or _by_cores(view) or _by_lines(view)
    if found is not None:
        yield found


def _applies(view: View) -> str:
    return "" if view.engine.dp_size > 1 else "no data-parallel replicas"


def _by_stacks(view: View) -> Finding | None:
    """All workers of one replica idle, all of another inside a collective, both in two samples."""
    if view.stall is None or not _across(view):
        return None
    places: dict[int, list[tuple[EngineProcess, str, bool]]] = {}
    for worker in view.workers:
        thread = view.main_thread(worker)
        if thread is None or worker.rank is None or worker.rank.dp is None:
            return None
        places.setdefault(worker.rank.dp, []).append((worker, thread.state, thread.steady and len(thread.samples) > 1))
    inside = [dp for dp, seen in places.items() if all(state == "collective" for _, state, _ in seen)]
    outside = [dp for dp, seen in places.items() if all(state in IDLE for _, state, _ in seen)]
    if not inside or not outside or len(inside) + len(outside) != len(places):
        return None
    twice = all(steady for seen in places.values() for _, _, steady in seen)
    whole = len(places) == view.engine.dp_size
    workers = [w for dp in outside for w, _, _ in places[dp]]
    threads = [t for w in (*workers[:3], *(w for dp in inside for w, _, _ in places[dp][:2])) if (t := view.main_thread(w))]
    return _finding(
        view,
        outside,
        f"idle while every rank of replica {', '.join(map(str, inside))} waits in a collective across replicas",
        refs=[*(t.last.ref for t in threads), *view.stall.because[:2]],
        workers=workers,
        sure=twice and whole and view.stall.grade.strength == 3,
    )


def _by_cores(view: View) -> Finding | None:
    """Cores that stand in the collective by which replicas agree whether there is work, and one that stands elsewhere in every look.

    Where the cores call it they wait for each other, whatever the model is.
    """
    seen = [(core, thread) for core in view.cores if (thread := view.main_thread(core))]
    if len(seen) < 2 or len(seen) != view.engine.dp_size or not all(t.moved is False and len(t.samples) > 1 for _, t in seen):
        return None
    inside = [(c, t) for c, t in seen if all(_AGREE.search(frame_text(s.frames)) for s in t.samples)]
    outside = [(c, t) for c, t in seen if not any(_AGREE.search(frame_text(s.frames)) for s in t.samples)]
    if not inside or not outside or len(inside) + len(outside) != len(seen) or len(outside) >= len(inside):
        return None
    names = [c.rank.dp if c.rank and c.rank.dp is not None else _number(c.label) for c, _ in outside]
    stands = place(outside[0][1]) if outside[0][1].last.frames else None
    where = f", in {stands.name} ({stands.file}:{stands.line})" if stands else ""
    return _finding(
        view,
        [n for n in names if n is not None],
        f"outside the collective in which the cores of {len(inside)} other replica(s) wait{where}",
        refs=[*(t.last.ref for _, t in outside[:3]), *(t.last.ref for _, t in inside[:3])],
        workers=[c for c, _ in outside],
        # a long step of one replica holds up the others as well
        sure=all(_span_s(t) >= LONG_S for _, t in seen) or (view.stall is not None and view.stall.grade.strength == 3),
    )


def _span_s(thread: ThreadView) -> float:
    first, last = thread.samples[0].at, thread.last.at
    return (last.earliest_ns - first.latest_ns) / SECOND if first and last else 0.0


_AGREE = re.compile(r"(?m)^\S*(?:has_unfinished_dp|_has_global_unfinished_reqs|coordinate_batch_across_dp|num_tokens_across_dp) \(")
"""Where a core, or the runner inside it, waits for its replicas."""


def _number(label: str) -> int | None:
    m = re.search(r"DP(\d{1,9})", label)
    return int(m[1]) if m else None


def _by_lines(view: View) -> Finding | None:
    """One engine left its wave and entered no other, while a peer's step ran into its limit."""
    late = {dp for h in view.events("timeout", "fatal") if (dp := _replica(view, h)) is not None}
    newest: dict[int, LogHit] = {}
    for hit in view.hits_of(*JOINED, *LEFT):
        if (dp := _replica(view, hit)) is not None:
            newest[dp] = hit
    out = sorted(dp for dp, hit in newest.items() if hit.signature in LEFT and dp not in late)
    if not late or not out or len(late) + len(out) < view.engine.dp_size or not _across(view):
        return None
    waves = ", ".join(newest[dp].fields["wave"] for dp in out)
    ends = [h.ref for h in view.events("timeout", "fatal")[:2]]
    told = f"out since wave {waves} ended, while the step of replica {', '.join(map(str, sorted(late)))} ran into its limit"
    return _finding(view, out, told, [*(newest[dp].ref for dp in out), *ends], [], False)


def _across(view: View) -> bool:
    """Whether collectives span the replicas: only then does one wait for another."""
    return any(w.rank and w.rank.ep is not None for w in view.workers) or any(
        "enable_expert_parallel=True" in h.fields.get("config", "") or "'enable_expert_parallel': True" in h.fields.get("args", "")
        for h in view.events("start", "core-start")
    )


def _replica(view: View, hit: LogHit) -> int | None:
    process = view.process(hit.node, hit.pid)
    if process and process.rank and process.rank.dp is not None:
        return process.rank.dp
    tail = hit.process.rpartition("DP")[2].split("_")[0] if "DP" in hit.process else ""
    return int(tail) if tail.isdigit() else None


def _finding(view: View, out: list[int], told: str, refs: list[EvidenceRef], workers: list[EngineProcess], sure: bool) -> Finding:
    return view.finding(
        "dp-peer-missing-from-collective",
        grade(observed=sure, agreeing=2),
        title=f"Data-parallel engine {', '.join(map(str, out))} is {told}",
        because=refs,
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        processes=workers,
        since=view.stall.since if view.stall else None,
        does_not_show="why it does not join: it was not told of the wave, or believes that it is over",
        would_settle=["current wave and step counter of every engine, from the same second"],
    )


TEXTS = {
    "dp-peer-missing-from-collective": Text(
        says="A data-parallel engine never joined the wave, and the others wait for it in a collective although it has no work.",
        establishes="Stacks of that engine outside the wave, or the coordinator's wave lines.",
        lower="Supported: only the others' stacks were seen.",
        next_steps=("look at the log of the missing engine from the moment its last wave ended",),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="dp_peer",
    texts=TEXTS,
    about="One data-parallel engine never joined the wave in which the others wait for it.",
    any_of=("stacks", "log"),
    applies=_applies,
    evaluate=evaluate,
    false_positives="Replicas of a dense model do not wait for each other: one idle beside a busy one is none.",
    references=("vllm v1/engine/core.py DPEngineCoreProc", "vllm v1/engine/coordinator.py"),
)
