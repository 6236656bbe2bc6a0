"""A grammar for structured output that is compiled in the way of everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis import episodes
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stacks import frame_text
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Role, Severity

_COMPILES = re.compile(
    r"(?m)^\S*(?:compile_(?:json_schema|grammar|regex|structural_tag|builtin_json_grammar)|GrammarCompiler\.\w+) \("
    r"|\((?:xgrammar/compiler|outlines_core/\w+|outlines/fsm/\w+|llguidance/\w+)\.py"
)


def evaluate(view: View) -> Iterator[Finding]:
    mains = [(p, t) for p in view.engine.processes if p.role in (Role.CORE, Role.API) and (t := view.main_thread(p))]
    inside = [(p, t) for p, t in mains if all(_COMPILES.search(frame_text(s.frames)) for s in t.samples)]
    late = [h for h in view.feeding("grammar-compile-blocking") if h.role == "root"]
    if not inside and not late:
        yield from _beside(view)
        return
    twice = any(len(t.samples) > 1 for _, t in inside)
    yield view.finding(
        "grammar-compile-blocking",
        grade(observed=twice or bool(late), agreeing=1),
        title="A grammar is compiled in the main thread, and nothing else gets on meanwhile"
        if inside
        else "A grammar was not compiled within its limit; the requests that need it wait",
        because=[*(t.last.ref for _, t in inside), *(h.ref for h in late[:2])],
        severity=Severity.WARNING,
        role=FindingRole.ROOT if inside and view.stall else FindingRole.CONTEXT,
        processes=[p for p, _ in inside],
        since=inside[0][1].samples[0].at if inside else late[0].at,
        does_not_show="which schema it is",
    )


def _beside(view: View) -> Iterator[Finding]:
    """A helper thread compiles in every look, and meanwhile requests wait and none runs: those that wait are the ones that need it."""
    helpers = [(p, t) for p in view.engine.processes if p.role in (Role.CORE, Role.API) for t in view.threads_of(p) if not t.main]
    inside = [(p, t) for p, t in helpers if len(t.samples) > 1 and all(_COMPILES.search(frame_text(s.frames)) for s in t.samples)]
    parked = [run for run in episodes.parked(view) if run.until is None]
    if not inside or not parked:
        return
    process, thread = inside[0]
    seen = thread.samples[0].at
    during = seen is None or any(run.since.earliest_ns <= seen.latest_ns for run in parked)
    yield view.finding(
        "grammar-compile-blocking",
        grade(observed=during, agreeing=2),
        title=f"Thread {thread.label} of {view.name(process)} compiles a grammar in {len(thread.samples)} looks, and "
        f"{parked[-1].waiting:g} request(s) wait while none runs",
        because=[thread.samples[0].ref, thread.last.ref, *parked[-1].refs[:2]],
        severity=Severity.WARNING,
        role=FindingRole.ROOT,
        processes=[process],
        since=parked[-1].since,
        does_not_show="which schema it is, and whether every request that waits needs it",
    )


TEXTS = {
    "grammar-compile-blocking": Text(
        says="A grammar is compiled in the thread that schedules: every request waits for it.",
        establishes="The compiler's frame in the main thread in two samples, or the engine's own line that the limit ran out.",
        lower="Supported: one sample.",
        next_steps=("keep such schemas small, or compile them before they are needed", "bound the size of a schema that a client may send"),
    ),
}

RULE = Rule(
    name="grammar_compile",
    texts=TEXTS,
    about="A grammar is compiled in the main thread, or was not compiled within its limit.",
    any_of=("log", "stacks"),
    evaluate=evaluate,
    false_positives="A grammar that is compiled beside the loop holds up only the requests that need it.",
    references=("sglang constrained/grammar_manager.py", "vllm v1/structured_output/__init__.py"),
)
