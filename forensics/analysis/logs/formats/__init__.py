"""The formats, one file each, found by their place in this folder. Adding one is adding a file that holds a FORMAT."""

from __future__ import annotations

import importlib
import pkgutil

from forensics.analysis.logs._format import Format


def _load() -> tuple[Format, ...]:
    found: list[Format] = []
    for module in pkgutil.iter_modules(__path__):
        held = importlib.import_module(f"{__name__}.{module.name}")
        found.append(held.FORMAT)
    # the order is fixed by the formats, not by the file system
    return tuple(sorted(found, key=lambda f: (f.order, f.name)))


FORMATS = _load()
RECORDS = tuple(f for f in FORMATS if f.decode is not None)
"""Whole lines of JSON."""
BY_FIRST_CHARACTER: dict[str, tuple[Format, ...]] = {
    first: tuple(f for f in FORMATS if first in f.starts) for first in sorted({c for f in FORMATS for c in f.starts})
}
