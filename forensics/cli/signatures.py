"""forensics signatures: the log lines that are known, and a test for a folder of them.

Exit status: 0 done; 1 a signature has a problem; 2 no such folder or id; 4 the folder holds none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forensics.analysis.signatures import InForce, Signature

OK, FOUND, USAGE, NOTHING = 0, 1, 2, 4


def list_command(engine: str, folders: Sequence[Path]) -> int:
    """Print one line a signature in force, an operator's own marked with *."""
    from forensics.analysis.signatures import using

    if not _all_folders(folders):
        return USAGE
    with using(_with_home(folders)) as in_force:
        shown = [s for s in sorted(in_force.known, key=lambda s: s.id) if not engine or s.engine == engine]
        own = set(in_force.own)
        _complain(in_force)
    if not shown:
        _say(f"no signature of engine {engine!r}")
        return NOTHING
    rows = [(f"{s.id}{'*' if s.id in own else ''}", s.engine, s.role, s.feeds, s.source) for s in shown]
    wide = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        _print(*row, wide=wide)
    return OK


def show_command(id: str, folders: Sequence[Path]) -> int:
    """Print everything about one signature."""
    from forensics.analysis.signatures import using

    if not _all_folders(folders):
        return USAGE
    with using(_with_home(folders)) as in_force:
        found = next((s for s in in_force.known if s.id == id), None)
        near = [s.id for s in in_force.known if id in s.id][:5]
        own = id in in_force.own
        replaced = id in in_force.replaced
        _complain(in_force)
    if found is None:
        _say(f"no signature is called {id!r}" + (f"; perhaps {', '.join(near)}" if near else ""))
        return USAGE
    whose = "your own, in the place of the shipped one" if replaced else "your own" if own else "ships with the tool"
    for name, value in [("id", f"{found.id} ({whose})"), *_rows(found)]:
        _print(name, value, wide=[16])
    return OK


def test_command(folder: Path | None) -> int:
    """Check a folder's signatures, or those that ship: one line a problem."""
    from forensics.analysis.signature_check import problems
    from forensics.analysis.signatures import load_folder, shipped

    beside: list[Signature] = []
    broken: list[str] = []
    if folder is None:
        known = list(shipped())
    elif folder.is_dir():
        known, broken = load_folder(folder)
        own = {s.id for s in known}
        beside = [s for s in shipped() if s.id not in own]
        broken += [f"{folder / s.id}.toml: a file is called as the id of its signature" for s in known if not _named(folder, s.id)]
    else:
        _say(f"no such directory: {folder}")
        return USAGE
    if not known and not broken:
        _say(f"{folder} holds no *.toml")
        return NOTHING
    found = [*broken, *(f"{s.id}: {problem}" for s in known for problem in problems(s, [*known, *beside]))]
    for line in found:
        _print(line)
    _say(f"{len(known)} signature(s) tested, {len(found)} problem(s)")
    return FOUND if found else OK


def _named(folder: Path, id: str) -> bool:
    return (folder / f"{id}.toml").is_file()


def _rows(s: Signature) -> list[tuple[str, str]]:
    rows = [("engine", s.engine), ("role", s.role), ("feeds", s.feeds), ("event", s.event), ("source", s.source)]
    rows += [("literal", s.literal), ("pattern", s.pattern), *(("after", p) for p in s.after)]
    rows += [("field", f"{name}: {kind}") for name, kind in s.fields.items()]
    rows += [("limit", s.limit), ("block", "a traceback follows" if s.block else "")]
    rows += [("example", e) for e in s.examples] + [("counter-example", e) for e in s.counter_examples]
    return [row for row in [*rows, ("false positives", s.false_positives)] if row[1]]


def _with_home(folders: Sequence[Path]) -> list[Path]:
    from forensics.analysis.signatures import home_folder

    home = home_folder()
    return [*([home] if home else ()), *folders]


def _all_folders(folders: Sequence[Path]) -> bool:
    if strangers := [str(f) for f in folders if not f.is_dir()]:
        _say(f"no such directory: {', '.join(strangers)}")
    return not strangers


def _complain(in_force: InForce) -> None:
    for broken in in_force.broken:
        _say(f"not used: {broken}")


def _print(*cells: str, wide: Sequence[int] = ()) -> None:
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    padded = [one_line(cell).ljust(wide[i]) if i < len(wide) else one_line(cell) for i, cell in enumerate(cells)]
    sys.stdout.write(encodable("  ".join(padded).rstrip() + "\n", sys.stdout.encoding or "ascii"))


def _say(message: str) -> None:
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    sys.stderr.write(encodable(f"forensics signatures: {one_line(message)}\n", sys.stderr.encoding or "ascii"))
