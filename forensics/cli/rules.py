"""forensics rules and forensics explain: what the tool can find, and what each finding means.

Exit status: 0 done; 2 wrong usage: no such id, folder, path or format; 3 a rule broke; 4 nothing to analyse.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.analysis.catalogue import Entry
    from forensics.analysis.ownrules import OwnRules
    from forensics.model import RuleResult

OK, USAGE, INCOMPLETE, NOTHING = 0, 2, 3, 4
FORMATS = ("text", "json")
_WIDTH = 100


def rules_command(paths: Sequence[str], folders: Sequence[Path], fmt: str) -> int:
    """List every finding with its status; with paths, what each rule says of them and how long it took."""
    from forensics.analysis.catalogue import entries

    if not _usable("rules", folders, fmt):
        return USAGE
    own = _own("rules", folders)
    if paths:
        return _of_inputs(paths, own, fmt)
    shown = entries(own.rules)
    if fmt == "json":
        broken = [{"origin": r.origin, "reason": r.reason} for r in own.broken]
        _json({"findings": [_listed(e) for e in shown], "broken": broken})
    else:
        wide = max(len(e.id) for e in shown)
        family = ""
        for e in shown:
            if e.family != family:
                family = e.family
                _line(f"{family}:")
            made = f"{e.rule.name}{f'  (your own: {e.rule.origin})' if e.rule.origin else ''}" if e.rule else e.reason
            _line(f"  {e.id:<{wide}}  {e.status:<13}  {made}")
        made_by = len({e.rule.name for e in shown if e.rule})
        lacking = sum(e.rule is None for e in shown)
        _line(f"{len(shown)} findings, {len(shown) - lacking} made by {made_by} rules, {lacking} not implemented")
    return INCOMPLETE if own.broken else OK


def explain_command(id: str, folders: Sequence[Path], fmt: str) -> int:
    """Print what one finding means."""
    from forensics.analysis.catalogue import MISSING, find, nearest

    if not _usable("explain", folders, fmt):
        return USAGE
    own = _own("explain", folders)
    entry = find(id, own.rules) or (find(f"{MISSING}log") if id == f"{MISSING}SOURCE" else None)
    if entry is None:
        near = nearest(id, own.rules)
        _say("explain", f"no finding is called {id!r}" + (f"; perhaps {', '.join(near)}" if near else ""))
        return USAGE
    if fmt == "json":
        _json(_explained(entry))
    else:
        for label, lines in _rows(entry):
            for i, line in enumerate(lines):
                parts = textwrap.wrap(line, _WIDTH - 18, break_long_words=False, break_on_hyphens=False) or [""]
                for k, part in enumerate(parts):
                    _line(f"{'' if i or k else label:<18}{part}")
    return OK


def _rows(entry: Entry) -> list[tuple[str, Sequence[str]]]:
    text, rule = entry.text, entry.rule
    by = f"rule {rule.name}{f', your own: {rule.origin}' if rule.origin else ''}: {rule.about}" if rule else ""
    rows: list[tuple[str, Sequence[str]]] = [
        ("finding", [f"{entry.id}  ({entry.family})"]),
        ("status", [entry.status, *filter(None, [entry.reason])]),
    ]
    if text:
        rows += [("means", [text.says]), ("established when", [text.establishes]), ("lower grades", [text.lower])]
    rows += [("false positives", _false_positives(entry)), ("next steps", _steps(entry)), ("made by", [by]), ("needs", _needs(entry))]
    rows += [("log signatures", [", ".join(entry.signatures)]), ("references", _references(entry))]
    return [(label, kept) for label, lines in rows if (kept := [line for line in lines if line])]


def _false_positives(entry: Entry) -> list[str]:
    said = entry.text.false_positives if entry.text else ""
    return [said or (entry.rule.false_positives if entry.rule else "")]


def _steps(entry: Entry) -> list[str]:
    text = entry.text
    if text is None:
        return []
    over = [f"where the engine spans several nodes: {s}" for s in text.over_nodes]
    return [*text.next_steps, *(f"while it lasts: {s}" for s in text.while_lasts), *over]


def _needs(entry: Entry) -> list[str]:
    rule = entry.rule
    if rule is None:
        return []
    parts = [("all of", rule.requires), ("one of", rule.any_of), ("sharper with", rule.optional)]
    return ["; ".join(f"{word} {', '.join(sources)}" for word, sources in parts if sources)]


def _references(entry: Entry) -> list[str]:
    mine = entry.text.references if entry.text else ()
    return list(dict.fromkeys((*mine, *(entry.rule.references if entry.rule else ()))))


def _listed(entry: Entry) -> dict[str, Any]:
    rule = entry.rule
    return {
        "id": entry.id,
        "family": entry.family,
        "status": entry.status,
        "reason": entry.reason,
        "rule": rule.name if rule else None,
        "origin": (rule.origin or None) if rule else None,
    }


def _explained(entry: Entry) -> dict[str, Any]:
    text, rule = entry.text, entry.rule
    return {
        **_listed(entry),
        "about": rule.about if rule else "",
        "says": text.says if text else "",
        "establishes": text.establishes if text else "",
        "lower": text.lower if text else "",
        "false_positives": _false_positives(entry)[0],
        "next_steps": list(text.next_steps) if text else [],
        "while_lasts": list(text.while_lasts) if text else [],
        "over_nodes": list(text.over_nodes) if text else [],
        "references": _references(entry),
        "requires": list(rule.requires) if rule else [],
        "any_of": list(rule.any_of) if rule else [],
        "optional": list(rule.optional) if rule else [],
        "signatures": list(entry.signatures),
    }


def _of_inputs(paths: Sequence[str], own: OwnRules, fmt: str) -> int:
    from forensics.analysis import analyze
    from forensics.analysis.ingest import NothingToAnalyze

    if lost := [p for p in paths if p != "-" and not os.path.lexists(p)]:
        _say("rules", "no such file or directory: " + ", ".join(lost))
        return USAGE
    try:
        results = analyze(paths, own_rules=own, timing=True).rules
    except NothingToAnalyze as error:
        _say("rules", str(error))
        return NOTHING
    if fmt == "json":
        _json({"rules": [_result(r) for r in results]})
    else:
        for line in _table(results):
            _line(line)
    return INCOMPLETE if any(r.status.value == "ERRORED" for r in results) else OK


def _result(r: RuleResult) -> dict[str, Any]:
    return {
        "rule": r.rule,
        "engine": r.engine or None,
        "status": r.status.value,
        "seconds": r.seconds,
        "reason": r.reason,
        "missing": list(r.missing),
        "origin": r.origin or None,
    }


def _table(results: Iterable[RuleResult]) -> Iterable[str]:
    rows = sorted(results, key=lambda r: -(r.seconds or 0.0))
    wide = max((len(r.rule) for r in rows), default=0)
    for r in rows:
        took = f"{r.seconds * 1000:9.1f} ms" if r.seconds is not None else " " * 12
        yield f"{r.rule:<{wide}}  {r.engine or '-':<4}  {r.status.value:<14}  {took}  {r.reason}"


def _usable(command: str, folders: Sequence[Path], fmt: str) -> bool:
    if fmt not in FORMATS:
        _say(command, f"--format {fmt!r}: expected one of {', '.join(FORMATS)}")
    elif strangers := [str(f) for f in folders if not f.is_dir()]:
        _say(command, f"--rules: no such directory: {', '.join(strangers)}")
    else:
        return True
    return False


def _own(command: str, folders: Sequence[Path]) -> OwnRules:
    from forensics.analysis import ownrules

    own = ownrules.load(folders, ownrules.home_folder())
    for note in (*own.notes, *(f"{r.origin}: {r.reason}" for r in own.broken)):
        _say(command, note)
    return own


def _json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _line(text: str) -> None:
    from forensics.report.safe import visible
    from forensics.report.terminal import encodable

    sys.stdout.write(encodable(visible(text).rstrip() + "\n", sys.stdout.encoding or "ascii"))


def _say(command: str, message: str) -> None:
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    sys.stderr.write(encodable(f"forensics {command}: {one_line(message)}\n", sys.stderr.encoding or "ascii"))
