"""A kernel that was compiled while requests were served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.analysis import episodes
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stall import compiling
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Role, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    yield from _told(view) or _seen(view)


def _seen(view: View) -> list[Finding]:
    """A main thread inside a compiler in two looks, after the engine was ready."""
    if not view.events("ready") and not any(i.moved for i in view.progress.log):
        return []
    mains = [(p, t) for p in view.engine.processes if p.role in (Role.CORE, Role.WORKER) and (t := view.main_thread(p))]
    inside = [(p, t) for p, t in mains if compiling([(p, t)])]
    if not inside:
        return []
    twice = any(len(t.samples) > 1 and compiling([(p, replace(t, samples=t.samples[:1]))]) for p, t in inside)
    found = view.finding(
        "jit-compile-during-serving",
        grade(observed=twice),
        title=f"{view.name(inside[0][0])} compiles a kernel in the middle of serving",
        because=[r for _, t in inside[:2] for r in (t.samples[0].ref, t.last.ref)],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        processes=[p for p, _ in inside],
        since=inside[0][1].samples[0].at,
        does_not_show="how long it will take",
    )
    return [found]


def _told(view: View) -> list[Finding]:
    hits = [h for h in view.feeding("jit-compile-during-serving") if _serving(view, h)]
    if not hits:
        return []
    kernels = list(dict.fromkeys(h.fields[k] for h in hits for k in ("kernel", "session") if h.fields.get(k)))
    hole = next((o for o in reversed(episodes.holes(view)) if any(_inside(h, o.since, o.until) for h in hits)), None)
    stall = view.stall
    standing = stall is not None and any(h.at and h.at.latest_ns >= stall.since.earliest_ns - 10 * SECOND for h in hits)
    dated = [h for h in hits if h.at]
    found = view.finding(
        "jit-compile-during-serving",
        grade(observed=True),
        title=f"Kernels were compiled while serving: {', '.join(kernels[:4])}{' …' if len(kernels) > 4 else ''}",
        because=[h.ref for h in hits[:4]],
        severity=Severity.WARNING if hole or standing else Severity.INFO,
        # it delays every request for seconds; that it ended an engine would need its own proof
        role=FindingRole.AMPLIFIER if hole or standing else FindingRole.CONTEXT,
        nodes=dict.fromkeys(h.node for h in hits),
        since=dated[0].at if dated else None,
        until=hole.until if hole else dated[-1].at if dated else None,
        does_not_show="how long it took: the line is printed once" + (", and whether the stall is its work" if hole or standing else ""),
    )
    return [found]


def _serving(view: View, hit: LogHit) -> bool:
    """Whether the engine was up by then: at start-up compiling is what is expected."""
    if any(view.before(ready, hit) for ready in view.events("ready")):
        return True
    if view.events("ready") or view.begun_ns is not None:
        return False
    # a log that was cut or rotated shows no start: then tokens that flowed before the line tell
    return hit.at is not None and any(i.moved and i.until_ns is not None and i.until_ns <= hit.at.latest_ns for i in view.progress.log)


def _inside(hit: LogHit, since: TimeRange, until: TimeRange) -> bool:
    return hit.at is not None and since.earliest_ns - SECOND <= hit.at.earliest_ns <= until.latest_ns


TEXTS = {
    "jit-compile-during-serving": Text(
        says="A kernel was compiled after the engine was ready: a pause of seconds to minutes for all requests.",
        establishes="The engine's line about it, or the compiler's frame in a worker, after the ready line.",
        lower="As the cause of an engine that never came back it is possible at most.",
        next_steps=("let the warm-up cover this shape, or keep the compiler's cache over restarts",),
    ),
}

RULE = Rule(
    name="jit_compile",
    texts=TEXTS,
    about="A kernel was compiled after the engine was ready.",
    any_of=("log", "stacks"),
    evaluate=evaluate,
    false_positives="As the cause of an engine that never came back it is nearly always wrong.",
    references=("vllm utils/jit_monitor.py",),
)
