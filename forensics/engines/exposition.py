"""Prometheus text exposition, read tolerantly and fast: a scrape of 50 kB of which three names are wanted costs well under 1 ms.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text 0.0.4; OpenMetrics lines read the same way).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator

LINE_LIMIT = 16 * 1024
"""A longer line is no metric of ours: hostile input must not cost time."""

_SAMPLE = re.compile(r'([A-Za-z_:][A-Za-z0-9_:]*)[ \t]*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*([^\s{}]+)')
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_NAME_END = re.compile(r"[{ \t]")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse(text: str, wanted: Collection[str] = ()) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield (metric name, labels, value) of every sample.

    `wanted` keeps only metrics whose name is one of these, or ends in one of these at a word border
    ("steps_total" wants "toy:steps_total" but not "missteps_total"). Skipped: comments, `_created` (birth times,
    not counts), values that are not finite numbers, and every line that is no sample at all.
    """
    verdicts: dict[str, bool] = {}
    for line in text.splitlines():
        if not line or line[0] == "#" or len(line) > LINE_LIMIT:
            continue
        border = _NAME_END.search(line)
        name = line[: border.start()] if border else line
        keep = verdicts.get(name)
        if keep is None:  # histogram buckets repeat a name a dozen times: decide once
            keep = verdicts[name] = not name.endswith("_created") and (not wanted or any(fits(name, want) for want in wanted))
        if not keep:
            continue
        found = _SAMPLE.match(line)
        if not found:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, _labels(found[2]) if found[2] else {}, value


def fits(name: str, wanted: str) -> bool:
    """Whether a metric name is `wanted`, or ends in it behind a ":" or "_"."""
    return name == wanted or (name.endswith(wanted) and name[-len(wanted) - 1] in ":_")


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for found in _LABEL.finditer(text):
        value = found[2]
        labels[found[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], value) if "\\" in value else value
    return labels
