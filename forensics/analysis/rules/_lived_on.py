"""Whether an engine came through: it became ready, or worked, after a line that sounds like its end."""

from __future__ import annotations

from forensics.analysis.view import View
from forensics.model import LogHit, TimeRange


def served_after(view: View, hit: LogHit) -> TimeRange | None:
    """When it was first seen ready or at work after this line, in the same life; None where it was not."""
    times = [h.at for h in view.events("ready") if h.at and view.before(hit, h)]
    if hit.at is not None:
        for seen in (*view.progress.log, *(i for i in view.progress.metrics if i.moved)):
            if seen.until_ns is not None and seen.until_ns > hit.at.latest_ns:
                times.append(TimeRange(earliest_ns=seen.until_ns, latest_ns=seen.until_ns, basis="logged"))
    return min(times, key=lambda t: t.earliest_ns, default=None)


def served(view: View) -> TimeRange | None:
    """When this life was first seen ready or at work."""
    times = [h.at for h in view.events("ready") if h.at]
    times += [TimeRange(earliest_ns=i.until_ns, latest_ns=i.until_ns, basis="logged") for i in view.progress.log if i.until_ns is not None]
    return min(times, key=lambda t: t.earliest_ns, default=None)
