"""forensics analyze: bundles or bare logs in, one report out.

Exit status, from the table of the command line:
  0  done
  1  --fail-on GRADE was given and a problem of that grade or firmer was found
  2  wrong usage: no such path, unknown format, grade or hypothesis
  3  done but incomplete. Of a captured node: a rank or node was not seen, a source could not be read, something of the
     bundle was lost, or a rule broke. Of bare logs, where nothing was promised: only when something that was there was
     lost (a file that may not be read, a damaged archive, a rule that broke). Which, is said on standard error.
  4  nothing that any parser knows
A file that no parser knows is named in the report and on standard error, and changes no exit status: it is not lost.
--fail-on wins over 3: a script that asks for a grade wants to know of that first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forensics.model import Report

OK, FOUND, USAGE, INCOMPLETE, NOTHING = 0, 1, 2, 3, 4
FAIL_ON = ("possible", "supported", "established")
FAIL_ON_HELP = "Exit 1 when a problem (critical or warning) of this grade or firmer is found: possible, supported or established."
_UNKNOWN_FILE = ": not recognised"
"""How forensics.analysis marks an input that no parser knows, as against one that was lost."""
_BY_DESIGN = (": was cut at capture", ": cut while it was taken", ": so are large logs read", "the same result, many times slower")
"""A slice of a long log, a file larger than its bound: as much was taken or read as was meant to be. The report says so."""
_NEVER_TRIED = "never collected"
"""How forensics.analysis words a square for which the capture holds no attempt."""
_MOST_NAMED = 20


def analyze_command(
    paths: list[str],
    out: Path | None,
    fmt: str,
    fail_on: str | None,
    signatures: Sequence[Path] = (),
    hypotheses: Sequence[str] = (),
    rules: Sequence[Path] = (),
    timing: bool = False,
    record: bool | None = None,
) -> int:
    """Analyse `paths`, print the report in `fmt`, write report.json/.md/.html into `out`. Returns the exit status above.

    signatures: folders of the operator's own signatures, beside the standing one in the home directory.
    hypotheses: suspicions to answer in full, by name.
    rules: folders of the operator's own rules, which are run; beside the standing one, if that is the operator's alone.
    timing: the JSON report tells how long each rule took.
    record: whether an incident goes into the history of this machine; None: where a capture is among the inputs.
    """
    from forensics.report import UnsupportedFormat, check_format

    try:
        check_format(fmt)
    except UnsupportedFormat as error:
        return _usage(str(error))
    if fail_on is not None and fail_on not in FAIL_ON:
        return _usage(f"--fail-on {fail_on!r}: expected one of {', '.join(FAIL_ON)}")
    if not paths:
        return _usage("nothing was given to analyse: name bundles, folders of logs, files or -")
    lost = [p for p in paths if p != "-" and not os.path.lexists(p)]
    if lost:
        return _usage("no such file or directory: " + ", ".join(lost))
    if strangers := [str(f) for f in signatures if not f.is_dir()]:
        return _usage("--signatures: no such directory: " + ", ".join(strangers))

    if strangers := [str(f) for f in rules if not f.is_dir()]:
        return _usage("--rules: no such directory: " + ", ".join(strangers))

    from forensics.analysis import analyze, ownrules
    from forensics.analysis.hypotheses import UnknownHypothesis
    from forensics.analysis.ingest import NothingToAnalyze
    from forensics.analysis.signatures import home_folder

    standing = home_folder()
    own_rules = ownrules.load(rules, ownrules.home_folder())
    for note in own_rules.notes:
        _say(note)
    try:
        report = analyze(
            paths,
            signature_folders=[*([standing] if standing else ()), *signatures],
            hypotheses=hypotheses,
            own_rules=own_rules,
            timing=timing,
        )
    except UnknownHypothesis as error:
        return _usage(f"--hypothesis: {error}")
    except NothingToAnalyze as error:
        _say(str(error))
        return NOTHING
    if own := report.meta.get("signatures"):
        _say(f"signatures: {own}")
    if own_rules.rules:
        _say(f"rules of your own: {', '.join(r.name for r in own_rules.rules)}")
    captured = is_capture(paths, report)
    from forensics.cli.history import with_history

    report, trouble = with_history(report, paths, keep=captured if record is None else record)
    if trouble:
        _say(f"history: {trouble}")
    written = out is None or write_reports(report, out)
    _emit(report, fmt)
    gaps = incomplete(report, captured=captured)
    for gap in gaps[:_MOST_NAMED]:
        _say(f"incomplete: {gap}")
    if len(gaps) > _MOST_NAMED:
        _say(f"incomplete: and {len(gaps) - _MOST_NAMED} more, all in the report")
    for name in report.unread:
        if _UNKNOWN_FILE in name:
            _say(f"not read: {name}")
    if not written or (fail_on is not None and fails(report, fail_on)):
        return FOUND
    return INCOMPLETE if gaps else OK


def is_capture(paths: Iterable[str], report: Report) -> bool:
    """Whether a capture is among the inputs, so that coverage was promised. Bare logs promise none."""
    if report.meta.get("tool") or report.meta.get("captured"):
        return True
    return any(p.endswith((".tar.gz", ".tgz")) or (Path(p) / "attempts.jsonl").is_file() for p in paths)


def incomplete(report: Report, *, captured: bool) -> list[str]:
    """What is missing that this kind of input should have had, one sentence each; empty when it is complete."""
    from forensics.model import Outcome, RuleStatus
    from forensics.report import view

    gaps = [f"lost: {name}" for name in report.unread if is_loss(name)]
    if captured:
        coverage = report.coverage
        ranks, nodes = view.unseen_ranks(coverage), view.unseen_nodes(coverage)
        gaps += [f"{view.rank_words(ranks)} not seen"] if ranks else []
        gaps += [f"node {node} not seen" for node in nodes]
        gaps += [f"{coverage.unseen_node_count} node(s) of unknown name not seen"] if coverage.unseen_node_count else []
    for g in view.cell_groups(view.all_cells(report)):
        # what was never asked for (a smaller profile, a source that this engine has not) was not required; a try cut short was
        skipped = g.outcome is Outcome.SKIPPED and (not captured or "profile" in g.reason or g.reason == _NEVER_TRIED)
        if g.outcome.blind and not skipped:
            gaps.append(f"{g.source} of {g.who}: {' · '.join(p for p in (g.outcome.value, g.reason, g.cure and f'cure: {g.cure}') if p)}")
    gaps += [f"rule {r.origin or r.rule} broke: {r.reason}" for r in report.rules if r.status is RuleStatus.ERRORED]
    return gaps


def is_loss(note: str) -> bool:
    """Whether a note about an input says that something was lost, rather than bounded on purpose or of no kind that we know."""
    return _UNKNOWN_FILE not in note and not note.endswith(_BY_DESIGN)


def fails(report: Report, fail_on: str) -> bool:
    """Whether a problem of grade `fail_on` or firmer was found. What merely informs (host-stable) is no problem."""
    from forensics.model import Grade, Severity

    least = Grade(fail_on).strength
    return any(f.grade.strength >= least and f.severity is not Severity.INFO for f in report.findings)


def write_reports(report: Report, out: Path) -> bool:
    """Write the report's forms into `out` (0700), each 0600 and whole or not at all. False, and said, when that failed."""
    from forensics.report import render
    from forensics.report.dot import dot
    from forensics.report.folded import folded

    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, fmt in (("report.json", "json"), ("report.md", "markdown"), ("report.html", "html")):
            _write_whole(out / name, render(report, fmt))
        if report.waits:
            _write_whole(out / "waits.dot", dot(report))
        if report.stack_tree:
            _write_whole(out / "stacks.folded", folded(report))
    except OSError as error:
        _say(f"the reports cannot be written into {out}: {error.strerror or error}. The report is printed all the same.")
        return False
    _tell(f"reports: {', '.join(str(out / n) for n in ('report.html', 'report.md', 'report.json'))}")
    return True


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8"))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _emit(report: Report, fmt: str) -> None:
    try:
        if fmt == "terminal":
            from forensics.report.terminal import print_report

            print_report(report)
        else:
            from forensics.report import render

            # bytes, so that a machine-readable form does not depend on the locale
            sys.stdout.flush()
            sys.stdout.buffer.write(render(report, fmt).encode("utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader (head, less) has seen enough; without this the interpreter complains again while it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(message: str) -> int:
    _say(message)
    return USAGE


def _say(message: str) -> None:
    _tell(f"forensics analyze: {message}")


def _tell(message: str) -> None:
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    sys.stderr.write(encodable(f"{one_line(message)}\n", sys.stderr.encoding or "ascii"))
