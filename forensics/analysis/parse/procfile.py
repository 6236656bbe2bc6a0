"""Single files of /proc that somebody mailed: status, stat, stack, syscall, wchan. The process is in the content or in the file's name."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.analysis.parse.procfiles import TICKS_PER_SECOND, stat_fields
from forensics.analysis.parse.waits import futex
from forensics.model import CpuSample, ProcessInfo, ProcessState, ThreadWait

_NAME = re.compile(r"^Name:\t?\s*(.*)$")
_KEY = re.compile(r"^(State|Pid|PPid|Tgid|NSpid|Threads|VmRSS|Uid):\s*(.*)$")
_STAT = re.compile(r"^\d{1,9} \(.{0,64}\) [RSDZTtXI] -?\d+ -?\d+ -?\d+ -?\d+ -?\d+ \d+ ")
_STACK = re.compile(r"^\[<[0-9a-f]+>\] (\S+?)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: (\[\S+\]))?$")
_SYSCALL = re.compile(r"^(?:running|-1 0x[0-9a-f]+ 0x[0-9a-f]+|\d{1,3}(?: 0x[0-9a-f]+){6,8})$")
_WCHAN = re.compile(r"^[a-z_][a-z0-9_.]{2,60}$|^0$", re.I)


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        _sheet(inp, sheet, sink)


def _sheet(inp: Input, sheet: Sheet, sink: Sink) -> None:
    status: dict[str, str] = {}
    stack: list[str] = []
    waits: dict[str, str] = {}
    first = 0
    for number, line in sheet.lines():
        line = line.rstrip()
        if m := _NAME.match(line):
            _status(inp, sheet, sink, status, first)
            status, first = {"Name": m[1]}, number
        elif status and (m := _KEY.match(line)):
            status[m[1]] = m[2].strip()
        elif _STAT.match(line):
            _stat(inp, sheet, sink, line, number)
        elif m := _STACK.match(line):
            first = first or number
            stack.append(plain(" ".join(filter(None, m.groups()))))
        elif _SYSCALL.match(line):
            first = first or number
            waits["syscall"] = line
        elif "wchan" in inp.name.lower() and _WCHAN.match(line):
            first = first or number
            waits["wchan"] = "" if line == "0" else line
    _status(inp, sheet, sink, status, first)
    if not stack and not waits:
        return
    if sheet.inp.pid is None:
        sink.note(f"{inp.name}: where the kernel holds a thread, but neither the file's name nor a line above tells of which process")
        return
    call = waits.get("syscall", "").split()
    wchan = plain(waits.get("wchan", ""))
    sink.add(
        ThreadWait(
            node=sheet.inp.node,
            at=sheet.inp.at,
            ref=inp.ref(f"line {first}", " < ".join(stack[:6]) or waits.get("syscall", "") or wchan),
            pid=sheet.inp.pid,
            tid=sheet.inp.pid,
            wchan=wchan,
            syscall=int(call[0]) if call and call[0].isdigit() else None,
            futex=futex(call, wchan),
            kernel_stack=tuple(stack[:200]),
            sample=sheet.inp.sample,
        )
    )


def _status(inp: Input, sheet: Sheet, sink: Sink, status: dict[str, str], line: int) -> None:
    pid = _int(status.get("Pid", ""))
    if pid is None:
        return
    state, name = status.get("State", "")[:1], plain(status.get("Name", ""))
    tgid = _int(status.get("Tgid", ""))
    rss = _int(status.get("VmRSS", "").removesuffix(" kB"))
    ref = inp.ref(f"line {line}", f"{name} {status.get('State', '')} pid {pid}")
    if tgid is not None and tgid != pid:
        sink.add(
            ThreadWait(node=sheet.inp.node, at=sheet.inp.at, ref=ref, pid=tgid, tid=pid, thread=name, state=state, sample=sheet.inp.sample)
        )
        return
    inner = tuple(int(n) for n in status.get("NSpid", "").split()[:8] if _int(n) is not None)
    sink.process(
        ProcessInfo(pid=pid, ppid=_int(status.get("PPid", "")), node=sheet.inp.node, comm=name, title=name, state=state, ns_pids=inner)
    )
    sink.add(
        ProcessState(
            node=sheet.inp.node,
            at=sheet.inp.at,
            ref=ref,
            pid=pid,
            ppid=_int(status.get("PPid", "")),
            state=state,
            title=name,
            rss_bytes=rss * 1024 if rss is not None else None,
            threads=_int(status.get("Threads", "")),
            sample=sheet.inp.sample,
        )
    )


def _stat(inp: Input, sheet: Sheet, sink: Sink, line: str, number: int) -> None:
    try:
        comm, fields = stat_fields(line)
        tid = int(line.split(" ", 1)[0])
        cpu = (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
        threads, rss = int(fields[17]), int(fields[21]) * 4096
    except (ValueError, IndexError):
        sink.note(f"{inp.name}: {inp.ref(f'line {number}').locator} is cut")
        return
    pid = sheet.inp.pid if sheet.inp.pid is not None else tid
    ref = inp.ref(f"line {number}", f"{comm} {fields[0]} cpu={cpu:.2f} s")
    common = {"node": sheet.inp.node, "at": sheet.inp.at, "ref": ref, "pid": pid, "state": fields[0], "sample": sheet.inp.sample}
    sink.add(CpuSample(**common, tid=tid, thread=plain(comm), cpu_seconds=cpu))  # type: ignore[arg-type]
    if tid == pid:
        sink.process(ProcessInfo(pid=pid, node=sheet.inp.node, comm=plain(comm), title=plain(comm), state=fields[0]))
        sink.add(ProcessState(**common, ppid=int(fields[1]), title=plain(comm), rss_bytes=rss, threads=threads))  # type: ignore[arg-type]


def _int(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


def recognise(name: str, head: str) -> bool:
    lines = body(head, 80)
    if not lines:
        return False
    if _NAME.match(lines[0]) and any(line.startswith("State:") for line in lines[:6]):
        return True
    if _STAT.match(lines[0]) or _STACK.match(lines[0]) or (_SYSCALL.match(lines[0].rstrip()) and lines[0].strip() != "running"):
        return True
    base = name.lower()
    return ("syscall" in base and lines[0].strip() == "running") or (
        "wchan" in base and len(lines) == 1 and bool(_WCHAN.match(lines[0].strip()))
    )


PARSER = Parser("proc", ("proc-file",), recognise, parse)
