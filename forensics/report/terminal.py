"""Print the one-screen report. Colour only on a terminal; plain characters only where the output knows no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forensics.model import Report
from forensics.report import text

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    "": "",
    "label": "cyan",
    "dim": "dim",
    "bold": "bold",
    "bad": "red",
    "warn": "yellow",
    "quote": "italic",
    "state:stalled": "bold white on red",
    "state:dead": "bold white on red",
    "state:degraded": "bold black on yellow",
    "state:starting": "bold black on yellow",
    "state:healthy": "bold black on green",
    "state:stopped": "bold reverse",
    "state:unknown": "bold reverse",
    "grade:established": "bold",
    "grade:supported": "",
    "grade:possible": "italic",
    "grade:refuted": "strike",
    "grade:not assessable": "dim",
}
_NARROWEST, _WIDEST = 60, 140

# an output that cannot encode these gets the nearest plain character instead of an escape
_PLAIN = str.maketrans({"→": "->", "·": "|", "…": "...", "⏎": "\\n", "×": "x", "–": "-", "—": "-"})


def print_report(report: Report, *, console: Console | None = None, verbose: bool = False) -> None:
    """Print `report` on `console` (default: standard output). Without a terminal: no colour, no control sequence."""
    from rich.console import Console
    from rich.text import Text

    target = console or Console(highlight=False, markup=False, emoji=False)
    width = min(max(target.width, _NARROWEST), _WIDEST) if target.is_terminal else text.WIDTH
    for line in text.lines(report, width=width, verbose=verbose):
        if not target.is_terminal:
            # not through rich, which ends the whole process when the reader of a pipe has gone
            target.file.write(encodable("".join(words for _, words in line).rstrip(), target.encoding) + "\n")
            continue
        # Text objects, never markup: a log line that says "[bold]" is shown as it is
        out = Text(no_wrap=True, overflow="ignore", end="\n")
        for style, words in line:
            out.append(encodable(words, target.encoding), STYLES.get(style, ""))
        out.rstrip()
        target.print(out, soft_wrap=True, highlight=False, markup=False, emoji=False)


def encodable(words: str, encoding: str) -> str:
    """`words` as `encoding` can hold them."""
    try:
        words.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return words.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")
    return words
