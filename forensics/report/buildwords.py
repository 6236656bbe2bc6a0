"""Builds and installed files in words for people. Pure functions; no markup, no escaping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.model import Build, ChangedFile, CodeCheck
from forensics.report.view import rank_words

SHOWN = 8
"""Files that are named of each kind."""


def build_words(build: Build) -> str:
    """ "torch 2.13.0 (build cf30153c4c13): ranks 0-1 on node0"."""
    name = " ".join(filter(None, (build.component, build.version)))
    made = f" (build {build.build_id[:12]})" if build.build_id else ""
    who = rank_words(build.ranks) or f"{len(build.pids)} process{'es' * (len(build.pids) > 1)}"
    return f"{name}{made}: {who} on {', '.join(build.nodes) or '?'}"


def check_words(check: CodeCheck) -> Iterator[str]:
    """What was compared of one distribution, and what differs. Nothing is called unchanged that was not compared."""
    about = f"installed files of {check.distribution} {check.version}".rstrip()
    counted = f"{check.hashed} of {check.named} files compared with its record, {check.sources_hashed} of {check.sources} Python sources"
    if not check.named:
        yield f"{about}: not compared: {check.cut}"
        return
    yield f"{about}: {counted}, {check.differing or 'none'} differ{'s' * (not check.differing)}" + (f"; {check.cut}" if check.cut else "")
    for what, files in (("modified", check.modified), ("missing", check.missing), ("added", check.added)):
        if files:
            yield f"  {what}: {_names(files)}"


def _names(files: Sequence[ChangedFile]) -> str:
    more = len(files) - SHOWN
    return ", ".join(f.path for f in files[:SHOWN]) + (f" and {more} more" if more > 0 else "")
