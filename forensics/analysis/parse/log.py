"""Engine logs: every line that a signature knows, with its time, its process and the traceback under it.

The scanner looks for the signatures' literals over the raw bytes and lines are taken apart only where one stands: most of a log
is never decoded. Undated lines (uvicorn, prints) get the range between their dated neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forensics.analysis.parse._base import Buffer, Input, Parser, Sink
from forensics.analysis.parse._containers import unwrap
from forensics.analysis.parse._hits import SAME_HITS, Hits
from forensics.analysis.parse._lines import PID, VLLM, Line, process_name, take_apart
from forensics.analysis.scan import LINE_BYTES, Candidate, Found, Plan, scan
from forensics.analysis.signatures import Signature, signatures
from forensics.model import LogHit, LogSpan, ProcessInfo, TimeRange

HEAD_BYTES = 512 * 1024
"""Names and pids of processes are read from the head of a log and from every line that a signature knows."""

_PREFIX_BYTES = re.compile(rb"\(([A-Za-z_][\w\-]*(?: (?:TP|PP|DP)\d+| rank=\d+)?) pid=(\d+)")
_DATED = re.compile(rb"(?m)^.{0,64}?\d\d-\d\d[T ]\d\d:\d\d:\d\d|^.{0,8}\w{3} +\d+ \d\d:\d\d:\d\d")
_plans: list[tuple[tuple[Signature, ...], tuple[str, ...], Plan]] = []
"""The plan made last, with what it was made of."""


def plan_for(markers: tuple[str, ...]) -> Plan:
    """The plan for the signatures of this analysis and an operator's markers; made once."""
    known = signatures()
    if not _plans or _plans[0][0] is not known or _plans[0][1] != markers:
        _plans[:] = [(known, markers, Plan.of([s for s in known if s.engine != "kernel"], markers))]
    return _plans[0][2]


def parse(inp: Input, sink: Sink) -> None:
    """One log, of any size and any engine."""
    inp = replace(inp, data=unwrap(inp.data))
    data = inp.data
    hits = Hits(inp, sink)
    _names(data[:HEAD_BYTES], hits)
    _bounds(inp, hits)
    plan = plan_for(tuple(marker for _, marker in inp.markers if marker))
    found = scan(data, plan, lambda text: _who(text, inp))
    marks = _Marks(inp, plan)
    for candidate, line in _lines(found, inp):
        if line.message.startswith("Traceback"):
            line = _above(line, data, candidate.start, inp)
        if line.at:
            hits.dated(line.at)
        if line.process and line.pid is not None:
            hits.processes.setdefault(line.pid, line.process)
        marks.look(candidate, line)
        for signature in (s for literal in candidate.literals for s in plan.signatures[literal]):
            if m := signature.regex.search(line.message):
                hits.hit(signature, m, line, data, candidate.start, candidate.lines)
                break
    for hit in (*hits.found, *marks.hits):
        if hit is not None:
            sink.add(hit)
    for pid, name in hits.processes.items():
        sink.process(ProcessInfo(pid=pid, node=inp.node, title=name, log_files=(inp.name,)))
    tail = _last_time(inp)
    sink.add(
        LogSpan(
            node=inp.node,
            ref=inp.ref("file", f"{len(data)} bytes"),
            pid=inp.pid,
            first_ns=hits.first.earliest_ns if hits.first else None,
            last_ns=tail.latest_ns if tail else (hits.last.latest_ns if hits.last else None),
            lines=found.lines,
            pids=tuple(hits.processes),
            engine=hits.engine,
            ranks=tuple(sorted(hits.ranks)),
        )
    )
    for note in found.notes:
        sink.note(f"{inp.name}: {note}")


def _who(text: str, inp: Input) -> tuple[str, str]:
    """The message of a line, and what of its prefix tells two writers apart."""
    line = take_apart(text, 0, inp)
    return line.message, f"{line.process} {line.pid} {line.rank}"


def _lines(found: Found, inp: Input) -> Iterator[tuple[Candidate, Line]]:
    """Every candidate, taken apart, with its number."""
    data = inp.data
    number, counted = 1, 0
    for candidate in found.candidates:
        start = candidate.start
        # the next one is mostly near; else the scan counted the lines up to close before it
        number = number + data[counted:start].count(b"\n") if start - counted < LINE_BYTES else found.number(data, start)
        counted = start
        head = bytes(data[start : start + LINE_BYTES])
        end = head.find(b"\n")
        text = (head if end < 0 else head[:end]).decode("utf-8", "replace").rstrip("\r")
        yield candidate, take_apart(text, number, inp)


def _above(line: Line, data: Buffer, start: int, inp: Input) -> Line:
    """A traceback without a prefix belongs to the dated line above it: logging writes the message first, then the traceback."""
    if line.at or line.process or start < 2:
        return line
    begin = data.rfind(b"\n", max(0, start - LINE_BYTES), start - 1) + 1
    above = take_apart(bytes(data[begin : start - 1]).decode("utf-8", "replace").rstrip("\r"), line.number - 1, inp)
    if above.at is None or above.level not in ("ERROR", "CRITICAL", "FATAL", "WARNING"):
        return line
    return Line(line.number, above.text, line.message, above.process, above.pid, above.rank, above.level, above.at)


@dataclass
class _Marks:
    """Lines that an operator's patched build prints: first of each process, as it proves the build that this process runs."""

    inp: Input
    plan: Plan
    hits: list[LogHit] = field(default_factory=list)
    seen: set[tuple[str, int | None]] = field(default_factory=set)

    def look(self, candidate: Candidate, line: Line) -> None:
        for literal in candidate.literals:
            if not self.plan.markers <= literal < self.plan.stats:
                continue
            marker = self.plan.literals[literal].decode()
            for patch in (patch for patch, text in self.inp.markers if text == marker):
                self._add(patch, line)

    def _add(self, patch: str, line: Line) -> None:
        said = PID.search(line.text)
        pid = line.pid if line.pid is not None else int(said[1]) if said else None
        if (patch, pid) in self.seen or sum(p == patch for p, _ in self.seen) >= SAME_HITS:
            return
        self.seen.add((patch, pid))
        self.hits.append(
            LogHit(
                node=self.inp.node,
                at=line.at,
                ref=self.inp.ref(f"line {line.number}", line.text),
                pid=pid,
                signature="patch-marker",
                feeds="patch-live",
                role="context",
                process=line.process,
                fields={"patch": patch},
                text=line.text[:400],
            )
        )


def _names(head: bytes, hits: Hits) -> None:
    for name, pid in _PREFIX_BYTES.findall(head):
        # a worker is called VllmWorker-N, then Worker, then Worker_TPn: the later name says more
        hits.processes[int(pid)] = process_name(name.decode())


def _bounds(inp: Input, hits: Hits) -> None:
    """The first dated line of the file, so that undated ones before the first hit have a bound."""
    if m := _DATED.search(bytes(inp.data[:65536])):
        line = m.string[m.start() : m.end() + 64].decode("utf-8", "replace")
        hits.first = hits.last = inp.calendar.parse(line.split("\n")[0])


def _last_time(inp: Input) -> TimeRange | None:
    tail = bytes(inp.data[max(0, len(inp.data) - 65536) :])
    found = None
    for m in _DATED.finditer(tail):
        found = m
    return inp.calendar.parse(found.group().decode("utf-8", "replace")) if found else None


def recognise(name: str, head: str) -> bool:
    """Text with at least one dated or prefixed line, or a traceback; anything called .log."""
    return name.endswith(".log") or bool(VLLM.search(head) or _DATED.search(head.encode()) or "Traceback (most" in head)


PARSER = Parser("log", ("log",), recognise, parse)
