"""Objects that the frames of a process hold: where expressions begin."""

from __future__ import annotations

from collectors._cpython._process import Process
from collectors._cpython._records import Root


def roots(process: Process, py_spy: str, timeout_s: float = 5.0) -> list[Root]:
    """Every local variable of every Python frame, from `py-spy dump --nonblocking --locals`; only addresses are kept."""
    raise NotImplementedError
