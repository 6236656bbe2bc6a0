"""NCCL's RAS: the text that `STATUS` and `VERBOSE STATUS` answer, and the JSON form.

Text: src/ras/client_support.cc and the user guide of NCCL 2.24 to 2.31. JSON came with 2.28.7; 2.28.9 leaves out commas in
missing_ranks, and ports print the text banner above it: both are mended before it is read. A mismatch in one reading is normal of a
job that moves: it is for a rule to want two.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from forensics.analysis.parse._base import TEXT_BYTES, Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.model import CommunicatorStatus, EvidenceRef, TimeRange

_LOGGED = re.compile(rb"(?m)^\[rank\d{1,6}\]:|ProcessGroupNCCL\.cpp:\d|^\S{1,80}:\d{1,9}:\d{1,9} \[\d{1,4}\] .{0,80}NCCL (?:WARN|INFO)")
RANKS_MAX = 65536
_JSON = re.compile(r"(?m)^\{\s*$|^\{\s*\"nccl_version\"")
_HEAD = re.compile(r"^NCCL version \S+ compiled with CUDA \S+")
_TITLE = re.compile(r"^(?:Job summary|Communicators\.\.\.|Errors|Warnings)\b")
_ROW = re.compile(r"^ *(\d{1,5}) +(\d{1,8}) +(\d{1,8}) +(\S{1,12}) +(\d{1,8}) +(\d{1,8}) +([A-Z,]{2,60}) +([A-Z,]{2,60})\s*$")
_COMM = re.compile(r"^ *#(\d{1,5})-(\d{1,8}) \(([0-9a-f]{6,32})\)(?: ([A-Z,_]{2,40}))?")
_COUNTS = re.compile(r"^\s*(\d{1,7}) ranks? (?:(?:have|has) launched up to operation (\d{1,18})|(?:have|has) not launched any)")
_RANK = re.compile(r"^\s*Rank (\d{1,7}) (?:(?:has|have) (?:launched up to operation (\d{1,18})|(not) launched any operations?) )?-- ")
_PLACE = re.compile(r"-- GPU \S{1,60} managed by process (\d{1,9}) on node (\S{1,100})")
_OPERATION = re.compile(r"different (?:(\w{1,30}) )?operation counts")
_SILENT = re.compile(r"^\s*Process (\d{1,9}) on node (\S{1,100}) managing GPU")
_MISSING = re.compile(r"[Mm]issing ranks?: *([\d, -]{1,4000})")
_NUMBERS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        (_json if _JSON.search(sheet.text) else _text)(inp, sheet, sink)
    if _LOGGED.search(bytes(inp.data[:TEXT_BYTES])):
        # a report quotes what the ranks said beside what RAS answered
        from forensics.analysis.parse.log import parse as parse_log

        parse_log(inp, sink)


class _Comm:
    def __init__(self, comm: str, line: int, quote: str) -> None:
        self.comm, self.line, self.quote = comm, line, quote
        self.status = self.errors = self.operation = ""
        self.size: int | None = None
        self.counts: dict[int, int] = {}
        self.missing: list[int] = []
        self.dead: list[int] = []
        self.pids: dict[int, int] = {}
        self.hosts: dict[int, str] = {}
        self.silent: list[tuple[int, str]] = []
        self.alone: set[int] = set()
        """Ranks with a count that no other has."""
        self.levels: list[tuple[int, int]] = []
        """(how many ranks, how many operations) as told in one line for all of them"""

    def fill(self) -> None:
        """RAS names the ranks of small groups only: the others stand at the one level that names fewer than it counts."""
        if self.size is None or not self.levels or self.size > RANKS_MAX:
            return
        named = Counter(self.counts.values())
        open_levels = [level for count, level in self.levels if count > named[level]]
        unnamed = [rank for rank in range(self.size) if rank not in self.counts and rank not in self.missing]
        # a single rank has a line of its own, or one that counts it as any other level
        told = sum(count for count, _ in self.levels) + sum(1 for rank in self.alone if (1, self.counts[rank]) not in self.levels)
        if len(open_levels) == 1 and told == self.size - len(set(self.missing)):
            self.counts |= dict.fromkeys(unnamed, open_levels[0])


def _text(inp: Input, sheet: Sheet, sink: Sink) -> None:
    groups: dict[int, _Comm] = {}
    named: dict[tuple[int, str], _Comm] = {}
    now: _Comm | None = None
    level: int | None = None
    counting = False
    silent: list[tuple[int, str]] = []
    for number, line in sheet.lines():
        if m := _ROW.match(line):
            group = int(m[1])
            found = groups[group] = _Comm(f"group {group}", number, line)
            found.size, found.status, found.errors = int(m[5]), m[7], m[8]
        elif m := _COMM.match(line):
            key = (int(m[1]), m[3])
            now = named.get(key)
            if now is None:
                now = named[key] = _Comm(m[3], number, line)
                if table := groups.get(int(m[1])):
                    now.size, now.status, now.errors = table.size, table.status, table.errors
            if m[4] and m[4] not in now.errors.split(","):
                now.errors = ",".join(e for e in (*now.errors.split(","), m[4]) if e not in ("", "OK"))
            level, counting = None, False
        elif m := _SILENT.match(line):
            silent.append((int(m[1]), plain(m[2])))
        elif now is None:
            continue
        elif m := _OPERATION.search(line):
            counting = not now.counts and not now.levels  # of several operations in which ranks differ the first is kept
            now.operation = (m[1] if m[1] != "collective" else "") or "" if counting else now.operation
            level = None
        elif m := _COUNTS.match(line):
            level = int(m[2] or 0)
            if counting:
                now.levels.append((int(m[1]), level))
        elif m := _MISSING.search(line):
            now.missing += _listed(m[1])
        elif m := _RANK.match(line):
            rank = int(m[1])
            if place := _PLACE.search(line):
                now.pids[rank], now.hosts[rank] = int(place[1]), plain(place[2])
            if counting and (m[2] or m[3]):
                now.counts.setdefault(rank, int(m[2] or 0))
                now.alone.add(rank)
            elif counting and level is not None:
                now.counts.setdefault(rank, level)
        elif " have status " in line or " have different " in line:
            level, counting = None, False
    told = {group for group, _ in named}
    comms = [*(c for g, c in groups.items() if g not in told), *named.values()]
    incomplete = [c for c in comms if "INCOMPLETE" in c.errors]
    if silent and not incomplete:
        incomplete = [_Comm("", 1, "processes that RAS could not reach")]
        comms += incomplete
    for comm in comms:
        comm.silent = silent if comm in incomplete else []
        comm.fill()
        sink.add(_status(inp, sheet, comm, sheet.inp.at))


def _listed(text: str) -> list[int]:
    found: list[int] = []
    for m in _NUMBERS.finditer(text):
        first, last = int(m[1]), int(m[2] or m[1])
        found += range(first, min(last, first + RANKS_MAX) + 1)
        if len(found) > RANKS_MAX:
            break
    return found[:RANKS_MAX]


def _status(inp: Input, sheet: Sheet, comm: _Comm, at: TimeRange | None) -> CommunicatorStatus:
    ref: EvidenceRef = inp.ref(f"line {comm.line}" if comm.line else f"communicator {comm.comm}", comm.quote)
    return CommunicatorStatus(
        node=sheet.inp.node,
        at=at,
        ref=ref,
        comm=comm.comm,
        size=comm.size,
        status=comm.status,
        errors=comm.errors,
        counts=comm.counts,
        operation=comm.operation,
        missing=tuple(sorted(set(comm.missing))),
        dead=tuple(sorted(set(comm.dead))),
        pids=comm.pids,
        hosts=comm.hosts,
        silent=tuple(dict.fromkeys(comm.silent)),
    )


def mend(text: str) -> str:
    """JSON as NCCL 2.28.9 writes it, with its commas put right. Text inside of strings is left as it is."""
    # a string without an end takes the rest: tried anew at each of its quotes it would take forever
    parts = re.split(r'("(?:[^"\\]|\\.)*\\?(?:"|\Z))', text, flags=re.S)
    # joined with marks, so that a pattern may look across a string without looking into one
    plain_text = "".join(part if i % 2 == 0 else f"\x00{i}\x01" for i, part in enumerate(parts))
    plain_text = re.sub(r",(?=\s*[}\]])", "", plain_text)
    plain_text = re.sub(r",(?:\s*,)+", ",", plain_text)
    plain_text = re.sub(r"(?<=[}\]])(\s*)(?=[\[{\x00])", r",\1", plain_text)
    plain_text = re.sub(r"(?<=[\w\x01])(\s+)(?=\x00\d+\x01\s*:)", r",\1", plain_text)
    return re.sub(r"\x00(\d+)\x01", lambda m: parts[int(m[1])], plain_text)


def _json(inp: Input, sheet: Sheet, sink: Sink) -> None:
    text = sheet.text.replace("\x00", "").replace("\x01", "")
    text = text[text.index("{") :]
    try:
        raw = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raw = msgspec.json.decode(mend(text))
        sink.note(f"{inp.name}: its JSON is malformed and was mended before it was read")
    if not isinstance(raw, dict):
        raise ValueError("not an answer of RAS")
    stamp = raw.get("timestamp")
    at = (inp.calendar.parse(stamp) if isinstance(stamp, str) else None) or sheet.inp.at
    for entry in _dicts(raw.get("communicators")):
        comm = _Comm(plain(str(entry.get("hash", "?"))), 0, "")
        comm.size = _int(entry.get("size"))
        totals: dict[int, dict[str, int]] = {}
        states: set[str] = set()
        for r in _dicts(entry.get("ranks"))[:RANKS_MAX]:
            rank = _int(r.get("rank"))
            if rank is None:
                continue
            _place(comm, rank, r)
            status = r.get("status") if isinstance(r.get("status"), dict) else {}
            assert isinstance(status, dict)
            states.add(
                "ABORT"
                if status.get("abort_flag")
                else "FINALIZE"
                if status.get("finalize_called")
                else "INIT"
                if status.get("init_state")
                else "RUNNING"
            )
            if status.get("async_error"):
                comm.errors = "ERROR"
            counts = r.get("collective_counts")
            if isinstance(counts, dict):
                totals[rank] = {str(k)[:30]: n for k, v in list(counts.items())[:32] if (n := _int(v)) is not None}
        for r in _dicts(entry.get("missing_ranks"))[:RANKS_MAX]:
            rank = _int(r.get("rank"))
            if rank is None:
                continue
            _place(comm, rank, r)
            status = r.get("status") if isinstance(r.get("status"), dict) else {}
            (comm.dead if status and status.get("considered_dead") else comm.missing).append(rank)
        comm.status = ",".join(sorted(states))
        _count(comm, totals)
        differ = len(set(comm.counts.values())) > 1
        errors = [e for e, there in (("INCOMPLETE", comm.missing or comm.dead), (comm.errors, comm.errors), ("MISMATCH", differ)) if there]
        comm.errors = ",".join(errors) or "OK"
        levels = sorted(set(comm.counts.values()))[:8]
        comm.quote = f"{len(comm.counts)} of {comm.size} ranks, {comm.operation or 'operations'} {levels}, {comm.errors}"
        sink.add(_status(inp, sheet, comm, at))


def _count(comm: _Comm, totals: dict[int, dict[str, int]]) -> None:
    """The operation in which ranks differ, and how often each has launched it; the sum of all where they agree in every one."""
    names = sorted({name for counts in totals.values() for name in counts})
    for name in names:
        found = {rank: counts.get(name, 0) for rank, counts in totals.items()}
        if len(set(found.values())) > 1:
            comm.operation, comm.counts = name, found
            return
    comm.counts = {rank: sum(counts.values()) for rank, counts in totals.items() if counts}


def _place(comm: _Comm, rank: int, r: dict[str, Any]) -> None:
    pid = _int(r.get("pid"))
    if pid is not None:
        comm.pids[rank] = pid
    if isinstance(r.get("host"), str):
        comm.hosts[rank] = plain(r["host"])


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def recognise(name: str, head: str) -> bool:
    lines = body(head, 40)
    if not lines:
        return False
    if any(line[:1] == "{" for line in lines[:8]):
        return '"nccl_version"' in head and ('"communicators' in head or '"cuda_runtime_version"' in head)
    return any(_HEAD.match(line) for line in lines[:8]) and any(_TITLE.match(line) for line in lines)


PARSER = Parser("nccl ras", ("nccl-ras",), recognise, parse)
