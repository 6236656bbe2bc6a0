"""forensics show: what lies in a bundle, as plain lines. Interprets nothing; `forensics analyze` does.

Exit status: 0 done; 1 it cannot be read at all; 3 something of the bundle is lost (which is said); 4 not a bundle.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forensics.model.times import iso
from forensics.report.safe import one_line

if TYPE_CHECKING:
    from forensics.bundle import Source
    from forensics.bundle.manifest import Manifest
    from forensics.model import Attempt, Evidence

OK, UNREADABLE, INCOMPLETE, NOT_A_BUNDLE = 0, 1, 3, 4


def show_command(bundle: Path) -> int:
    """Print the manifest, the attempts and the evidence of `bundle` (packed or not, sealed or cut). Returns the exit status."""
    from forensics.bundle import BundleError, NotABundle, open_source
    from forensics.cli.analyze import is_loss

    try:
        source = open_source(bundle)
        if source.manifest is None and not source.attempts and not any(True for _ in source.items()):
            raise NotABundle(f"{bundle} holds nothing", "name a bundle, a directory of logs or a log file")
        for line in lines(source):
            _write(line + "\n")
        sys.stdout.flush()
    except NotABundle as error:
        _complain(error)
        return NOT_A_BUNDLE
    except BundleError as error:
        _complain(error)
        return UNREADABLE
    return INCOMPLETE if any(map(is_loss, source.losses)) else OK


def lines(source: Source) -> Iterator[str]:
    """The whole of it, line by line, already safe to print."""
    yield f"bundle      {one_line(source.label)}"
    if source.manifest is None:
        yield "manifest    none: bare files, or a bundle that was cut before it was sealed"
    else:
        yield from _manifest(source.manifest)
    attempts = list(source.attempts)
    if attempts:
        yield ""
        yield f"attempts    {len(attempts)} ({_counted(a.outcome.value for a in attempts)})"
        yield from (f"  {_attempt(a)}" for a in attempts)
    items = list(source.items())
    records = [(item.name, item.evidence) for item in items]
    size = sum(e.size_bytes for _, e in records if e)
    yield ""
    yield f"evidence    {len(records)} files{f', {size:,} bytes' if size else ''}"
    yield from (f"  {_evidence(name, record)}" for name, record in records)
    if source.losses:
        yield ""
        yield f"not whole   {len(source.losses)}"
        yield from (f"  {one_line(loss)}" for loss in source.losses)


def _manifest(manifest: Manifest) -> Iterator[str]:
    begin, end = iso(manifest.started_ns or None), iso(manifest.ended_ns or None)
    fields = {
        "node": manifest.node,
        "captured": f"{begin or '?'} to {end or '?'}",
        "incident": manifest.incident,
        "trigger": manifest.trigger,
        "reason": manifest.reason,
        "profile": manifest.profile,
        "tool": manifest.tool,
        "boot": manifest.boot_id,
        "zone": manifest.timezone,
        "redacted": ", ".join(f"{count} {kind}" for kind, count in sorted(manifest.redactions.items())),
    }
    for name, value in fields.items():
        if value:
            yield f"{name:<12}{one_line(value)}"


def _attempt(a: Attempt) -> str:
    took = f"{(a.ended_ns - a.started_ns) / 1e9:.2f} s" if a.started_ns and a.ended_ns >= a.started_ns else ""
    sample = f"sample {a.sample}" if a.sample else ""
    why = " · ".join(one_line(part) for part in (a.reason, f"cure: {a.cure}" if a.cure else "") if part)
    return f"{a.outcome.value:<12}{one_line(a.collector):<10} {one_line(a.target):<36} {sample:<9} {took:>8}  {why}".rstrip()


def _evidence(name: str, record: Evidence | None) -> str:
    if record is None:
        return f"{'':>12}  {'':<14} {one_line(name)}"
    notes = [
        f"pid {record.pid}" if record.pid is not None else "",
        f"sample {record.sample}" if record.sample else "",
        "cut" if record.truncated else "",
        f"{record.redactions} redacted" if record.redactions else "",
        f"from {record.source}" if record.source else "",
    ]
    said = " · ".join(one_line(note) for note in notes if note)
    return f"{record.size_bytes:>12,}  {one_line(record.kind):<14} {one_line(name)}{'  ' if said else ''}{said}"


def _counted(words: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _write(text: str) -> None:
    from forensics.report.terminal import encodable

    sys.stdout.write(encodable(text, sys.stdout.encoding or "ascii"))


def _complain(error: Exception) -> None:
    cure = getattr(error, "cure", "")
    sys.stderr.write(f"forensics show: {one_line(error)}\n{f'  {one_line(cure)}' + chr(10) if cure else ''}")
