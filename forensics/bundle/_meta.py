"""What a bundle says of itself: manifest, or (never sealed) its attempts and its journal, as far as they are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from forensics.bundle._names import ATTEMPTS, CHECKSUMS, JOURNAL, MANIFEST, printable
from forensics.bundle.manifest import MANIFEST_LIMIT_BYTES, MAX_RECORDS, decode_manifest, decode_record
from forensics.bundle.source import CUT_AT_CAPTURE, Source
from forensics.model import Attempt, Evidence

MAX_LISTED = 10
_HEAD = b'{"manifest":'
R = TypeVar("R", bound=msgspec.Struct)


def describe(source: Source) -> None:
    """Fill manifest, attempts, evidence and `sealed` of a source from its own records. Never raises for their content."""
    source.bundle = True
    raw = source.record(MANIFEST, MANIFEST_LIMIT_BYTES + 1)
    if raw is not None:
        decoded = decode_manifest(raw)
        source.losses += [printable(loss) for loss in decoded.losses]
        source.manifest = decoded.manifest
    if source.manifest is None:
        source.losses.append("the manifest is missing: the capture ended before it was sealed, or the archive is cut or damaged")
        _from_journal(source)
        return
    source.attempts = source.manifest.attempts
    for record in source.manifest.evidence:
        source.evidence.setdefault(record.path, record)
    cut = [f"{printable(record.path)}: {CUT_AT_CAPTURE}" for record in source.manifest.evidence if record.truncated]
    source.losses += _listed(cut, f"more files: {CUT_AT_CAPTURE}")
    source.sealed = CHECKSUMS in source.own
    if not source.sealed:
        source.losses.append("the list of checksums is missing: the bundle was not sealed, or its end is lost")


def _from_journal(source: Source) -> None:
    """The last word on each file, and what was known of the node when the capture began."""
    source.attempts = tuple(_records(source, ATTEMPTS, Attempt))
    for record in _records(source, JOURNAL, Evidence):
        source.evidence[record.path] = record if record.sha256 else msgspec.structs.replace(record, truncated=True)
    head = (source.record(JOURNAL, 1024 * 1024) or b"").partition(b"\n")[0]
    if head.startswith(_HEAD) and (known := decode_manifest(head[len(_HEAD) : -1]).manifest):
        source.manifest = msgspec.structs.replace(known, attempts=source.attempts, evidence=tuple(source.evidence.values()))


def _records(source: Source, name: str, record: type[R]) -> Iterator[R]:
    bad = 0
    for line in (source.record(name) or b"").split(b"\n")[:MAX_RECORDS]:
        if line and not line.startswith(_HEAD):
            found = decode_record(line, record, name, [])
            bad += found is None
            if found is not None:
                yield found
    if bad:  # the last line of a process that was killed while it wrote, usually
        source.losses.append(f"{name}: {bad} records cannot be read")


def say_missing(source: Source, present: Iterable[str]) -> None:
    """Name the files that the bundle should hold and does not."""
    here = set(present)
    gone = [f"{printable(path)}: known to the bundle, but not in it" for path in source.evidence if path not in here]
    source.losses += _listed(gone, "more files are known to the bundle, but not in it")


def _listed(sentences: list[str], rest: str) -> list[str]:
    more = len(sentences) - MAX_LISTED
    return sentences if more <= 0 else [*sentences[:MAX_LISTED], f"{more} {rest}"]
