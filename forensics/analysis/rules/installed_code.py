"""Are the installed files of the engine those that its package brought, by the package's own record of hashes?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.analysis.builds import RUNS_CODE
from forensics.analysis.coverage import gap
from forensics.analysis.rules._contract import CannotTell, Rule, Text, grade
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import BuildReading, ChangedFile, CodeCheck, EngineProcess, Finding, Severity
from forensics.model.builds import START_NS

NAMED = 6
"""Files that a title names; the quote of the evidence lists more."""
Difference = tuple[str, frozenset[str], frozenset[str], frozenset[str]]


def evaluate(view: View) -> Iterator[Finding]:
    checks = [c for c in view.on_nodes(CodeCheck) if _processes(view, c)]
    alike: dict[Difference, list[CodeCheck]] = {}
    for c in checks:
        modified, missing, added = (frozenset(f.path for f in files) for files in (_modified(c), _code(c.missing), c.added))
        if modified or missing or added:
            alike.setdefault((c.distribution, modified, missing, added), []).append(c)
    for (name, *_), mine in alike.items():
        yield _finding(view, name, mine, several=sum(key[0] == name for key in alike) > 1)
    if not alike:
        _all_clear(view, checks)


def _code(files: Sequence[ChangedFile]) -> list[ChangedFile]:
    """Of missing files only those that are run: images are slimmed by taking documents and tests of data out."""
    return [f for f in files if f.path.endswith(".py") or _library(f)]


def _modified(check: CodeCheck) -> list[ChangedFile]:
    """conda writes its own search paths into libraries after the record was made."""
    return [f for f in check.modified if check.installer != "conda" or not _library(f)]


def _library(file: ChangedFile) -> bool:
    return ".so" in file.path.rpartition("/")[2]


def _processes(view: View, check: CodeCheck) -> list[EngineProcess]:
    found = [view.by_key.get((check.node, pid)) for pid in check.pids]
    return [p for p in found if p is not None and p.role in RUNS_CODE]


def _finding(view: View, name: str, checks: list[CodeCheck], several: bool) -> Finding:
    first = checks[0]
    kinds = {"modified": _modified(first), "missing": _code(first.missing), "added": first.added}
    words = [f"{len(files)} {what} ({_names(files)})" for what, files in kinds.items() if files]
    who = [p for c in checks for p in _processes(view, c)]
    late = _late(view, checks)
    said = "which of these files a process has imported; a file is a witness, not the code in memory"
    if late:
        path, changed = late
        said = f"that these processes run it: {path} changed at {iso(changed)}, after they started, so they may run the older text; {said}"
    if several:
        said += "; other nodes or folders differ in other files"
    if left := first.named - first.hashed:
        said += f"; {left} of {first.named} files were not compared"
    return view.finding(
        "installed-code-modified",
        grade(observed=True),
        title=f"Installed files of {name} {first.version} are not as its own record says: {', '.join(words)}",
        because=[c.ref for c in checks[:8]],
        severity=Severity.WARNING,
        processes=who,
        does_not_show=said,
        next_steps=[
            "compare with what you believe is applied: state it in a patches.toml",
            "say in a report to the makers that files were changed",
        ],
    )


def _names(files: Sequence[ChangedFile]) -> str:
    more = len(files) - NAMED
    return ", ".join(f.path for f in files[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _late(view: View, checks: list[CodeCheck]) -> tuple[str, int] | None:
    """The first file that changed after the start of a process that may have imported it."""
    started = {(r.node, r.pid): r.image_started_ns for r in view.of(BuildReading)}
    for c in checks:
        starts = [s for pid in c.pids if (s := started.get((c.node, pid))) is not None]
        for f in (*c.modified, *c.added):
            if f.changed_ns is not None and any(f.changed_ns > s + START_NS for s in starts):
                return f.path, f.changed_ns
    return None


def _all_clear(view: View, checks: list[CodeCheck]) -> None:
    """Raise unless every source of every process was compared."""
    if not checks:
        raise CannotTell("no record of the engine's files was found where its processes import from", "builds")
    for c in checks:
        if c.cut or not c.walked or c.sources_hashed < c.sources:
            counted = f"{c.sources_hashed} of {c.sources} sources" if c.sources else "no file"
            raise CannotTell(f"{c.distribution} on {c.node}: {counted} compared{': ' + c.cut if c.cut else ''}", "builds")
    looked = {(c.node, pid) for c in checks for pid in c.pids}
    if unseen := [p for p in view.engine.processes if p.role in RUNS_CODE and (p.info.node, p.pid) not in looked]:
        raise CannotTell(f"nothing was read of {view.name(unseen[0])}", "builds")
    if not view.coverage.complete:
        raise CannotTell(gap(view.coverage), "builds")


TEXTS = {
    "installed-code-modified": Text(
        says="Installed files of a package differ from the package's own record: they were edited, added or removed in place.",
        establishes="The hash of a file differs from the record of its package. A file is a witness, not the code in memory.",
        next_steps=(
            "compare with what you believe is applied: state it in a patches.toml",
            "say in a report to the makers that files were changed",
        ),
    ),
}

RULE = Rule(
    name="installed_code",
    texts=TEXTS,
    about="Installed files differ from the hashes in their package's own record, or lie in it without being named there.",
    requires=("builds",),
    evaluate=evaluate,
    false_positives="A distributor that rebuilds a package without renewing its record; an image slimmed by deleting what seems unused.",
    references=("RECORD of *.dist-info: PEP 376, PEP 427", "direct_url.json: PEP 610"),
)
