"""Renderings. All of them are made from one forensics.model.Report and interpret nothing.

`render` gives text in memory; the terminal form with colour is `forensics.report.terminal.print_report`.
"""

from __future__ import annotations

from forensics.model import Report

FORMATS = ("terminal", "json", "markdown", "html")


class UnsupportedFormat(ValueError):
    """A format name that this version does not write. The message names those that it does."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unsupported report format {name!r}: this version writes {', '.join(FORMATS)}")


def check_format(fmt: str) -> None:
    """Raise UnsupportedFormat before any work is done for a format that cannot be written."""
    if fmt not in FORMATS:
        raise UnsupportedFormat(fmt)


def render(report: Report, fmt: str) -> str:
    """`report` in one of FORMATS. Raises UnsupportedFormat (a ValueError). Heavy imports happen only for the form that needs them."""
    check_format(fmt)
    if fmt == "json":
        from forensics.report.json import to_json

        return to_json(report).decode("utf-8")
    if fmt == "markdown":
        from forensics.report.markdown import to_markdown

        return to_markdown(report)
    if fmt == "html":
        from forensics.report.html import to_html

        return to_html(report)
    from forensics.report.text import plain

    return plain(report)
