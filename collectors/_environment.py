"""The folders of packages that processes share, and the files in them against the records of those who installed them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from collectors._contract import os_error_outcome
from collectors._installed import Distribution, record_of
from collectors._recorded import Budget, Check, rows

Json = dict[str, Any]
NOTHING: Json = {
    **dict.fromkeys(("named", "hashed", "sources", "sources_hashed", "differing"), 0),
    "modified": [],
    "missing": [],
    "added": [],
    "walked": False,
}
"""Of what could not be compared."""


@dataclass
class Environment:
    """Folders of packages as one set of processes sees them."""

    root: str
    folders: list[str]
    pids: list[int] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    checked: dict[str, Distribution] = field(default_factory=dict)
    """By metadata folder: whose files are compared with their record, the engine's own first."""
    beside: set[str] = field(default_factory=set)
    """Of those: what the engine stands on."""


def check(environment: Environment, budget: Budget, everything: bool) -> Iterator[Json]:
    """The files of each distribution against its record: first what is urgent of all, the engine's before torch's."""
    works: list[tuple[Distribution, Check | None, str, tuple[int, ...]]] = []
    for distribution in environment.checked.values():
        work, why, identity = None, "", _identity(distribution)
        try:
            record = record_of(distribution)
        except OSError as error:
            record, why = b"", os_error_outcome(error)[1]
        if distribution.editable:
            why = f"it is imported from {distribution.editable}, whose files no record names"
        elif record:
            work = Check(environment.root, distribution.folder, record, record_ns=identity[-1] if identity else 0)
            work.look(distribution.meta not in environment.beside, everything)
        works.append((distribution, work, why or "it keeps no record of its files", identity))
    for level in range(4):
        for _, work, _, _ in works:
            if work is not None:
                work.work(level, budget)

    def elsewhere() -> set[str]:
        return {row.path for d in environment.distributions for row in _rows(d)}

    for distribution, work, why, identity in works:
        if work is not None:
            work.seek_added(budget, elsewhere)
            if not identity or _identity(distribution) != identity:
                # the process whose root was read has ended, or somebody installs at this moment: what is missing was not missing
                work, why = None, "its files went away or were replaced while they were compared"
        about = {"distribution": distribution.name, "version": distribution.version, "folder": distribution.folder}
        about["installer"] = distribution.installer
        yield {**about, **(work.result(budget) if work is not None else {**NOTHING, "cut": why})}


def _identity(distribution: Distribution) -> tuple[int, ...]:
    """Of its record, () where it has none or its folder is gone."""
    try:
        s = os.stat(f"{distribution.where}/RECORD")
    except OSError:
        return ()
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns


def _rows(distribution: Distribution) -> list[Any]:
    try:
        return rows(record_of(distribution))
    except OSError:
        return []
