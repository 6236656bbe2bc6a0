"""`top -b` and `ps` listings."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import CpuSample, HostCpu, ProcessInfo, ProcessState

_TOP = re.compile(r"^top - .*load average: ([\d.]+)", re.M)
_CPU = re.compile(r"^%Cpu\(s\):.*?([\d.]+) id", re.M)
_TASKS = re.compile(r"^Tasks:.*?(\d+) running", re.M)
_PS_HEAD = re.compile(r"^\s*(?:USER\s+)?PID\s+(?=.*\b(?:STAT|S|COMMAND|CMD)\b)")


def parse_top(inp: Input, sink: Sink) -> None:
    text = inp.text()
    load, cpu, tasks = _TOP.search(text), _CPU.search(text), _TASKS.search(text)
    quote = "; ".join(m[0] for m in (cpu, load, tasks) if m)
    sink.add(
        HostCpu(
            node=inp.node,
            at=inp.at,
            ref=inp.ref("summary", quote),
            idle_fraction=float(cpu[1]) / 100 if cpu else None,
            load1=float(load[1]) if load else None,
            runnable=int(tasks[1]) if tasks else None,
        )
    )
    _rows(inp, sink, text)


def parse_ps(inp: Input, sink: Sink) -> None:
    _rows(inp, sink, inp.text())


def _rows(inp: Input, sink: Sink, text: str) -> None:
    columns: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not columns:
            if re.match(r"\s*(?:USER\s+)?PID\b", line) or re.match(r"\s*UID\s+PID\b", line):
                columns = line.split()
            continue
        cells = line.split(None, len(columns) - 1)
        if len(cells) < len(columns):
            continue
        row = dict(zip(columns, cells, strict=False))
        if not row.get("PID", "").isdigit():
            continue
        pid = int(row["PID"])
        title = re.sub(r"^[ |\\_`-]*(?=\S)", "", row.get("COMMAND", row.get("CMD", row.get("ARGS", ""))))
        state = row.get("STAT", row.get("S", ""))[:1]
        ref = inp.ref(f"line {number}", line)
        ppid = int(row["PPID"]) if row.get("PPID", "").isdigit() else None
        wchan = row.get("WCHAN", "")
        sink.process(
            ProcessInfo(pid=pid, ppid=ppid, node=inp.node, title=title, argv=tuple(title.split()) if " " in title else (), state=state)
        )
        sink.add(
            ProcessState(
                node=inp.node,
                at=inp.at,
                ref=ref,
                pid=pid,
                ppid=ppid,
                state=state,
                wchan="" if wchan == "-" else wchan,
                title=title,
                rss_bytes=int(row["RSS"]) * 1024 if row.get("RSS", "").isdigit() else None,
                threads=int(row["NLWP"]) if row.get("NLWP", "").isdigit() else None,
                sample=inp.sample,
            )
        )
        # ps gives the mean since the process started, which says nothing about now; top gives the present rate
        if "%CPU" in row and "STAT" not in row:
            try:
                percent = float(row["%CPU"])
            except ValueError:
                continue
            sink.add(CpuSample(node=inp.node, at=inp.at, ref=ref, pid=pid, percent=percent, state=state, sample=inp.sample))


TOP = Parser("top", ("top",), lambda name, head: bool(_TOP.search(head)), parse_top)
PS = Parser("ps", ("ps",), lambda name, head: bool(_PS_HEAD.match(head) or re.match(r"\s*UID\s+PID\s+PPID\s", head)), parse_ps)
