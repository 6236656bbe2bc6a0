"""Log lines to hits and progress samples, of one log."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field

import msgspec

from forensics.analysis.buffers import Buffer
from forensics.analysis.parse._base import Input, Sink
from forensics.analysis.parse._dumps import read_dump
from forensics.analysis.parse._lines import Line
from forensics.analysis.scan import FIRST, LAST
from forensics.analysis.signatures import AFTER_BYTES, Signature
from forensics.analysis.tracebacks import TRACEBACK_BYTES, read_traceback
from forensics.model import LogHit, ProgressSample, TimeRange

NUMBER_CHARS = 18
SAME_HITS = FIRST + LAST
"""The same line of the same process is kept this often, the first and the last of them; those between are counted. One dead engine
prints 1,400 of a kind."""
NO_ENGINE = frozenset({"any", "kernel", "torch", "nccl", "gloo", "python", "ray", "uvicorn", "cuda"})
"""What a signature may name as its engine without naming the engine that a log is of: libraries that all of them use."""


@dataclass
class Hits:
    """What the lines of one log have yielded so far, fed in order."""

    inp: Input
    sink: Sink
    found: list[LogHit | None] = field(default_factory=list)
    """None: counted in another."""
    undated: list[int] = field(default_factory=list)
    """Indexes of hits that wait for the next dated line."""
    last: TimeRange | None = None
    first: TimeRange | None = None
    seen: Counter[tuple[str, int | None, str]] = field(default_factory=Counter)
    latest: dict[tuple[str, int | None, str], deque[int]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    """pid to the most telling name that it writes under."""
    engines: Counter[str] = field(default_factory=Counter)
    """Whose lines were met, and how many: engines that name themselves in their signatures."""
    ranks: set[int] = field(default_factory=set)

    @property
    def engine(self) -> str:
        """The engine whose log this is, as far as its signatures tell."""
        return next((name for name, _ in self.engines.most_common() if name not in NO_ENGINE), "")

    def dated(self, at: TimeRange) -> None:
        """A dated line was met: what waited for it lies before."""
        self.first = self.first or at
        for i in self.undated:
            hit = self.found[i]
            if hit is not None:
                earliest = hit.at.earliest_ns if hit.at else at.earliest_ns
                between = TimeRange(earliest_ns=min(earliest, at.latest_ns), latest_ns=at.latest_ns, basis="inferred")
                self.found[i] = msgspec.structs.replace(hit, at=between)
        self.undated.clear()
        self.last = at

    def hit(self, signature: Signature, m: re.Match[str], line: Line, data: Buffer, start: int, count: int = 1) -> None:
        """A signature fits a line that begins at `start`; `count`: for how many it stands."""
        fields = signature.read(m)
        if fields is None or any(len(v) > NUMBER_CHARS and v.isdigit() for v in fields.values()):
            return  # no engine prints such a number: a damaged line
        self.engines[signature.engine] += count
        if line.rank is not None:
            self.ranks.add(line.rank)
        if signature.event in ("stats", "step"):
            self.sink.add(_progress(fields, line, self.inp, signature.event == "step"))
            return
        if signature.event == "stacks":
            read_dump(data, start, line.at or self.last, self.inp, self.sink)
        quote = line.text
        if signature.after:
            fields |= signature.read_after(bytes(data[start : start + AFTER_BYTES]).decode("utf-8", "replace"))
        if signature.block:
            trace = read_traceback(bytes(data[start : start + TRACEBACK_BYTES]).decode("utf-8", "replace"), line.pid)
            if trace:
                fields |= {"exc_type": trace.exc_type, "exc_message": trace.exc_message, "exc_at": trace.at, "exc_code": trace.code}
                quote = f"{line.text} … {trace.exc_type}: {trace.exc_message}" if trace.exc_message else f"{line.text} … {trace.exc_type}"
        hit = LogHit(
            node=self.inp.node,
            at=line.at or self.last,
            ref=self.inp.ref(f"line {line.number}", quote),
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
            count=count,
            limit_s=signature.limit_s(fields),
        )
        self._add(hit, line.at is not None)

    def _add(self, hit: LogHit, dated: bool) -> None:
        writer = hit.pid if hit.pid is not None else hit.rank
        key = (hit.signature, writer, hit.fields.get("exc_type", "") or hit.fields.get("status", ""))
        self.seen[key] += 1
        if self.seen[key] > FIRST:
            last = self.latest.setdefault(key, deque())
            if len(last) == LAST:
                dropped, following = self.found[last[0]], self.found[last[1]]
                self.found[last.popleft()] = None
                if dropped and following:
                    self.found[last[0]] = msgspec.structs.replace(following, count=following.count + dropped.count)
            last.append(len(self.found))
        if not dated:
            self.undated.append(len(self.found))
        self.found.append(hit)


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
        rank=line.rank,
        counters={"steps": float(fields["iteration"])} if fields.get("iteration") else {},
        running=number("running"),
        waiting=number("waiting"),
        kv_usage=float(kv) / 100 if kv else float(share) if share else None,
        prompt_tps=number("prompt_tps"),
        generation_tps=number("generation_tps"),
    )
