"""Rules of the operator: Python files of a folder, each of which defines RULE. A broken one is told and ends nothing.

To load such a file is to run it. So it is done only for a folder that was named on the command line, and for the standing
folder in the operator's own configuration when nobody else can have written what lies there.
"""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from forensics.analysis import signatures
from forensics.analysis.rules import Rule, rules
from forensics.analysis.run import said
from forensics.model import RuleResult, RuleStatus

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class OwnRules:
    """What an operator's folders hold."""

    rules: tuple[Rule, ...] = ()
    broken: tuple[RuleResult, ...] = ()
    """One ERRORED result for each file that is no rule, or whose rule may not be used."""
    notes: tuple[str, ...] = ()
    """Why a standing folder was left alone."""


def home_folder() -> Path | None:
    """$XDG_CONFIG_HOME/forensics/rules (~/.config by default); None where there is none."""
    return signatures.home_folder("rules")


def load(asked: Sequence[Path], home: Path | None = None) -> OwnRules:
    """Load the rules of the folders that were asked for, and of the operator's standing folder where it can be trusted."""
    notes: list[str] = []
    files: list[Path] = []
    if home is not None:
        if why := untrusted(home):
            notes.append(f"the rules in {home} were not run: {why}")
        else:
            files += _files(home)
    files += [f for folder in asked for f in _files(folder)]
    made: list[Rule] = []
    broken: list[RuleResult] = []
    for path in dict.fromkeys(f.resolve() for f in files):
        try:
            rule = _load(path)
            if why := _refused(rule, made):
                raise ValueError(why)
            made.append(rule)
        except (Exception, SystemExit) as error:
            broken.append(RuleResult(rule=path.stem, status=RuleStatus.ERRORED, reason=f"not used: {said(error)}", origin=str(path)))
    return OwnRules(tuple(made), tuple(broken), tuple(notes))


def untrusted(folder: Path) -> str:
    """Why what lies in a folder may be somebody else's; "" when it is the user's own and nobody else may write it."""
    try:
        for path in (folder.parent, folder, *_files(folder)):
            found = path.stat()  # of what a link leads to: that is what would be run
            if found.st_uid != os.geteuid():
                return f"{path} belongs to another user"
            if found.st_mode & _OTHERS_WRITE:
                return f"{path} may be written by others (cure: chmod go-w {path})"
            if path.is_symlink() and (why := _above(path.resolve())):
                return why
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return ""


def _above(target: Path) -> str:
    found = target.parent.stat()
    mine = found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
    return "" if mine else f"{target} lies where others may write"


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))


def _load(path: Path) -> Rule:
    spec = importlib.util.spec_from_file_location(f"forensics_own_rules.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rule = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        raise TypeError("it defines no RULE, a forensics.analysis.rules.Rule")
    return replace(rule, origin=str(path))


def _refused(rule: Rule, others: Sequence[Rule]) -> str:
    """Why a rule may not be used: what it claims must not pass for the claim of another rule."""
    from forensics.analysis.catalogue import MISSING, known_ids

    if not rule.emits:
        return "it names no finding that it makes"
    if not all(isinstance(id, str) for id in (rule.name, *rule.emits)):
        return "its name and ids must be texts"
    if rule.name in {r.name for r in (*rules(), *others)}:
        return f"another rule is called {rule.name}"
    if reserved := [id for id in rule.emits if id.startswith(MISSING)]:
        return f"another rule, or the catalogue, has the finding {', '.join(reserved)}: choose an id of your own"
    if taken := sorted(set(rule.emits) & {*known_ids(), *_emitted(others)}):
        return f"another rule, or the catalogue, has the finding {', '.join(taken)}: choose an id of your own"
    return ""


def _emitted(which: Iterable[Rule]) -> Iterator[str]:
    return (id for r in which for id in r.emits)
