"""The wait-for graph in Graphviz' language, for those who want to lay it out or join it with others."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Grade, Report
from forensics.report import waitwords
from forensics.report.safe import one_line

_STYLES = {Grade.ESTABLISHED: "solid", Grade.SUPPORTED: "dashed"}


def dot(report: Report) -> str:
    """`report.waits` as a digraph: an arrow points at the one that is waited for; dashed supported, dotted less. Valid without waits."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    names = waitwords.participants(report.waits)
    number = {name: f"n{i}" for i, name in enumerate(names)}
    yield "digraph waits {"
    yield "  rankdir=LR; node [shape=box, fontname=sans]; edge [fontname=sans];"
    for name, (label, detail) in names.items():
        yield f"  {number[name]} [label={_quoted(label, detail)}];"
    for w in report.waits:
        style = _STYLES.get(w.grade, "dotted")
        said = _quoted(f"{w.via} {w.detail}".rstrip(), w.grade.value)
        yield f"  {number[w.waiter]} -> {number[w.waits_for]} [label={said}, style={style}];"
    yield "}"


def _quoted(*rows: str) -> str:
    # in a quoted string only these two are special; a row break is written \n
    safe = [one_line(row).replace("\\", "\\\\").replace('"', '\\"') for row in rows if row]
    return '"' + "\\n".join(safe) + '"'
