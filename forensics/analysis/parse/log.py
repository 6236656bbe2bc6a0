"""Engine logs: every line that a signature knows, with its time, its process and the traceback under it.

The scanner looks for the signatures' literals over the raw bytes and takes lines apart only where one stands: most of a log
is never decoded. Undated lines (uvicorn, prints) get the range between their dated neighbours.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from forensics.analysis.parse._base import Buffer, Input, Parser, Sink
from forensics.analysis.parse._containers import unwrap
from forensics.analysis.signatures import AFTER_BYTES, Signature, signatures
from forensics.analysis.tracebacks import TRACEBACK_BYTES, read_traceback
from forensics.model import LogHit, LogSpan, ProcessInfo, ProgressSample, TimeRange

LINE_BYTES = 64 * 1024
"""A longer line (a dumped batch) is cut here: what a signature needs stands at its head."""
NUMBER_CHARS = 18
SAME_HITS = 20
"""The same line of the same process is kept this often; the rest is counted. One dead engine prints 1,400 of a kind."""
NO_ENGINE = frozenset({"any", "kernel", "torch", "nccl", "gloo", "python", "ray", "uvicorn", "cuda"})
"""What a signature may name as its engine without naming the engine that a log is of: libraries that all of them use."""
HEAD_BYTES = 512 * 1024
"""Names and pids of processes are read from the head of a log and from every line that a signature knows."""

_VLLM = re.compile(
    r"\((?P<proc>[A-Za-z_][\w\-]*(?: (?:TP|PP|DP)\d+| rank=\d+)?),? pid=(?P<pid>\d+)(?:, ip=[^)]*)?\)"
    r"(?: (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL))?(?: (?P<time>\d\d-\d\d \d\d:\d\d:\d\d))?(?: \[(?P<at>[^\]]+:\d+)\])? ?"
)
_PLAIN = re.compile(
    r"^\W{0,2}(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?\S{0,6}|\d\d-\d\d \d\d:\d\d:\d\d|\w{3} +\d+ \d\d:\d\d:\d\d)?\W*"
    r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)?\b"
)
_SGLANG = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<place>(?: [A-Z]+(?:_[A-Z]+)*\d{1,5}){0,8})\] ")
_TRTLLM = re.compile(
    r"^\W{0,2}(?:\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\](?: \[(?P<level>[FEWIV])\])? "
    r"?(?:\[_torch\])?(?:\[(?:MPI_)?R(?:ank|ANK) (?P<rank>\d{1,5})\])? ?(?:\[(?P<late>[FEWIV])\] )?"
)
_LETTERS = {"F": "CRITICAL", "E": "ERROR", "W": "WARNING", "I": "INFO", "V": "DEBUG"}
_PID = re.compile(r"\bpid[ =:]+(\d+)\b")
_RANK = re.compile(r"\brank[ =:]*(\d+)\b", re.I)
_PREFIX_BYTES = re.compile(rb"\(([A-Za-z_][\w\-]*(?: (?:TP|PP|DP)\d+| rank=\d+)?) pid=(\d+)")
_DATED = re.compile(rb"(?m)^.{0,64}?\d\d-\d\d[T ]\d\d:\d\d:\d\d|^.{0,8}\w{3} +\d+ \d\d:\d\d:\d\d")


@dataclass(frozen=True)
class Line:
    """One log line taken apart."""

    number: int
    text: str
    message: str
    process: str = ""
    pid: int | None = None
    rank: int | None = None
    level: str = ""
    at: TimeRange | None = None


@functools.lru_cache(maxsize=1)
def _known() -> tuple[re.Pattern[bytes], dict[bytes, tuple[Signature, ...]]]:
    """One pattern that finds any literal, and the signatures of each literal."""
    by_literal: dict[bytes, list[Signature]] = {}
    for signature in signatures():
        if signature.engine != "kernel":
            by_literal.setdefault(signature.literal.encode(), []).append(signature)
    longest_first = sorted(by_literal, key=len, reverse=True)
    return re.compile(b"|".join(map(re.escape, longest_first))), {k: tuple(v) for k, v in by_literal.items()}


@dataclass
class _Scan:
    inp: Input
    sink: Sink
    hits: list[LogHit] = field(default_factory=list)
    undated: list[int] = field(default_factory=list)
    """Indexes of hits that wait for the next dated line."""
    last: TimeRange | None = None
    first: TimeRange | None = None
    seen: Counter[tuple[str, int | None, str]] = field(default_factory=Counter)
    latest: dict[tuple[str, int | None, str], int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    """pid to the most telling name that it writes under."""
    engines: Counter[str] = field(default_factory=Counter)
    """Whose lines were met, and how many: engines that name themselves in their signatures."""
    ranks: set[int] = field(default_factory=set)

    def dated(self, at: TimeRange) -> None:
        self.first = self.first or at
        for i in self.undated:
            hit = self.hits[i]
            earliest = hit.at.earliest_ns if hit.at else at.earliest_ns
            self.hits[i] = msgspec.structs.replace(
                hit, at=TimeRange(earliest_ns=min(earliest, at.latest_ns), latest_ns=at.latest_ns, basis="inferred")
            )
        self.undated.clear()
        self.last = at

    def add(self, hit: LogHit, dated: bool) -> None:
        key = (hit.signature, hit.pid, hit.fields.get("exc_type", "") or hit.fields.get("status", ""))
        self.seen[key] += 1
        if self.seen[key] > SAME_HITS and key in self.latest:
            i = self.latest[key]
            kept = self.hits[i]
            self.hits[i] = msgspec.structs.replace(hit, count=kept.count + 1)
        else:
            i = len(self.hits)
            self.hits.append(hit)
            self.latest[key] = i
        if not dated and i not in self.undated:
            self.undated.append(i)


def parse(inp: Input, sink: Sink) -> None:
    inp = replace(inp, data=unwrap(inp.data))
    scan = _Scan(inp, sink)
    data = inp.data
    _names(data[:HEAD_BYTES], scan)
    _bounds(inp, scan)
    _, known = _known()
    for line, start, literal in _lines(data, inp):
        if line.message.startswith("Traceback"):
            line = _above(line, data, start, inp)
        if line.at:
            scan.dated(line.at)
        if line.process and line.pid is not None:
            scan.processes.setdefault(line.pid, line.process)
        # the literal that the scanner met first is nearly always the one; the rest of the line may hold another
        others = (s for key, group in known.items() if key != literal and key.decode() in line.message for s in group)
        for signature in itertools.chain(known[literal], others):
            if m := signature.regex.search(line.message):
                _hit(signature, m, line, data, start, scan)
                break
    for hit in (*scan.hits, *_markers(inp)):
        sink.add(hit)
    for pid, name in scan.processes.items():
        sink.process(ProcessInfo(pid=pid, node=inp.node, title=name, log_files=(inp.name,)))
    tail = _last_time(inp)
    sink.add(
        LogSpan(
            node=inp.node,
            ref=inp.ref("file", f"{len(data)} bytes"),
            pid=inp.pid,
            first_ns=scan.first.earliest_ns if scan.first else None,
            last_ns=tail.latest_ns if tail else (scan.last.latest_ns if scan.last else None),
            pids=tuple(scan.processes),
            engine=next((name for name, _ in scan.engines.most_common() if name not in NO_ENGINE), ""),
            ranks=tuple(sorted(scan.ranks)),
        )
    )


def _above(line: Line, data: Buffer, start: int, inp: Input) -> Line:
    """A traceback without a prefix belongs to the dated line above it: logging writes the message first, then the traceback."""
    if line.at or line.process or start < 2:
        return line
    begin = data.rfind(b"\n", max(0, start - LINE_BYTES), start - 1) + 1
    above = take_apart(bytes(data[begin : start - 1]).decode("utf-8", "replace").rstrip("\r"), line.number - 1, inp)
    if above.at is None or above.level not in ("ERROR", "CRITICAL", "FATAL", "WARNING"):
        return line
    return Line(line.number, above.text, line.message, above.process, above.pid, above.rank, above.level, above.at)


def _hit(signature: Signature, m: re.Match[str], line: Line, data: Buffer, start: int, scan: _Scan) -> None:
    fields = signature.read(m)
    if fields is None or any(len(v) > NUMBER_CHARS and v.isdigit() for v in fields.values()):
        return  # no engine prints such a number: a damaged line
    inp = scan.inp
    scan.engines[signature.engine] += 1
    if line.rank is not None:
        scan.ranks.add(line.rank)
    if signature.event in ("stats", "step"):
        scan.sink.add(_progress(fields, line, inp, signature.event == "step"))
        return
    quote = line.text
    if signature.after:
        fields |= signature.read_after(bytes(data[start : start + AFTER_BYTES]).decode("utf-8", "replace"))
    if signature.block:
        trace = read_traceback(bytes(data[start : start + TRACEBACK_BYTES]).decode("utf-8", "replace"), line.pid)
        if trace:
            fields |= {"exc_type": trace.exc_type, "exc_message": trace.exc_message, "exc_at": trace.at, "exc_code": trace.code}
            quote = f"{line.text} … {trace.exc_type}: {trace.exc_message}" if trace.exc_message else f"{line.text} … {trace.exc_type}"
    hit = LogHit(
        node=inp.node,
        at=line.at or scan.last,
        ref=inp.ref(f"line {line.number}", quote),
        # the file's own pid is only one of those that write into it
        pid=line.pid,
        signature=signature.id,
        feeds=signature.feeds,
        role=signature.role,
        event=signature.event,
        engine=signature.engine,
        process=line.process,
        rank=line.rank,
        level=line.level,
        fields=fields,
        text=line.message[:400],
        limit_s=signature.limit_s(fields),
    )
    scan.add(hit, line.at is not None)


def _markers(inp: Input) -> Iterator[LogHit]:
    """Lines that an operator's patched build prints: first of each process, as it proves the build that this process runs."""
    for patch, marker in inp.markers:
        seen: set[int | None] = set()
        position = 0
        while marker and len(seen) < SAME_HITS and (found := inp.data.find(marker.encode(), position)) >= 0:
            start = inp.data.rfind(b"\n", 0, found) + 1
            end = inp.data.find(b"\n", found)
            position = len(inp.data) if end < 0 else end + 1
            text = bytes(inp.data[start : min(position, start + LINE_BYTES)]).decode("utf-8", "replace").rstrip()
            line = take_apart(text, inp.data[:start].count(b"\n") + 1, inp)
            said = _PID.search(text)
            pid = line.pid if line.pid is not None else int(said[1]) if said else None
            if pid in seen:
                continue
            seen.add(pid)
            yield LogHit(
                node=inp.node,
                at=line.at,
                ref=inp.ref(f"line {line.number}", text),
                pid=pid,
                signature="patch-marker",
                feeds="patch-live",
                role="context",
                process=line.process,
                fields={"patch": patch},
                text=text[:400],
            )


def _progress(fields: dict[str, str], line: Line, inp: Input, step: bool = False) -> ProgressSample:
    """A stats line of any engine: groups engine, running, waiting, kv (per cent) or kv_share, prompt_tps, generation_tps, iteration."""
    replica = re.search(r"\bDP(\d{1,9})\b", line.process)
    kv, share = fields.get("kv"), fields.get("kv_share")

    def number(name: str) -> float | None:
        return float(fields[name]) if fields.get(name) else None

    return ProgressSample(
        node=inp.node,
        at=line.at,
        ref=inp.ref(f"line {line.number}", line.message),
        pid=line.pid,
        via="log",
        dp_rank=str(int(fields.get("engine") or (replica[1] if replica else 0))),
        step=step,
        counters={"steps": float(fields["iteration"])} if fields.get("iteration") else {},
        running=number("running"),
        waiting=number("waiting"),
        kv_usage=float(kv) / 100 if kv else float(share) if share else None,
        prompt_tps=number("prompt_tps"),
        generation_tps=number("generation_tps"),
    )


def _lines(data: Buffer, inp: Input) -> Iterator[tuple[Line, int, bytes]]:
    """Every line in which a signature's literal stands, taken apart, with its offset and the literal."""
    trigger, _ = _known()
    number, counted, position = 1, 0, 0
    while m := trigger.search(data, position):
        start = data.rfind(b"\n", max(0, m.start() - LINE_BYTES), m.start()) + 1 or max(0, m.start() - LINE_BYTES)
        if start > counted:
            number += data[counted:start].count(b"\n")
            counted = start
        end = data.find(b"\n", m.end())
        end = len(data) if end < 0 else end
        text = bytes(data[start : min(end, start + LINE_BYTES)]).decode("utf-8", "replace").rstrip("\r")
        yield take_apart(text, number, inp), start, m[0]
        position = end + 1
        if position >= len(data):
            return


def take_apart(text: str, number: int, inp: Input) -> Line:
    """Split one line into prefix and message; the prefix tells time, process, pid, rank and level as far as it says so."""
    if m := _VLLM.search(text[:200]):
        stamp = m["time"]
        at = inp.calendar.stamp(stamp) if stamp else inp.calendar.parse(text[: m.start()])
        pid = int(m["pid"])
        return Line(
            number,
            text,
            text[m.end() :],
            process_name(m["proc"]),
            pid,
            _rank_of(text[: m.start()]) if m.start() else None,
            m["level"] or "",
            at,
        )
    head = text[:160]
    if m := _SGLANG.match(head):
        place = m["place"].strip()
        tp = re.search(r"(?:^| )TP(\d+)", place)
        rank = int(tp[1]) if tp and "PP" not in place else None  # with stages the rank takes their size to tell
        return Line(number, text, text[m.end() :], place, None, rank, "", inp.calendar.parse(m[1]))
    if "[TRT-LLM]" in head and (m := _TRTLLM.match(head)):
        rank = int(m["rank"]) if m["rank"] else None
        return Line(
            number, text, text[m.end() :], "", None, rank, _LETTERS.get(m["late"] or m["level"] or "", ""), inp.calendar.parse(head, 32)
        )
    at = inp.calendar.parse(head, 48)
    plain = _PLAIN.match(head)
    pid_m = _PID.search(head) if at else None
    level = (plain["level"] or "") if plain else ""
    return Line(number, text, text, "", int(pid_m[1]) if pid_m else None, _rank_of(head) if at else None, level, at)


def process_name(prefix: str) -> str:
    """Older prefixes put the place behind a space: "VllmWorker TP1", "VllmWorker rank=1"."""
    if " " not in prefix:
        return prefix
    return prefix.replace("VllmWorker ", "Worker_", 1) if re.search(r" [TPD]P\d", prefix) else prefix.replace(" rank=", "-")


def _rank_of(text: str) -> int | None:
    m = _RANK.search(text)
    return int(m[1]) if m else None


def _names(head: bytes, scan: _Scan) -> None:
    for name, pid in _PREFIX_BYTES.findall(head):
        # a worker is called VllmWorker-N, then Worker, then Worker_TPn: the later name says more
        scan.processes[int(pid)] = process_name(name.decode())


def _bounds(inp: Input, scan: _Scan) -> None:
    """The first dated line of the file, so that undated ones before the first hit have a bound."""
    if m := _DATED.search(bytes(inp.data[:65536])):
        line = m.string[m.start() : m.end() + 64].decode("utf-8", "replace")
        scan.first = scan.last = inp.calendar.parse(line.split("\n")[0])


def _last_time(inp: Input) -> TimeRange | None:
    tail = bytes(inp.data[max(0, len(inp.data) - 65536) :])
    found = None
    for m in _DATED.finditer(tail):
        found = m
    return inp.calendar.parse(found.group().decode("utf-8", "replace")) if found else None


def recognise(name: str, head: str) -> bool:
    """Text with at least one dated or prefixed line, or a traceback; anything called .log."""
    return name.endswith(".log") or bool(_VLLM.search(head) or _DATED.search(head.encode()) or "Traceback (most" in head)


PARSER = Parser("log", ("log",), recognise, parse)
