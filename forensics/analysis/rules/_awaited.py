"""What a start waits for, and why one failed, in the words of its own lines."""

from __future__ import annotations

import re

from forensics.analysis.rules._contract import grade
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, LogHit, Severity

AWAITS = ("vllm-ray-placement-wait", "vllm-cores-awaited")


def awaited(view: View, waits: list[LogHit]) -> Finding:
    """A log that begins amid a start, at the lines by which it asks again and again for what it needs."""
    gpus = [h for h in waits if h.signature == AWAITS[0]]
    told = gpus or waits
    seconds = max((int(float(h.fields["seconds"])) for h in gpus), default=0)
    ends = [h.at.earliest_ns for h in told if h.at]
    seconds = max(seconds, round((max(ends) - min(ends)) / SECOND)) if ends else seconds
    what = "Ray to give it GPUs" if gpus else "its engine cores"
    return view.finding(
        "startup-in-progress",
        grade(observed=True),
        title=f"The start waits for {what}, for {duration(seconds)} so far",
        because=[h.ref for h in (told[0], told[-1])],
        severity=Severity.WARNING if gpus else Severity.INFO,
        since=told[0].began or told[0].at,
        does_not_show="why: a node that did not join, GPUs that others hold, or an address that Ray knows by another name"
        if gpus
        else "how far the cores are: loading and compiling take minutes",
        would_settle=["ray status", "ray list nodes"] if gpus else ["the cores' own lines", "stacks of the cores"],
        next_steps=["compare the addresses that Ray knows with VLLM_HOST_IP of each node"] if gpus else [],
    )


def reason(hit: LogHit) -> str:
    """What it said of why; a line that is itself the exception is its own reason."""
    if hit.fields.get("exc_type"):
        return f": {hit.fields['exc_type']} {hit.fields.get('exc_message', '')}".rstrip()
    said = re.search(r"\b\w+Error: .{1,200}", hit.text)
    return f": {said[0]}" if said else ""
