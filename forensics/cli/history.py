"""forensics history: incidents that were analysed on this machine.

Exit status:
  0  done
  1  the store cannot be read or written
  2  wrong usage
  4  there is no such incident
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forensics.cli import complain

if TYPE_CHECKING:
    from forensics.history import Incident
    from forensics.model import Report

SCHEMA = "forensics.history/1"
OK, FAILED, USAGE, NOTHING = 0, 1, 2, 4
SHORTEST = 4
"""Characters of a fingerprint that name it."""
WIDTH = 80


def list_command(limit: int, fmt: str) -> int:
    """Print incidents, the latest first."""
    from forensics.history import HistoryError, Store

    if fmt not in ("terminal", "json"):
        complain(f"there is no format {fmt!r}", "choose terminal or json")
        return USAGE
    try:
        store = Store()
        incidents = store.incidents(limit or None)
    except HistoryError as error:
        return _failed(error)
    if fmt == "json":
        return _json(incidents)
    _print(_table(incidents) if incidents else [f"no incident is recorded in {store.path}"])
    return OK


def show_command(mark: str, fmt: str) -> int:
    """Print everything that is kept of the incidents with this fingerprint, or of the one with this id."""
    if fmt not in ("terminal", "json"):
        complain(f"there is no format {fmt!r}", "choose terminal or json")
        return USAGE
    found = _find(mark)
    if isinstance(found, int):
        return found
    if fmt == "json":
        return _json(found)
    _print(line for incident in found for line in _whole(incident))
    return OK


def forget_command(mark: str) -> int:
    """Take the incidents with this fingerprint, or the one with this id, out of the store."""
    from forensics.history import HistoryError, Store

    found = _find(mark)
    if isinstance(found, int):
        return found
    if len({i.fingerprint or i.id for i in found}) > 1:
        complain(f"{mark} begins several fingerprints: {', '.join(dict.fromkeys(i.fingerprint or i.id for i in found))}", "give more of it")
        return USAGE
    try:
        gone = Store().forget([i.id for i in found])
    except HistoryError as error:
        return _failed(error)
    _print([f"forgotten: {gone} incident{'' if gone == 1 else 's'}"])
    return OK


def with_history(report: Report, paths: Sequence[str], *, keep: bool) -> tuple[Report, str]:
    """The report with what the store knows of its root, and why that is not known or kept ("" where all went well).

    keep: record it. Whatever happens to the store, the report is there.
    """
    import msgspec

    from forensics.history import HistoryError, Store, from_report, is_incident

    if not is_incident(report):
        return report, ""
    trouble = ""
    evidence = evidence_keys(paths)
    incident = from_report(report, evidence)
    if incident is None:
        return report, ""
    try:
        store = Store()
        report = msgspec.structs.replace(report, seen_before=store.seen_before(incident, evidence))
        if keep:
            store.record(incident, evidence)
    except HistoryError as error:
        trouble = f"{error}. This incident is not recorded." if keep else f"{error}. Whether this was seen before is not known."
    return report, trouble


def evidence_keys(paths: Iterable[str]) -> list[str]:
    """One key for each input: a bundle by its node and time, packed or not; bare files by their content. None for a pipe."""
    import hashlib
    import lzma
    import zlib

    from forensics.bundle import BundleError, open_sources

    keys = []
    for path in paths:
        if path == "-":
            continue
        try:
            for source in open_sources([Path(path)]):
                with source:
                    manifest = source.manifest
                    digest = hashlib.sha256()
                    if manifest is not None and manifest.started_ns:
                        digest.update(f"bundle\0{manifest.node}\0{manifest.boot_id}\0{manifest.started_ns}".encode("utf-8", "replace"))
                    else:
                        for item in source.items():
                            digest.update(f"{item.name}\0{item.size}\0".encode("utf-8", "replace"))
                            digest.update(item.read(_HASHED_BYTES))
                    keys.append(digest.hexdigest())
        except (BundleError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):  # a damaged archive: the analysis has said so
            continue
    return keys


_HASHED_BYTES = 256 * 1024
"""Of each bare file: with its size that tells one from another, and a log that has grown is another."""


def _find(mark: str) -> list[Incident] | int:
    from forensics.history import HistoryError, Store

    if len(mark) < SHORTEST:
        complain(f"{mark!r} is too short: give at least {SHORTEST} characters", "see `forensics history`")
        return USAGE
    try:
        found = Store().find(mark)
    except HistoryError as error:
        return _failed(error)
    if not found:
        complain(f"no incident has a fingerprint or an id that begins with {mark!r}", "see `forensics history`")
        return NOTHING
    return found


def _table(incidents: Sequence[Incident]) -> Iterator[str]:
    from collections import Counter

    from forensics.report.safe import clip, one_line
    from forensics.report.times import iso

    counts = Counter(i.fingerprint for i in incidents if i.fingerprint)
    yield f"{'fingerprint':<13} {'times':>5}  {'incident at':<20}  root"
    for i in incidents:
        when = (iso(i.at_ns) or "")[:19] + "Z"
        times = str(counts[i.fingerprint]) if i.fingerprint else ""
        who = one_line(f"{i.finding or 'root unknown'} ({i.grade or i.state})" + (f" rank {i.rank}" if i.rank is not None else ""))
        yield clip(f"{i.fingerprint or '-':<13} {times:>5}  {when:<20}  {who}", WIDTH)
        where = one_line(" · ".join(p for p in (i.node or "", " ".join((i.kind, *_versions(i)))) if p))
        yield clip(f"{'':<20} {where}", WIDTH) if i.fingerprint else clip(f"{'':<20} {where} · id {i.id}", WIDTH)


def _versions(incident: Incident) -> list[str]:
    return [version if name == incident.kind else f"{name} {version}" for name, version in incident.versions.items()]


def _whole(i: Incident) -> Iterator[str]:
    import textwrap

    from forensics.report.safe import one_line
    from forensics.report.times import iso

    who = " · ".join(
        p for p in (f"rank {i.rank}" if i.rank is not None else "", f"pid {i.pid}" if i.pid is not None else "", i.node or "") if p
    )
    rows = [
        ("incident", f"{i.id} at {iso(i.at_ns)}, recorded {iso(i.recorded_ns)}"),
        ("fingerprint", i.fingerprint or "none: no root is named"),
        ("state", f"{i.state}  {i.sentence}"),
        ("root", f"{i.finding or 'unknown'}  {i.grade or ''}  {who}"),
        ("", i.title),
        ("mechanism", ", ".join(i.names) or "no name of code is part of it"),
        ("versions", " ".join((i.kind, *_versions(i)))),
        ("inputs", ", ".join(i.inputs)),
    ]
    for label, text in rows:
        for n, part in enumerate(textwrap.wrap(one_line(text), WIDTH - 13, break_on_hyphens=False)):
            yield f"{'' if n else label:<13}{part}"
    yield ""


def _json(incidents: Sequence[Incident]) -> int:
    import msgspec

    from forensics.report.times import iso

    def one(i: Incident) -> dict[str, Any]:
        kept: dict[str, Any] = msgspec.to_builtins(i)
        return {**{k: v for k, v in kept.items() if not k.endswith("_ns")}, "at": iso(i.at_ns), "recorded": iso(i.recorded_ns)}

    sys.stdout.write(json.dumps({"schema": SCHEMA, "incidents": [one(i) for i in incidents]}, indent=1, ensure_ascii=True) + "\n")
    return OK


def _failed(error: Exception) -> int:
    from forensics.report.safe import one_line

    complain(one_line(error), getattr(error, "cure", ""))
    return FAILED


def _print(lines: Iterable[str]) -> None:
    from forensics.report.terminal import encodable

    for line in lines:
        sys.stdout.write(encodable(line.rstrip(), sys.stdout.encoding or "ascii") + "\n")
