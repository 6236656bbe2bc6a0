"""function-monkeypatched: what a process runs under a function's name is not what its module's file says.

No file and no log shows that: the code object in memory does, by the file that it names and by what its instructions are.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.livecode import REPLACED, Runs, Verdict, verdict
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FunctionReading, Grade, Severity


def evaluate(view: View) -> Iterator[Finding]:
    read: dict[tuple[str, str], list[tuple[FunctionReading, Verdict]]] = {}
    for reading in view.of(FunctionReading):
        read.setdefault((reading.module, reading.function), []).append((reading, verdict(reading)))
    for (module, function), told in read.items():
        replaced: dict[tuple[Runs, str, Grade], list[tuple[FunctionReading, Verdict]]] = {}
        for reading, v in told:
            if v.runs in REPLACED:
                replaced.setdefault((v.runs, v.where, v.grade), []).append((reading, v))
        # ranks that run the file's own code beside others that do not
        own = [r for r, v in told if v.runs in (Runs.AS_ON_DISK, Runs.OWN_FILE)]
        for (runs, where, grade), mine in replaced.items():
            other = f"the code of {where}" if runs is Runs.OTHER_FILE else "other code than its file compiles to"
            beside = f"; not replaced in {_who(view, own)}" if own else ""
            yield view.finding(
                "function-monkeypatched",
                grade,
                title=f"Replaced at run time: {function} runs {other}, in {_who(view, [r for r, _ in mine])}{beside} ({module})",
                because=[*(r.ref for r, _ in mine[:8]), *(r.ref for r in own[:2])],
                severity=Severity.INFO,
                processes=_processes(view, [r for r, _ in mine]),
                does_not_show="whether the replacement does harm or good, and whether it was called; "
                "a module that took the function by name before may still hold the original",
                would_settle=[v.why for _, v in mine[:1] if v.why],
                next_steps=[f"read {where}: it is what runs, whatever {module} says on disk"],
            )


def _asked(view: View) -> bool:
    return bool(view.profile.functions or view.of(FunctionReading)) or any("function" in patch for patch in view.case.patches)


def _processes(view: View, readings: list[FunctionReading]) -> list[EngineProcess]:
    return [p for r in readings if (p := view.process(r.node, r.pid)) is not None]


def _who(view: View, readings: list[FunctionReading]) -> str:
    names = [view.name(p) for p in _processes(view, readings)] or [f"pid {r.pid} on {r.node}" for r in readings]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


TEXTS = {
    "function-monkeypatched": Text(
        says="A function runs other code than its file says: something replaced it at run time.",
        establishes="The code object read in the process, whose file or contents are not those of its module.",
        lower="Supported or possible: the file changed meanwhile, or its compiled form could not be compared in full.",
        next_steps=("read the file that the running code names: that is what runs",),
    ),
}

RULE = Rule(
    name="monkeypatch",
    texts=TEXTS,
    about="Whether the functions that make an engine move, and those of patches.toml, run what their files say.",
    requires=("patches",),
    applies=lambda view: "" if _asked(view) else "no function is declared for this kind of engine",
    evaluate=evaluate,
    false_positives="A replacement that the engine makes itself, in a way that its file does not show (setattr, a metaclass). "
    "Decorated functions are left out: what a decorator returns lies elsewhere as a rule.",
    references=("CPython Objects/codeobject.c: co_filename, deopt_code",),
)
