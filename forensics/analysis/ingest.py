"""Inputs to observations: open each input, find the parser of each file, keep count of what nobody could read."""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from forensics.analysis import parse
from forensics.analysis.case import Case
from forensics.analysis.gpuplaces import join_gpus
from forensics.analysis.kernelclock import date_kernel
from forensics.analysis.parse import Input, Sink
from forensics.analysis.parse.clock import read_clock
from forensics.analysis.parse.patches import operator_patches
from forensics.analysis.placing import machines, place
from forensics.analysis.times import Calendar, iso, latest_date_hint
from forensics.analysis.unite import unite
from forensics.bundle import BundleError, Item, Source, open_sources
from forensics.model import Alignment, EvidenceRef, Outcome, ProcessState, TimeRange

HEAD_BYTES = 8192
ITEM_BYTES = 256 * 1024 * 1024
"""The largest file read whole when it cannot be mapped."""
_PID = re.compile(r"(?:^|[._-])pid-?(\d+)")
_SAMPLE = re.compile(r"\.(\d+)\.\w+$")
_NODE = re.compile(r"^(.+?\d+)(?:[-_][A-Za-z]\w*)*$")


class NothingToAnalyze(Exception):
    """None of the inputs holds anything that a parser knows. Its text says what was looked at."""


def node_of(name: str) -> str:
    """The node that a bare file's name tells: "node1" of "node1-worker.log", "prefill-2" of "prefill-2.log"."""
    first = name.rsplit("/", 1)[-1].split(".", 1)[0]
    m = _NODE.match(first)
    return m[1] if m else first


def read_inputs(paths: Sequence[str | Path]) -> Case:
    """Read bundles, folders of bare files, single files or "-". Raises NothingToAnalyze when nothing was recognised."""
    case = Case()
    seen_anything = False
    for path in paths:
        try:
            sources = open_sources([path])
        except BundleError as error:
            case.unread.append(str(error))
            continue
        for source in sources:
            case.inputs.append(source.label)
            seen_anything = _read_source(source, case) or seen_anything
            case.unread += source.losses
    unite(case)
    date_kernel(case)
    join_gpus(case)
    if not seen_anything:
        looked = "; ".join(case.unread[:5]) or "the inputs are empty"
        raise NothingToAnalyze(f"nothing to analyse in {', '.join(str(p) for p in paths)}: {looked}")
    return case


def _read_source(source: Source, case: Case) -> bool:
    manifest = source.manifest
    reference = time.time_ns()
    utc_offset = 0
    bundle_node = ""
    if manifest is not None:
        bundle_node = manifest.node or "node"
        utc_offset = manifest.utc_offset_s or 0
        if manifest.started_ns:
            reference = manifest.ended_ns or manifest.started_ns
            case.captured[bundle_node] = TimeRange(earliest_ns=manifest.started_ns, latest_ns=reference, basis="sampled")
        case.meta |= {"node": bundle_node, "captured": iso(manifest.started_ns)}
        case.meta |= {k: str(v) for k in ("incident", "trigger", "reason", "profile", "tool") if (v := getattr(manifest, k, ""))}
    else:
        reference = _latest_date(source) or reference
    ahead = _first_pass(source, case)
    zones = ahead.zones
    calendar = Calendar(reference_ns=reference, utc_offset_s=zones.get(None, utc_offset))
    known = False
    bare_nodes: set[str] = set()
    known_machines = machines((item.name for item in source.items()), node_of)
    for item in source.items():
        node = bundle_node or (item.evidence and _origin_node(source)) or place(item.name, known_machines, node_of)
        pid = item.evidence.pid if item.evidence else None
        zone = replace(calendar, utc_offset_s=zones[pid]) if pid in zones else calendar
        found = _read_item(item, node, zone, ahead, case)
        known = known or found
        if not bundle_node:
            bare_nodes.add(node)
    _attempts(source, bundle_node, case)
    for node in {bundle_node} if bundle_node else bare_nodes:
        method = "recorded by the node" if manifest is not None else "assumed UTC: bare logs name no zone"
        case.clocks.append(Alignment(node=node, method=method, utc_offset_s=utc_offset if manifest is not None else None))
    return known


@dataclass
class _Ahead:
    """What must be known of a source before its logs are read."""

    zones: dict[int | None, int] = field(default_factory=dict)
    """pid to the offset of the zone it writes in; None is the node itself."""
    boot_ns: int | None = None
    markers: list[tuple[str, str]] = field(default_factory=list)


def _first_pass(source: Source, case: Case) -> _Ahead:
    ahead = _Ahead()
    for item in source.items():
        base = item.name.rsplit("/", 1)[-1]
        kind = item.evidence.kind if item.evidence else ""
        try:
            if kind == "patches-toml" or (not kind and base.endswith("patches.toml")):
                tables = operator_patches(item.read(1024 * 1024).decode("utf-8", "replace"))
                case.patches += tables
                ahead.markers += [(t["name"], str(t["log_marker"])) for t in tables if t.get("log_marker")]
            elif kind == "clock":
                clock = read_clock(item.read(1024 * 1024))
                ahead.zones |= {t.pid: t.utc_offset_s for t in clock.targets if t.utc_offset_s is not None}
                if clock.utc_offset_s is not None:
                    ahead.zones[None] = clock.utc_offset_s
                if clock.wall_ns is not None and clock.boottime_ns is not None:
                    ahead.boot_ns = clock.wall_ns - clock.boottime_ns
        except (ValueError, msgspec.MsgspecError, RecursionError, OSError) as error:
            case.unread.append(f"{item.name}: {error}")
    return ahead


def _origin_node(source: Source) -> str:
    """A cut bundle lost its manifest, not its name: <node>-<time>."""
    return re.sub(r"-\d{8}T\d{6}Z.*$", "", source.label.rsplit("/", 1)[-1])


def _latest_date(source: Source) -> int | None:
    """The latest full date that any bare file names, else the newest file time: it dates lines without a year."""
    best: int | None = None
    newest: int | None = None
    for item in source.items():
        newest = max(newest or 0, item.mtime_ns or 0) or newest
        try:
            hint = latest_date_hint(item.read(HEAD_BYTES))
        except OSError:  # told when its turn comes to be read
            continue
        if hint is not None:
            best = hint if best is None else max(best, hint)
    return best if best is not None else newest


def _buffer(item: Item) -> bytes | mmap.mmap:
    handle = item.open()
    try:
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, AttributeError):  # not a file of its own, or empty
        return handle.read(ITEM_BYTES + 1)


def _read_item(item: Item, node: str, calendar: Calendar, ahead: _Ahead, case: Case) -> bool:
    base = item.name.rsplit("/", 1)[-1]
    evidence = item.evidence
    kind = evidence.kind if evidence else ""
    if base in ("manifest.json", "manifest-sha256.txt", "attempts.jsonl"):
        return False
    try:
        head = item.read(HEAD_BYTES).decode("utf-8", "replace")
        data = _buffer(item)
    except OSError as error:  # gone or failing since it was listed
        case.unread.append(f"{item.name}: {error.strerror or error}")
        return False
    if kind == "patches-toml" or (not kind and base.endswith("patches.toml")):
        return True
    parser = parse.find(kind, base, head)
    if parser is None:
        if head.strip():
            case.unread.append(f"{item.name}: not recognised by any parser")
        return False
    pid, sample = _PID.search(base), _SAMPLE.search(base)
    inp = Input(
        name=item.name,
        node=node,
        data=data,
        kind=kind,
        pid=evidence.pid if evidence else int(pid[1]) if pid else None,
        sample=evidence.sample if evidence else int(sample[1]) if sample else 0,
        at=TimeRange(earliest_ns=evidence.at_ns, latest_ns=evidence.at_ns, basis="sampled") if evidence and evidence.at_ns else None,
        calendar=calendar,
        boot_ns=ahead.boot_ns,
        markers=tuple(ahead.markers),
    )
    if isinstance(data, bytes) and len(data) > ITEM_BYTES:
        case.unread.append(f"{item.name}: larger than {ITEM_BYTES >> 20} MiB: its end was not read")
    sink = Sink()
    try:
        parser.parse(inp, sink)
    except (ValueError, KeyError, IndexError, msgspec.MsgspecError, RecursionError) as error:
        # what was read before the fault stands; the fault itself is a line of the report
        case.unread.append(f"{item.name}: {parser.name} parser gave up: {type(error).__name__}: {str(error)[:200]}")
    if evidence and evidence.truncated and parser.name != "log":
        case.unread.append(f"{item.name}: cut while it was taken")
    case.add(sink.observations)
    for info in sink.processes:
        case.add_process(info)
    case.unread += sink.notes
    return bool(sink.observations or sink.processes)


def _attempts(source: Source, node: str, case: Case) -> None:
    for attempt in source.attempts:
        case.attempts.append((node, attempt))
        pid = attempt.origin.pid if attempt.origin else None
        if attempt.collector == "process" and attempt.outcome is Outcome.ABSENT and pid is not None:
            at = TimeRange(earliest_ns=attempt.started_ns, latest_ns=attempt.ended_ns, basis="sampled")
            ref_quote = attempt.reason or "no such process"
            ref = EvidenceRef(source="attempts.jsonl", locator=f"process {attempt.target}", quote=ref_quote)
            case.add([ProcessState(node=node, at=at, ref=ref, pid=pid, gone=True, sample=attempt.sample)])


__all__ = ["NothingToAnalyze", "node_of", "read_inputs"]
