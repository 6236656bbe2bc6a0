"""Sets of numbers as people write them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 3, 7} as "0-3,7"."""
    out: list[str] = []
    start = last = None
    for n in [*sorted(set(numbers)), None]:
        if start is not None and last is not None and n == last + 1:
            last = n
            continue
        if start is not None:
            out.append(str(start) if start == last else f"{start}-{last}")
        start = last = n
    return ",".join(out)
