"""Every fixture, one file per family."""

from __future__ import annotations

import importlib
import pkgutil

from tests.rules.registry import Fixture


def fixtures() -> list[Fixture]:
    """All of them, in the order of their families."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return [fixture for module in modules for fixture in module.FIXTURES]
