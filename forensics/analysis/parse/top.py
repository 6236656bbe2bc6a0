"""`top -b` and `ps` listings, with whichever columns they were asked for."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, ctime, sheets
from forensics.analysis.parse._units import size
from forensics.model import CpuSample, HostCpu, ProcessInfo, ProcessState

_TOP = re.compile(r"^top - .{0,200}load average: ([\d.]+)")
_CPU = re.compile(r"^%?Cpu\(s\): ?.{0,120}?([\d.]+)[ %]*id\b")
_TASKS = re.compile(r"^(Tasks|Threads):.{0,60}? (\d+) running")
_COMMAND = ("COMMAND", "CMD", "ARGS", "UCMD", "PROCESS")
_WORDS = frozenset(
    {"STAT", "S", "%CPU", "PPID", "USER", "UID", "TIME", "TIME+", "RSS", "RES", "NLWP", "WCHAN", "TID", "LWP", "C", "PID", "TTY", "PSR"}
)
_TREE = re.compile(r"^[ |\\_`+-]*(?=\S)")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
TITLE_CHARS = 2000


def header(line: str) -> list[str]:
    """The columns of a listing of processes; [] where the line heads none."""
    words = line.split()[:40]
    known = sum(word in _WORDS for word in words)
    return words if "PID" in words and known >= 2 and any(word in _COMMAND for word in words) else []


def parse_top(inp: Input, sink: Sink) -> None:
    _parse(inp, sink, True)


def parse_ps(inp: Input, sink: Sink) -> None:
    # a listing with %CPU and without a head may be either's: the mean since a process started says nothing of now
    _parse(inp, sink, bool(re.search(r"(?:^|[._-])top(?:[._-]|$)", inp.name.rsplit("/", 1)[-1])))


def _parse(inp: Input, sink: Sink, rates: bool) -> None:
    for sheet in sheets(inp):
        looks, summary, columns, threads = -1, "", [""][:0], False
        found: dict[str, float | None] = {}
        at_look = 0
        for number, line in sheet.lines():
            if m := _TOP.match(line):
                if summary:
                    _host(inp, sheet, sink, found, summary, at_look)
                looks, columns, threads, summary, at_look = looks + 1, [], False, line, number
                found = {"load": _float(m[1])}
            elif summary and (m := _CPU.match(line)):
                found["idle"] = _float(m[1])
                summary = f"{line}; {summary}"
            elif summary and (m := _TASKS.match(line)):
                found["running"] = float(m[2])
                threads = m[1] == "Threads"
            elif head := header(line):
                columns = head
            elif columns:
                _row(inp, sheet, sink, columns, line, number, sheet.inp.sample + max(looks, 0), rates or looks >= 0, threads)
        if summary:
            _host(inp, sheet, sink, found, summary, at_look)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _host(inp: Input, sheet: Sheet, sink: Sink, found: dict[str, float | None], summary: str, number: int) -> None:
    idle, running = found.get("idle"), found.get("running")
    sink.add(
        HostCpu(
            node=sheet.inp.node,
            at=sheet.inp.at,
            ref=inp.ref(f"line {number}", summary),
            idle_fraction=idle / 100 if idle is not None else None,
            load1=found.get("load"),
            runnable=int(running) if running is not None else None,
        )
    )


def _row(inp: Input, sheet: Sheet, sink: Sink, columns: list[str], line: str, number: int, sample: int, rates: bool, threads: bool) -> None:
    cells = line.split(None, len(columns) - 1)
    if "STARTED" in columns and columns[-1] != "STARTED":
        where = columns.index("STARTED")
        if len(cells) > where and cells[where] in _DAYS:  # lstart: five words
            cells = line.split(None, len(columns) + 3)
            cells[where : where + 5] = [" ".join(cells[where : where + 5])]
    if len(cells) < len(columns):
        return
    row = dict(zip(columns, cells, strict=False))
    if not re.fullmatch(r"[0-9]{1,9}", row.get("PID", "")):
        return
    pid = int(row["PID"])
    title = next((row[name] for name in _COMMAND if name in row), "")
    title = plain(_TREE.sub("", title).rstrip(), TITLE_CHARS)
    state = row.get("STAT", row.get("S", ""))[:1]
    at = sheet.inp.at
    ref = inp.ref(f"line {number}", line)
    percent = _float(row["%CPU"]) if rates and "%CPU" in row else None
    tid = row.get("TID", row.get("LWP", row.get("SPID", "")))
    if threads or tid.isdigit():
        # top -H calls the thread PID and does not tell the process; ps -L tells both
        thread = int(tid[:9]) if tid.isdigit() else pid
        sink.add(
            CpuSample(
                node=sheet.inp.node,
                at=at,
                ref=ref,
                pid=pid,
                tid=thread,
                thread=title.rpartition("/")[2][:64],
                state=state,
                wchan=_wchan(row),
                percent=percent,
                sample=sample,
            )
        )
        if threads or thread != pid:
            return
    ppid = int(row["PPID"][:9]) if row.get("PPID", "").isdigit() else None
    started = ctime(row.get("STARTED", ""), inp)
    # ps counts KiB; top too, unless a letter says otherwise
    rss = size(row["RSS"], 1024) if "RSS" in row else size(row.get("RES", ""), 1024)
    sink.process(
        ProcessInfo(
            pid=pid,
            ppid=ppid,
            node=sheet.inp.node,
            title=title,
            argv=tuple(title.split()) if " " in title else (),
            state=state,
            started_ns=started.earliest_ns if started else None,
        )
    )
    sink.add(
        ProcessState(
            node=sheet.inp.node,
            at=at,
            ref=ref,
            pid=pid,
            ppid=ppid,
            state=state,
            wchan=_wchan(row),
            title=title,
            rss_bytes=rss,
            threads=int(row["NLWP"][:9]) if row.get("NLWP", "").isdigit() else None,
            sample=sample,
        )
    )
    if percent is not None:
        sink.add(CpuSample(node=sheet.inp.node, at=at, ref=ref, pid=pid, percent=percent, state=state, sample=sample))


def _wchan(row: dict[str, str]) -> str:
    wchan = row.get("WCHAN", "")
    return "" if wchan in ("-", "0") else plain(wchan)


TOP = Parser("top", ("top",), lambda name, head: any(_TOP.match(line) for line in body(head, 5)), parse_top)
PS = Parser("ps", ("ps",), lambda name, head: any(header(line) for line in body(head, 3)), parse_ps)
