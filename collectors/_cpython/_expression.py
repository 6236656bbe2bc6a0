"""Expressions over the objects of a process; parsed here, never evaluated there."""

from __future__ import annotations

from collections.abc import Sequence

from collectors._cpython._process import Process
from collectors._cpython._records import Bounds, Found, Root


def evaluate(process: Process, expr: str, roots: Sequence[Root] = (), bounds: Bounds = Bounds()) -> Found:
    """Resolve `Root.attribute[index]["key"]` or `len(…)` of such. Raises BadExpression, NotFound and what Process raises."""
    raise NotImplementedError
