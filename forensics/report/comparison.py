"""A comparison for people and programs: 80 columns, Markdown, or JSON (forensics.diff/1)."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.model import Change, Comparison, Direction, Figure, Root
from forensics.report import times
from forensics.report.markdown import code, prose
from forensics.report.safe import clip, one_line

SCHEMA = "forensics.diff/1"
WIDTH = 80
_LABEL = 12
_MOST = 12
"""Changes of a topic that are shown; the rest is counted."""
_ARROW = {
    Direction.UP: "up",
    Direction.DOWN: "down",
    Direction.CHANGED: "changed",
    Direction.APPEARED: "appeared",
    Direction.GONE: "gone",
    Direction.SAME: "same",
    Direction.ONLY_BEFORE: "only before",
    Direction.ONLY_AFTER: "only after",
}
WEAKER = "not both sides are captures: what bare files do not tell is unknown, and no change of it is seen"


def render(comparison: Comparison, fmt: str) -> str:
    """`fmt` is terminal, json or markdown."""
    if fmt == "json":
        return json.dumps(as_dict(comparison), indent=1, ensure_ascii=True) + "\n"
    lines = _markdown(comparison) if fmt == "markdown" else _terminal(comparison)
    return "".join(line.rstrip() + "\n" for line in lines)


def _terminal(c: Comparison) -> Iterator[str]:
    yield from _row("before", f"{c.verdicts[0].state.upper()}  {_root(c.roots[0])}  {', '.join(c.before)}")
    yield from _row("after", f"{c.verdicts[1].state.upper()}  {_root(c.roots[1])}  {', '.join(c.after)}")
    if not c.captured:
        yield from _row("weaker", WEAKER)
    for finding in c.findings:
        yield from _row("asymmetric", f"{finding.id} ({finding.grade.value})")
    yield from _row("load", c.load)
    yield from _row("believe", c.believe)
    for words in c.unmatched:
        yield from _row("unmatched", words)
    for topic, changes in _topics(c):
        yield ""
        moved = [x for x in changes if x.direction is not Direction.SAME]
        yield f"{topic:<{_LABEL}}{_counts(changes)}"
        # what one side alone could see is no change: it stands last
        moved.sort(key=lambda x: x.direction in (Direction.ONLY_BEFORE, Direction.ONLY_AFTER))
        shown = changes if topic == "load" else moved
        for change in shown[:_MOST]:
            yield clip(f"  {_ARROW[change.direction]:<12}{one_line(f'{change.where} {change.what}')}", WIDTH)
            yield clip(f"{'':<14}{one_line(_values(change))}", WIDTH)
        if len(shown) > _MOST:
            yield f"  … {len(shown) - _MOST} more with --format json"


def _row(label: str, text: str) -> Iterator[str]:
    for n, part in enumerate(textwrap.wrap(one_line(text), WIDTH - _LABEL, break_on_hyphens=False)):
        yield clip(f"{'' if n else label:<{_LABEL}}{part}", WIDTH)


def _root(root: Root) -> str:
    where = " ".join(p for p in (root.node or "", f"rank {root.rank}" if root.rank is not None else "") if p)
    return f"root {root.finding} ({where})" if root.finding else "no root named"


def _topics(c: Comparison) -> Iterator[tuple[str, list[Change]]]:
    for topic in dict.fromkeys(x.topic for x in c.changes):
        yield topic, [x for x in c.changes if x.topic == topic]


def _counts(changes: Iterable[Change]) -> str:
    counted = Counter(x.direction for x in changes)
    return ", ".join(f"{counted[d]} {_ARROW[d]}" for d in Direction if counted[d])


def _values(c: Change) -> str:
    before, after = _value(c.before, c.unit), _value(c.after, c.unit)
    return f"{before} -> {after}" if before != after else before


def _value(value: Figure | str | None, unit: str) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, str):
        return value
    noise = f" ({_number(value.low)} to {_number(value.high)})" if value.low != value.high else " (one sample)" if value.samples < 2 else ""
    return f"{_number(value.value)}{unit if unit in ('%', '°C', '/s') else f' {unit}' if unit else ''}{noise}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def _markdown(c: Comparison) -> Iterator[str]:
    yield "# Before and after"
    yield ""
    for side, verdict, root, inputs in (("Before", c.verdicts[0], c.roots[0], c.before), ("After", c.verdicts[1], c.roots[1], c.after)):
        yield f"- **{side}:** {prose(verdict.state.upper())}, {prose(_root(root))} ({prose(', '.join(inputs))})"
    if not c.captured:
        yield f"- **Weaker:** {prose(WEAKER)}"
    for finding in c.findings:
        yield f"- **Finding:** {code(finding.id)} ({finding.grade.value})"
    yield f"- **Load:** {prose(c.load)}"
    yield f"- **Believe:** {prose(c.believe)}"
    for words in c.unmatched:
        yield f"- **Unmatched:** {prose(words)}"
    for topic, changes in _topics(c):
        yield ""
        yield f"## {topic.capitalize()}"
        yield ""
        yield f"{_counts(changes)}"
        shown = changes if topic == "load" else [x for x in changes if x.direction is not Direction.SAME]
        if shown:
            yield ""
            yield "| direction | where | what | before | after |"
            yield "|---|---|---|---|---|"
        for x in shown:
            cells = (_ARROW[x.direction], x.where, x.what, _value(x.before, x.unit), _value(x.after, x.unit))
            yield "| " + " | ".join(prose(cell).replace("|", "&#124;") for cell in cells) + " |"


def as_dict(c: Comparison) -> dict[str, Any]:
    """The whole as plain JSON. Every key is always there."""
    return {
        "schema": SCHEMA,
        "before": _side(c, 0),
        "after": _side(c, 1),
        "captured": c.captured,
        "load": c.load,
        "believe": c.believe,
        "unmatched": list(c.unmatched),
        "findings": [
            {
                "id": f.id,
                "grade": f.grade.value,
                "title": f.title,
                "does_not_show": f.does_not_show,
                "next_steps": list(f.next_steps),
                "because": [{"source": r.source, "locator": r.locator, "quote": r.quote} for r in f.because],
            }
            for f in c.findings
        ],
        "changes": [
            {
                "topic": x.topic,
                "where": x.where,
                "what": x.what,
                "direction": x.direction.value,
                "before": _plain(x.before),
                "after": _plain(x.after),
                "unit": x.unit or None,
                "because": [{"source": r.source, "locator": r.locator, "quote": r.quote} for r in x.refs],
            }
            for x in c.changes
        ],
    }


def _side(c: Comparison, n: int) -> dict[str, Any]:
    root = c.roots[n]
    return {
        "inputs": list((c.before, c.after)[n]),
        "state": c.verdicts[n].state,
        "root": root.finding,
        "node": root.node,
        "rank": root.rank,
        "since": times.iso(root.since_ns),
    }


def _plain(value: Figure | str | None) -> Any:
    if isinstance(value, Figure):
        return {"value": value.value, "low": value.low, "high": value.high, "samples": value.samples}
    return value
