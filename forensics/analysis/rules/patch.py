"""patch-live · patch-absent · patch-stale · patch-unreadable · patch-inconsistent · patch-live-and-failed

A quiet week after a patch proves nothing if the patch was not live in the process; a crash with the patch live clears it.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.patched import ABSENT, LIVE, STALE, STATUSES, TELLS, UNREADABLE, Witness, disagreements, nowhere, of_patch
from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.view import View
from forensics.model import EngineProcess, EvidenceRef, Finding, FindingRole, Grade, Severity

WORDS = {
    LIVE: "is live",
    ABSENT: "is absent",
    STALE: "is on disk but not live: the file changed after the process started",
    UNREADABLE: "could not be read",
}
DOES_NOT_SHOW = {
    "file": "what the running code object is: a file is a witness, not the code in memory",
    "function": "that the function was called, or that a frame which began before it was replaced does not still run the old one",
    "marker": "what the running code object is: a printed line is a witness, not the code in memory",
    "value": "that the value was used: who read it before it was set has what stood there then",
}


def evaluate(view: View) -> Iterator[Finding]:
    for patch in view.case.patches:
        name, witnesses = str(patch["name"]), of_patch(view, patch)
        for status in STATUSES:
            lost = nowhere(witnesses) if status == UNREADABLE else []
            if mine := [*(w for w in witnesses if w.status == status), *lost]:
                yield _finding(view, name, status, mine)
        if contradictions := disagreements(witnesses):
            yield view.finding(
                "patch-inconsistent",
                grade(observed=True, whole=not all(any(w.partly for w in mine) for _, mine in contradictions)),
                title=f'Patch "{name}" is not the same everywhere: {"; ".join(words for words, _ in contradictions)}',
                because=[ref for _, mine in contradictions for ref in _one_of_each(mine)],
                severity=Severity.WARNING,
                processes=_processes(w for _, mine in contradictions for w in mine),
            )
        if failed := _failed_with(view, witnesses):
            live, refs, how_sure = failed
            yield view.finding(
                "patch-live-and-failed",
                how_sure,
                title=f'The failure happened with patch "{name}" live: it is not sufficient against this failure',
                because=[*_one_of_each(live)[:6], *refs],
                severity=Severity.WARNING,
                role=FindingRole.CONTEXT,
                processes=_processes(live),
                does_not_show="that the patch is bad: it may still be a good change, or cure another failure; nor that it took part",
            )


def _finding(view: View, name: str, status: str, witnesses: list[Witness]) -> Finding:
    kinds = list(dict.fromkeys(w.kind for w in witnesses))
    said = "; ".join(dict.fromkeys(f"{w.kind}: {w.how}" for w in witnesses if w is next(v for v in witnesses if v.kind == w.kind)))
    return view.finding(
        f"patch-{status}",
        grade(observed=True, whole=not all(w.partly for w in witnesses)),
        title=f'Patch "{name}" {WORDS[status]} in {len({_place(w) for w in witnesses})} place(s) ({said})',
        because=_one_of_each(witnesses)[:8],
        severity=Severity.INFO if status == LIVE else Severity.WARNING,
        processes=_processes(witnesses),
        does_not_show="; ".join(DOES_NOT_SHOW[kind] for kind in kinds),
    )


def _place(witness: Witness) -> tuple[str, int]:
    return witness.node, witness.process.pid if witness.process else 0


def _one_of_each(witnesses: list[Witness]) -> list[EvidenceRef]:
    """Their evidence, so ordered that each kind and each status comes early: a finding shows the first few."""
    first = {(w.kind, w.status): w for w in reversed(witnesses)}
    return list(dict.fromkeys(w.ref for w in (*first.values(), *witnesses)))


def _processes(witnesses: Iterator[Witness] | list[Witness]) -> list[EngineProcess]:
    return list({_place(w): w.process for w in witnesses if w.process is not None}.values())


def _failed_with(view: View, witnesses: list[Witness]) -> tuple[list[Witness], list[EvidenceRef], Grade] | None:
    """(what shows it live in the processes that failed, the failure, how sure); None where one of them has it not, or none is told of.

    A process that died has no memory to look into: then the rest of its engine speaks for it, and that is only supported.
    """
    fatal = view.events("fatal", "worker-death")
    if not fatal and view.stall is None:
        return None
    stand = {(p.info.node, p.pid) for p in view.standing} if not fatal else set()
    concerned = [w for w in witnesses if not stand or w.process is None or _place(w) in stand]
    told = [w for w in concerned if w.status in TELLS]
    if not told or any(w.status != LIVE for w in told):
        return None
    refs = [fatal[0].ref] if fatal else list(view.stall.because[:1]) if view.stall else []
    sure = bool(fatal) or (view.stall is not None and view.stall.grade is Grade.ESTABLISHED)
    seen = not any(w.status == UNREADABLE for w in concerned)
    return told, refs, Grade.ESTABLISHED if sure and seen and not all(w.partly for w in told) else Grade.SUPPORTED


TEXTS = {
    "patch-live": Text(
        says="A stated patch is what this process runs.",
        establishes="The code in memory, a module's constant, the file (unchanged since the process started), or the line that it prints.",
        lower="Supported: only some of the objects that were found hold the value. Which witness said so is in the title.",
    ),
    "patch-absent": Text(
        says="A stated patch is not what this process runs.",
        establishes="The code in memory, a module's constant or the file (unchanged since the process started) is another one.",
        lower="Supported: the objects that were found hold another value, or no file was found where its modules usually lie.",
        next_steps=("see which node or image lacks it before drawing conclusions from this run",),
    ),
    "patch-stale": Text(
        says="The file was changed after the process started: the process runs what was there before.",
        establishes="The file's time of change against the start of the process.",
        next_steps=("restart the process to make the patch live",),
        over_nodes=(TOGETHER,),
    ),
    "patch-unreadable": Text(
        says="Whether the patch is live could not be read, and why.",
        establishes="The attempt's outcome.",
        next_steps=("run the capture with the rights that it names",),
    ),
    "patch-inconsistent": Text(
        says="Ranks or nodes disagree on a patch: they run different code.",
        establishes="Two processes with different readings of one witness, or one process with witnesses that contradict each other.",
        next_steps=(
            "compare what each process has: forensics patches --patches patches.toml",
            "bring all nodes to one image before looking further",
        ),
        over_nodes=(TOGETHER,),
    ),
    "patch-live-and-failed": Text(
        says=(
            "The failure happened with the patch live: it is not sufficient against this failure. It may still be a good change, and it "
            "is not thereby the cause."
        ),
        establishes="patch-live established in the process that failed, and the failure.",
        lower="As firm as the weaker of the two.",
        next_steps=("do not count quiet time since the patch as a cure", "keep the patch apart from the next change that is tried"),
    ),
}

RULE = Rule(
    name="patch",
    texts=TEXTS,
    about="Per process: whether a patch of patches.toml is what it runs, and whether the failure happened with it live.",
    any_of=("patches", "log"),
    applies=lambda view: "" if view.case.patches else "no patches.toml was given",
    evaluate=evaluate,
    false_positives="A file shows no monkeypatch at run time; function and live value of patches.toml do.",
    references=("patches.toml, as design.md describes it",),
)
