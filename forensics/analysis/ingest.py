"""Inputs to observations: open each input, find the parser of each file, keep count of what nobody could read."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from forensics.analysis import parse
from forensics.analysis.buffers import Buffer, buffer_of
from forensics.analysis.case import Case
from forensics.analysis.gpuplaces import join_gpus
from forensics.analysis.kernelclock import date_kernel
from forensics.analysis.logs.clocks import local_zone
from forensics.analysis.nodes import by_folder, by_host, hosts_in, node_of
from forensics.analysis.parse import TEXT_BYTES, Input, Parser, Sink
from forensics.analysis.parse.clock import read_clock
from forensics.analysis.parse.patches import operator_patches
from forensics.analysis.placing import machines, place
from forensics.analysis.rotated import Part, grouped, joined
from forensics.analysis.times import Calendar, iso, latest_date_hint
from forensics.analysis.unite import unite
from forensics.bundle import BundleError, Item, Source, open_sources
from forensics.model import Alignment, EvidenceRef, Outcome, ProcessState, TimeRange

HEAD_BYTES = 8192
FILE_NS, NAMED_NS = 2 * 86400 * 10**9, 31 * 86400 * 10**9
"""How much later than its file's time, or than a date that it names, a line without a year may be."""
OLDEST_NS = 1_640_995_200 * 10**9
"""2022: a file older than that has lost its time in an archive."""
NO_PROCESS = "no such process"
"""How a collector says that the process it was sent to is gone."""
JOINED = ("log", "kernel")
"""Parsers of what is rotated."""
_PID = re.compile(r"(?:^|[._-])pid-?(\d+)")
_SAMPLE = re.compile(r"\.(\d+)\.\w+$")


class NothingToAnalyze(Exception):
    """None of the inputs holds anything that a parser knows. Its text says what was looked at."""


def read_inputs(paths: Sequence[str | Path]) -> Case:
    """Read bundles, folders of bare files, single files or "-". Raises NothingToAnalyze when nothing was recognised."""
    case = Case()
    with _nothing_thrown_away():
        seen_anything = _read_all(paths, case)
    unite(case)
    date_kernel(case)
    join_gpus(case)
    if not seen_anything:
        looked = "; ".join(case.unread[:5]) or "the inputs are empty"
        raise NothingToAnalyze(f"nothing to analyse in {', '.join(str(p) for p in paths)}: {looked}")
    return case


@contextlib.contextmanager
def _nothing_thrown_away() -> Iterator[None]:
    """All that is read is kept: the collector of cycles would walk through it again and again, and find nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _read_all(paths: Sequence[str | Path], case: Case) -> bool:
    """Whether anything was known."""
    seen_anything = False
    for path in paths:
        try:
            sources = open_sources([path])
        except BundleError as error:
            case.unread.append(str(error))
            continue
        for source in sources:
            with source:
                case.inputs.append(source.label)
                seen_anything = _read_source(source, case) or seen_anything
                case.unread += source.losses
    return seen_anything


def _read_source(source: Source, case: Case) -> bool:
    manifest = source.manifest
    reference = time.time_ns()
    latest: int | None = None
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
        reference, latest = _latest_date(source)
    ahead = _first_pass(source, case, Calendar(reference_ns=reference, latest_ns=latest))
    zones = ahead.zones
    calendar = Calendar(reference_ns=reference, utc_offset_s=zones.get(None, utc_offset), latest_ns=latest)
    known = False
    bare_nodes: set[str] = set()
    of_name = _naming(source, ahead)
    known_machines = machines((item.name for item in source.items()), of_name)
    if not bundle_node:
        ahead.machines = {place(name, known_machines, of_name): offset for name, offset in ahead.local.items()}
    for group in grouped(source.items()):
        item = group[-1]
        node = bundle_node or (item.evidence and _origin_node(source)) or place(item.name, known_machines, of_name)
        pid = item.evidence.pid if item.evidence else None
        zone = replace(calendar, utc_offset_s=zones[pid]) if pid in zones else calendar
        for found in _read_group(group, node, zone, ahead, case):
            known = known or found
        if not bundle_node:
            bare_nodes.add(node)
    _attempts(source, bundle_node, case)
    for node in {bundle_node} if bundle_node else bare_nodes:
        method = "recorded by the node" if manifest is not None else "assumed UTC: bare logs name no zone"
        if node in ahead.machines:
            method = "the machine's own logs by the zone that one of them names, the others assumed UTC"
        case.clocks.append(Alignment(node=node, method=method, utc_offset_s=utc_offset if manifest is not None else None))
    return known


@dataclass
class _Ahead:
    """What must be known of a source before its logs are read."""

    zones: dict[int | None, int] = field(default_factory=dict)
    """pid to the offset of the zone it writes in; None is the node itself."""
    boot_ns: int | None = None
    markers: list[tuple[str, str]] = field(default_factory=list)
    local: dict[str, int] = field(default_factory=dict)
    """Name of a bare file to the offset from UTC (s) that its wrappers name: the zone of its machine."""
    machines: dict[str, int] = field(default_factory=dict)
    """The same by node. It dates the kernel's lines; a container's processes mostly write in UTC whatever the machine's zone."""
    hosts: dict[str, Counter[str]] = field(default_factory=dict)
    """Name of a bare file to the hosts that its first lines name as their own."""


def _naming(source: Source, ahead: _Ahead) -> Callable[[str], str]:
    """The node of a bare file by its name, folder and lines."""
    return by_host(by_folder(item.name for item in source.items()), ahead.hosts)


def _first_pass(source: Source, case: Case, calendar: Calendar) -> _Ahead:
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
            elif item.evidence is None and (named := local_zone(item.read(HEAD_BYTES), calendar)) is not None:
                ahead.local[item.name] = named
            if item.evidence is None and "/" not in item.name:
                ahead.hosts[item.name] = hosts_in(item.read(HEAD_BYTES).decode("utf-8", "replace"))
        except (ValueError, msgspec.MsgspecError, RecursionError, OSError) as error:
            case.unread.append(f"{item.name}: {error}")
    return ahead


def _origin_node(source: Source) -> str:
    """A cut bundle lost its manifest, not its name: <node>-<time>."""
    return re.sub(r"-\d{8}T\d{6}Z.*$", "", source.label.rsplit("/", 1)[-1])


def _latest_date(source: Source) -> tuple[int, int]:
    """What dates lines without a year: (a time near them, the latest that any can have).

    The first is the latest full date that any bare file names, else the newest file time; nothing is written after that.
    """
    named: int | None = None
    newest: int | None = None
    for item in source.items():
        if (item.mtime_ns or 0) > OLDEST_NS:
            newest = max(newest or 0, item.mtime_ns or 0)
        try:
            hint = latest_date_hint(item.read(HEAD_BYTES))
        except OSError:  # told when its turn comes to be read
            continue
        if hint is not None:
            named = hint if named is None else max(named, hint)
    # a clock may be off, a zone unknown; and a log goes on after the date that its head names
    ends = ((newest or 0) + FILE_NS, (named or 0) + NAMED_NS)
    return named or newest or time.time_ns(), max(ends) if named or newest else time.time_ns()


def _read_group(group: Sequence[Item], node: str, calendar: Calendar, ahead: _Ahead, case: Case) -> list[bool]:
    """The parts of one rotated log, or a single file. Whether something was known of each that was read."""
    if len(group) > 1:
        heads = [head for item in reversed(group) if (head := _head(item, None)).strip()]
        parser = parse.find("", group[-1].name.rsplit("/", 1)[-1], heads[0] if heads else "")
        if parser is not None and parser.name in JOINED:
            data, parts = joined(group, case.unread)
            inp = _input(group[-1], node, data, _zoned(calendar, parser, node, ahead), ahead, parts)
            return [_parsed(parser, inp, case)]
    return [_read_item(item, node, calendar, ahead, case) for item in group]


def _head(item: Item, case: Case | None) -> str:
    """The first bytes of a file as text; "" where it is gone or failing since it was listed, which is said in the case."""
    try:
        return item.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError as error:
        if case is not None:
            case.unread.append(f"{item.name}: {error.strerror or error}")
        return ""


def _read_item(item: Item, node: str, calendar: Calendar, ahead: _Ahead, case: Case) -> bool:
    base = item.name.rsplit("/", 1)[-1]
    evidence = item.evidence
    kind = evidence.kind if evidence else ""
    if base in ("manifest.json", "manifest-sha256.txt", "attempts.jsonl"):
        return False
    before = len(case.unread)
    head = _head(item, case)
    if kind == "patches-toml" or (not kind and base.endswith("patches.toml")):
        return True
    parser = parse.find(kind, base, head)
    if parser is None or (not head and not kind):
        if head.strip() or (not kind and len(case.unread) == before):
            case.unread.append(f"{item.name}: not recognised by any parser" + ("" if head.strip() else ": it is empty"))
        return False
    try:
        with item.open() as handle:
            data = buffer_of(handle, case.unread, item.name)
    except OSError as error:
        case.unread.append(f"{item.name}: {error.strerror or error}")
        return False
    known = _parsed(parser, _input(item, node, data, _zoned(calendar, parser, node, ahead), ahead), case)
    if evidence and evidence.truncated and parser.name != "log":
        case.unread.append(f"{item.name}: cut while it was taken")
    if not known and evidence is None and len(case.unread) == before:
        case.unread.append(f"{item.name}: not recognised beyond its form ({parser.name}): nothing in it is known")
    return known


def _zoned(calendar: Calendar, parser: Parser, node: str, ahead: _Ahead) -> Calendar:
    """The calendar of a file: a bare kernel log is in the zone of its machine, where another log of it names that."""
    if parser.name == "kernel" and node in ahead.machines:
        return replace(calendar, utc_offset_s=ahead.machines[node])
    return calendar


def _input(item: Item, node: str, data: Buffer, calendar: Calendar, ahead: _Ahead, parts: tuple[Part, ...] = ()) -> Input:
    base = item.name.rsplit("/", 1)[-1]
    evidence = item.evidence
    pid, sample = _PID.search(base), _SAMPLE.search(base)
    return Input(
        name=item.name,
        node=node,
        data=data,
        kind=evidence.kind if evidence else "",
        pid=evidence.pid if evidence else int(pid[1][:9]) if pid else None,
        sample=evidence.sample if evidence else int(sample[1][:9]) if sample else 0,
        at=TimeRange(earliest_ns=evidence.at_ns, latest_ns=evidence.at_ns, basis="sampled") if evidence and evidence.at_ns else None,
        calendar=calendar,
        boot_ns=ahead.boot_ns,
        parts=parts,
        markers=tuple(ahead.markers),
    )


def _parsed(parser: Parser, inp: Input, case: Case) -> bool:
    """Run a parser; whether it found anything."""
    if parser.name != "log" and len(inp.data) > TEXT_BYTES:
        case.unread.append(f"{inp.name}: only its first {TEXT_BYTES >> 20} MiB were read")
        inp = replace(inp, data=bytes(inp.data[:TEXT_BYTES]))
    sink = Sink()
    parser.run(inp, sink)
    case.add(sink.observations)
    for info in sink.processes:
        case.add_process(info)
    case.unread += sink.notes
    return bool(sink.observations or sink.processes)


def _attempts(source: Source, node: str, case: Case) -> None:
    for attempt in source.attempts:
        case.attempts.append((node, attempt))
        pid = attempt.origin.pid if attempt.origin else None
        if attempt.outcome is not Outcome.ABSENT or pid is None:
            continue
        # whoever looked for it and found no process saw that it is gone
        if attempt.collector == "process" or attempt.reason.startswith(NO_PROCESS):
            at = TimeRange(earliest_ns=attempt.started_ns, latest_ns=attempt.ended_ns, basis="sampled")
            ref_quote = attempt.reason or NO_PROCESS
            ref = EvidenceRef(source="attempts.jsonl", locator=f"{attempt.collector} {attempt.target}", quote=ref_quote)
            case.add([ProcessState(node=node, at=at, ref=ref, pid=pid, gone=True, sample=attempt.sample)])


__all__ = ["NothingToAnalyze", "node_of", "read_inputs"]
