"""Stacks that gdb (`thread apply all bt`), cuda-gdb or eu-stack printed: native frames, and Python ones where python-gdb named them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import bounded, plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.analysis.parse.pystack import short
from forensics.model import Frame, ThreadStack

_THREAD = re.compile(r'^Thread (\d{1,9}) \(.{0,120}?LWP (\d{1,9})\)?(?: "(.{0,64}?)")?\)?(?: "(.{0,64}?)")?(?: \([^()]{0,60}\))?:?\s*$')
_LISTED = re.compile(r'^[* ] (\d{1,9}) +Thread .{0,120}?\(?LWP (\d{1,9})\)?(?: "(.{0,64}?)")?')
_EU = re.compile(r"^TID (\d{1,9}):$")
_PROCESS = re.compile(r"^(?:PID (\d{1,9}) - (?:process|core)|Attaching to (?:process|program: .{0,300}, process) (\d{1,9}))")
_FRAME = re.compile(r"^#(\d{1,5}) +(?:(0x[0-9a-f]+) )?(?:in )?(.*)$")
_FROM = re.compile(r" from (\S+)\s*$")
_AT = re.compile(r" at (\S+?):(\d{1,9})\s*$")
_EU_PLACE = re.compile(r" - (\S+)\s*$")
_PYTHON = re.compile(r"Frame 0x[0-9a-f]+, for file (.{1,300}?), line (\d{1,9}), in (\S+)")
_EVAL = ("_PyEval_EvalFrame", "PyEval_EvalFrame")
THREADS_MAX = 100_000


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        _sheet(sheet, sink)


def _sheet(sheet: Sheet, sink: Sink) -> None:
    inp = sheet.inp
    pid = inp.pid
    threads: list[tuple[int, int, str, int, list[str]]] = []
    """(gdb's number, LWP, name, line, lines of its frames)"""
    for number, line in sheet.lines():
        if m := _THREAD.match(line) or _EU.match(line):
            ordinal, lwp = int(m[1]), int(m[2]) if m.re is _THREAD else int(m[1])
            name = (m[3] or m[4] or "") if m.re is _THREAD else ""
            if len(threads) < THREADS_MAX:
                threads.append((ordinal, lwp, name, number, []))
        elif m := _PROCESS.match(line):
            pid = pid if pid is not None else int(m[1] or m[2])
        elif _FRAME.match(line):
            if not threads:  # `bt` of the thread that gdb stopped at
                threads.append((1, pid or 0, "", number, []))
            threads[-1][4].append(line)
        elif threads and threads[-1][4] and line[:1] in " \t" and len(threads[-1][4][-1]) < 4096:
            threads[-1][4][-1] += " " + line.strip()  # gdb breaks long arguments
    if pid is None:
        # gdb counts threads from 1, and the first is the process itself
        pid = next((lwp for ordinal, lwp, *_ in threads if ordinal == 1), min((lwp for _, lwp, *_ in threads), default=0))
    for _, lwp, name, number, rows in threads:
        mixed = list(_frames(rows))
        python = [f for f in mixed if not f.native]
        title = plain(name)
        quote = " < ".join(f"{f.name} ({f.file})" for f in mixed[:6]) or "no frames"
        sink.add(
            ThreadStack(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f'line {number} thread {lwp} "{title}"', quote),
                pid=pid or lwp,
                tid=lwp or None,
                name="MainThread" if lwp == pid and python else title,
                frames=bounded(python),
                mixed=bounded(mixed),
                reader="gdb",
                sample=inp.sample,
            )
        )


def _frames(rows: list[str]) -> Iterator[Frame]:
    for row in rows:
        m = _FRAME.match(row)
        if m is None:
            continue
        if py := _PYTHON.search(row):
            yield Frame(name=plain(py[3]), file=short(py[1]), line=int(py[2]))
            continue
        text = m[3]
        library = _FROM.search(text) or _EU_PLACE.search(text)
        at = _AT.search(text)
        file = plain((library or at)[1].rpartition("/")[2], 300) if library or at else ""  # type: ignore[index]
        name = text[: (library or at).start()] if library or at else text  # type: ignore[union-attr]
        # "foo<int, 3> (a=1, b=2)": the arguments begin behind a blank; "operator()" and "ncclInit()" hold brackets of their own
        name = name.partition(" (")[0].strip().removesuffix("()")
        yield Frame(name=plain(name) or "???" if name != "??" else "???", file=file, line=int(at[2]) if at else 0, native=True)


def recognise(name: str, head: str) -> bool:
    lines = body(head, 400)
    frames = any(_FRAME.match(line) for line in lines)
    return frames and (
        any(_THREAD.match(line) or _EU.match(line) for line in lines)
        or any("Attaching to p" in line or "libthread_db" in line for line in lines)
    )


PARSER = Parser("gdb", ("gdb-text",), recognise, parse)
