"""What became of an engine after the last line of its log: its container ended, or its machine did.

A log that stops in the middle of work says nothing of the end itself. Where the platform or the kernel tells that the process
cannot have lived on, what the log shows is history and not a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forensics.analysis.rules._machine import SLACK_NS
from forensics.analysis.times import SECOND, iso
from forensics.analysis.view import View
from forensics.model import BootTime, ContainerStatus, EvidenceRef, KernelEvent, TimeRange

ASKED = ("kernel-reboot", "kernel-systemd-shutdown")
BEFORE_NS = 60 * SECOND
"""Services are ended a while before the machine itself says the last word."""
SOON_NS = 60 * SECOND
"""A log that ends within this time of the end was written until then."""
WANTED = (0, 143)
"""Exit codes of a container that was asked to end, or had nothing more to do."""


@dataclass(frozen=True)
class Gone:
    """The end that followed the last line."""

    how: Literal["container", "asked", "booted"]
    node: str
    at: TimeRange
    because: tuple[EvidenceRef, ...]
    what: str
    wanted: bool
    soon: bool
    """Whether the log was written until then."""


def gone(view: View) -> Gone | None:
    """The end of the last life, as others than the engine tell it; None where nothing does, or where it was looked at live."""
    if view.past or view.ended_ns is None or any(n in view.case.bundled for n in view.nodes):
        return None
    scraped = [i.until_ns for i in view.progress.metrics if i.moved and i.until_ns is not None]
    last = max(view.ended_ns, *scraped) if scraped else view.ended_ns
    return _container(view, last) or _machine(view, last)


def _container(view: View, last: int) -> Gone | None:
    engines = {n for e in view.case.engines for n in e.nodes}
    for c in view.case.of(ContainerStatus):
        mine = c.node in view.nodes or (c.node not in engines and len(view.case.engines) == 1)
        if not mine or c.ended is None or c.ended.latest_ns < last - SLACK_NS or c.exit_code is None:
            continue
        node = c.node if c.node in view.nodes else view.nodes[0]
        said = f"its container ended at {iso(c.ended.earliest_ns)} with exit code {c.exit_code}" + (f" ({c.reason})" if c.reason else "")
        return Gone("container", node, c.ended, (c.ref,), said, c.exit_code in WANTED, c.ended.earliest_ns - last <= SOON_NS)
    return None


def _machine(view: View, last: int) -> Gone | None:
    events = [e for e in view.case.of(KernelEvent) if e.node in view.nodes and e.at]
    asked = [e for e in events if e.signature in ASKED and e.at and e.at.latest_ns >= last - BEFORE_NS]
    if asked and asked[0].at:
        first = asked[0]
        said = f"{first.node} was shut down or rebooted on request at {iso(asked[0].at.earliest_ns)}"
        return Gone("asked", first.node, asked[0].at, (first.ref,), said, True, asked[0].at.earliest_ns - last <= SOON_NS)
    boots = [(e.node, e.at, e.ref) for e in events if e.signature == "kernel-boot" and e.at]
    boots += [(b.node, b.booted, b.ref) for b in view.on_nodes(BootTime)]
    later = sorted((b for b in boots if b[1].earliest_ns > last + SLACK_NS), key=lambda b: b[1].earliest_ns)
    if not later:
        return None
    node, at, ref = later[0]
    since = TimeRange(earliest_ns=last, latest_ns=at.earliest_ns, basis="inferred")
    return Gone("booted", node, since, (ref,), f"{node} was booted again at {iso(at.earliest_ns)}", False, False)
