"""A grammar for structured output that is compiled in the way of everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
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


RULE = Rule(
    name="grammar_compile",
    emits=("grammar-compile-blocking",),
    about="A grammar is compiled in the main thread, or was not compiled within its limit.",
    any_of=("log", "stacks"),
    evaluate=evaluate,
    false_positives="A grammar that is compiled beside the loop holds up only the requests that need it.",
    references=("sglang constrained/grammar_manager.py", "vllm v1/structured_output/__init__.py"),
)
