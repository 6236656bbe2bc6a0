"""Logs of any engine: every line that a signature knows, with its time, its process and the traceback under it.

The scanner looks for the signatures' literals over the raw bytes and lines are taken apart only where one stands: most of a log
is never decoded. Undated lines (uvicorn, prints) get the range between their dated neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from forensics.analysis.buffers import Buffer, FileBuffer
from forensics.analysis.logs import unwrap
from forensics.analysis.logs.formats.vllm import name_of
from forensics.analysis.logs.spoken import without_spoken
from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._hits import NO_ENGINE, SAME_HITS, Hits
from forensics.analysis.parse._last import last_lines
from forensics.analysis.parse._lines import PID, Line, Reader
from forensics.analysis.scan import EVERY_BYTES, LINE_BYTES, Candidate, Found, Plan, scan
from forensics.analysis.signatures import Signature, signatures
from forensics.analysis.times import SECOND
from forensics.model import EvidenceRef, LogHit, LogSpan, ProcessInfo, TimeRange

HEAD_BYTES = 512 * 1024
"""Names and pids of processes are read from the head of a log and from every line that a signature knows."""

_PREFIX_BYTES = re.compile(rb"\(([A-Za-z_][\w\-]*(?: (?:TP|PP|DP)\d+| rank=\d+)?) pid=(\d+)")
_DATED = re.compile(
    r"(?m)^.{0,64}?\d\d-\d\d[T ]\d\d:\d\d:\d\d|^.{0,8}\w{3} +\d+ \d\d:\d\d:\d\d|^.{0,64}?(?:\d\d/\d\d/\d{4}-|[IWEF]\d{4} )\d\d:\d\d:\d\d"
)
_PREFIXED = re.compile(r"(?m)^.{0,120}?\([A-Za-z_][\w\- =]{0,60},? pid=\d+|^.{0,80}?(?:NCCL (?:INFO|WARN)|\[TRT-LLM\]|\[rank\d+\]|raylet)")
EDGE_BYTES, EDGE_LINES = 64 * 1024, 400
"""What is read of a log's beginning and end to learn who writes in it, and from when until when."""
NEAR_LINES = 20
"""How far above an undated line a dated one is looked for that no signature knows."""
ABOVE_S = 2
"""A traceback follows the line that announces it within so many seconds."""
OF_THE_MACHINE = frozenset(
    {
        *("systemd", "systemd-oomd", "systemd-logind", "systemd-coredump", "systemd-shutdown", "systemd-journald", "earlyoom"),
        *("chronyd", "ntpd"),
    }
)
"""Programs that tell of the machine what the kernel does: see the signatures of the engine "kernel"."""
KERNEL = "kernel: "
"""Stands in every line of the kernel's in a syslog or journal of everything."""
_plans: list[tuple[tuple[Signature, ...], tuple[str, ...], Plan]] = []
"""The plan made last, with what it was made of."""


def plan_for(markers: tuple[str, ...]) -> Plan:
    """The plan for the signatures of this analysis and an operator's markers; made once."""
    known = signatures()
    if not _plans or _plans[0][0] is not known or _plans[0][1] != markers:
        _plans[:] = [(known, markers, Plan.of(known, markers, KERNEL))]
    return _plans[0][2]


def parse(inp: Input, sink: Sink) -> None:
    """One log, of any size and any engine."""
    if not isinstance(inp.data, FileBuffer) and len(inp.data) <= EVERY_BYTES:  # of a larger one records are taken apart one by one
        inp = replace(inp, data=unwrap(inp.data))
    data = inp.data
    hits = Hits(inp, sink)
    reader = Reader(inp)
    _names(bytes(data[:HEAD_BYTES]), hits)
    edges = _Edges(hits, reader)
    edges.head(data)
    plan = plan_for(tuple(marker for _, marker in inp.markers if marker))
    found = scan(data, plan, reader.who)
    marks = _Marks(inp, plan)
    kernel: list[tuple[int, str]] = []
    spoke = False
    """Whether the kernel itself did, and not only programs that tell of the machine."""
    for candidate, line in _lines(found, inp, reader, hits):
        if line.engine == "kernel" or line.process in OF_THE_MACHINE:
            spoke = spoke or line.process not in OF_THE_MACHINE
            kernel.append((line.number, line.text))
            continue
        if line.message.startswith("Traceback"):
            line = _above(line, data, candidate.start, reader, hits)
        if line.at:
            hits.dated(line.at)
        if line.process and line.pid is not None:
            hits.processes.setdefault(line.pid, line.process)
        marks.look(candidate, line)
        for signature in (s for literal in candidate.literals for s in plan.signatures[literal] if s.engine != "kernel"):
            if m := signature.regex.search(line.message):
                if line.at is None and signature.role != "context" and (near := _dated_above(data, candidate.start, reader, hits)):
                    hits.dated(near)
                hits.hit(signature, m, line, data, candidate.start, candidate.lines)
                break
    for hit in (*hits.found, *marks.hits):
        if hit is not None:
            sink.add(hit)
    if kernel:
        from forensics.analysis.parse.kernel import parse_rows

        parse_rows(replace(inp, calendar=reader.clocks.outer), sink, kernel, spoke)
    older = dict.fromkeys(name for _, name in inp.parts if name != inp.name)
    for pid, name in hits.processes.items():
        sink.process(ProcessInfo(pid=pid, node=inp.node, title=name, log_files=(inp.name, *older)))
    edges.tail(data)
    span = LogSpan(
        node=inp.node,
        ref=inp.ref("file", f"{len(data)} bytes"),
        pid=inp.pid,
        first_ns=hits.first.earliest_ns if hits.first else None,
        last_ns=hits.last.latest_ns if hits.last else None,
        lines=found.lines,
        pids=tuple(hits.processes),
        engine=hits.engine or edges.engine,
        ranks=tuple(sorted(hits.ranks)),
        last_of=last_lines(data, hits.processes, reader),
        clock_offset_s=reader.clocks.offset_s,
    )
    sink.add(span)
    for name in older:  # hits are quoted from these, but when the log begins and ends is said once
        sink.add(msgspec.structs.replace(span, ref=EvidenceRef(source=name, locator="file"), first_ns=None, last_ns=None, lines=0))
    for note in found.notes:
        sink.note(f"{inp.name}: {note}")


def _lines(found: Found, inp: Input, reader: Reader, hits: Hits) -> Iterator[tuple[Candidate, Line]]:
    """Every candidate, taken apart, with its number."""
    data = inp.data
    number, counted = 1, 0
    for candidate in found.candidates:
        start = candidate.start
        # the next one is mostly near; else the scan counted the lines up to close before it
        number = number + data[counted:start].count(b"\n") if start - counted < LINE_BYTES else found.number(data, start)
        counted = start
        for line in reader.each(_text(data, start), number, hits.last):
            yield candidate, line


def _text(data: Buffer, start: int) -> str:
    """The line that begins at `start`, within bounds."""
    head = bytes(data[start : start + LINE_BYTES])
    end = head.find(b"\n")
    return (head if end < 0 else head[:end]).decode("utf-8", "replace").rstrip("\r")


def _above(line: Line, data: Buffer, start: int, reader: Reader, hits: Hits) -> Line:
    """A traceback without a prefix belongs to the dated line above it: logging writes the message first, then the traceback."""
    if line.process or line.pid is not None or start < 2:
        return line
    begin = data.rfind(b"\n", max(0, start - LINE_BYTES), start - 1) + 1
    above = reader.take_apart(_text(data, begin), line.number - 1, hits.last)
    if above.at is None or above.level not in ("ERROR", "CRITICAL", "FATAL", "WARNING"):
        return line
    if line.at and abs(line.at.earliest_ns - above.at.earliest_ns) > ABOVE_S * SECOND:
        return line  # a wrapper dates it, and says that it came later
    return replace(line, text=above.text, process=above.process, pid=above.pid, rank=above.rank, level=above.level, at=line.at or above.at)


def _dated_above(data: Buffer, start: int, reader: Reader, hits: Hits) -> TimeRange | None:
    """When the nearest dated line above was written, though no signature knows it: later than the last known one, or None."""
    begin = max(0, start - LINE_BYTES)
    for text in reversed(bytes(data[begin : max(begin, start - 1)]).rsplit(b"\n", NEAR_LINES)[-NEAR_LINES:]):
        at = reader.take_apart(text.decode("utf-8", "replace").rstrip("\r"), 0, hits.last).at
        if at is not None:
            return at if hits.last is None or at.earliest_ns >= hits.last.earliest_ns else None
    return None


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
    for m in _PREFIX_BYTES.finditer(head):
        line = head[head.rfind(b"\n", 0, m.start()) + 1 : m.end()].decode("utf-8", "replace")
        if ("'" in line or '"' in line) and not without_spoken(line).endswith(line[-4:]):
            continue  # a user's words
        # a worker is called VllmWorker-N, then Worker, then Worker_TPn: the later name says more
        hits.processes[int(m[2])] = name_of(m[1].decode())


@dataclass
class _Edges:
    """What the first and the last lines of a log say: when it begins and ends, which ranks and which engine speak."""

    hits: Hits
    reader: Reader
    engines: Counter[str] = field(default_factory=Counter)

    @property
    def engine(self) -> str:
        """The engine that most lines have the form of."""
        return next((name for name, _ in self.engines.most_common() if name and name not in NO_ENGINE), "")

    def head(self, data: Buffer) -> None:
        """So that undated lines before the first hit have a bound."""
        for text in bytes(data[:EDGE_BYTES]).split(b"\n", EDGE_LINES)[:EDGE_LINES]:
            line = self._look(text)
            if line.at and self.hits.first is None:
                self.hits.first = self.hits.last = line.at

    def tail(self, data: Buffer) -> None:
        """The last time that any line tells."""
        begin = max(0, len(data) - EDGE_BYTES)
        for text in bytes(data[begin:]).rsplit(b"\n", EDGE_LINES)[-EDGE_LINES:]:
            line = self._look(text)
            if line.at and (self.hits.last is None or line.at.latest_ns >= self.hits.last.earliest_ns or begin == 0):
                self.hits.last = line.at
                self.hits.first = self.hits.first or line.at

    def _look(self, text: bytes) -> Line:
        line = self.reader.take_apart(text[:LINE_BYTES].decode("utf-8", "replace"), 0, self.hits.last)
        self.engines[line.engine] += 1
        if line.spoken_rank is not None:
            self.hits.ranks.add(line.spoken_rank)
        return line


def recognise(name: str, head: str) -> bool:
    """Text with at least one dated or prefixed line, or a traceback; anything called .log."""
    return name.endswith(".log") or bool(_PREFIXED.search(head) or _DATED.search(head) or "Traceback (most" in head)


PARSER = Parser("log", ("log",), recognise, parse)
