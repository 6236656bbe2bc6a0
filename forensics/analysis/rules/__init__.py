"""All rules. Adding a rule is one file here that defines RULE; it is found by its presence."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from forensics.analysis.rules._contract import SOURCES, CannotTell, PairRule, Rule, Text, grade


@functools.lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Every rule of this folder, in the order of their names."""
    modules = (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return tuple(importlib.import_module(f"{__name__}.{name}").RULE for name in sorted(modules))


__all__ = ["SOURCES", "CannotTell", "PairRule", "Rule", "Text", "grade", "rules"]
