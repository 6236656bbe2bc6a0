"""One self-contained HTML file: no script, no request to anywhere, readable offline, printed, in light and dark."""

from __future__ import annotations

import base64
import hashlib

from forensics.model import Finding, Report, TimelineEvent
from forensics.report import grid, stackwords, templating, times, view, waitgraph, waitwords

MOST_EVENTS = 1000
"""Rows of the timeline. A page of more cannot be read; the JSON report has all of them."""

_STATES = ("stalled", "dead", "degraded", "healthy", "starting", "stopped", "unknown")


def to_html(report: Report) -> str:
    """The report as one HTML document."""
    css = templating.source("report/style.css")
    drawing = waitgraph.draw(report)
    events = report.timeline[:MOST_EVENTS]
    return templating.render(
        "report.html.j2",
        report=report,
        css=templating.trusted(css),
        # only this very style sheet may apply: a style attribute smuggled in by evidence would be ignored
        csp=f"default-src 'none'; style-src 'sha256-{_digest(css)}'; base-uri 'none'; form-action 'none'",
        view=view,
        state=report.verdict.state if report.verdict.state in _STATES else "unknown",
        claims=view.claims(report),
        refuted=view.refuted(report),
        unseen=view.unseen(report),
        ledgers=view.ledgers(report),
        gaps=view.cell_groups(view.all_cells(report)),
        grids=grid.grids(report),
        drawing=drawing,
        wait_lines=waitwords.wait_lines(report.waits),
        waits_sentence=waitwords.story(report.waits, report.waits_whole),
        stackwords=stackwords,
        stack_rows=list(stackwords.rows(report.stack_tree)),
        next_steps=view.next_steps(report),
        would_settle=view.would_settle(report),
        rules=view.sorted_rules(report.rules),
        events=[(e, i > 0 and view.order_unknown(events[i - 1], e)) for i, e in enumerate(events)],
        events_left_out=len(report.timeline) - len(events),
        days=_days(events),
        when=_when,
        length=times.duration,
    )


def _digest(css: str) -> str:
    return base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")


def _days(events: tuple[TimelineEvent, ...]) -> list[str]:
    return list(dict.fromkeys(day for e in events if (day := times.day(e.at.earliest_ns))))


def _when(finding: Finding) -> str:
    """ "since 10:02:00Z" or "from … to …", with the basis where it is not a plain instant; "" when undated."""
    if finding.since is None:
        return ""
    begin = times.range_words(finding.since)
    until = f" until {times.range_words(finding.until)}" if finding.until else ""
    return f"since {begin}{until} ({finding.since.basis})"
