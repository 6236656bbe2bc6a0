"""py-spy dump, as JSON (what we capture) and as text (what people mail): with `--native`, `--locals` and `--subprocesses` too.

Text as py-spy 0.4 prints it (src/dump.rs): a frame without a line number is of a library without debug symbols.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink, clean
from forensics.analysis.parse._names import LINE_CHARS, bounded, plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.model import Frame, ProcessInfo, ThreadStack


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    short_filename: str | None = None
    module: str | None = None
    """The library of a native frame (`--native`); null for Python."""
    line: int = 0


class _Thread(msgspec.Struct):
    pid: int = 0
    thread_name: str | None = None
    os_thread_id: int | None = None
    thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    frames: list[_Frame] = []


_DECODER = msgspec.json.Decoder(list[_Thread])

_PROCESS = re.compile(r"^Process (\d+): (.*)$")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+) \((active|idle)(\+gil)?\)(?:: "(.*)")?')
_FRAME = re.compile(r"^ {4}(\S.*) \(([^()]*?)(?::(\d{1,9}))?\)$")
_LIBRARY = re.compile(r"(?:^|/)[^/]*\.so(?:\.[\d.]+)?$|^\[?(?:vdso|linux-vdso)|(?:^|/)(?:python[\d.]*|ld-[\w.-]+)$")
_SOURCE = re.compile(r"\.(?:c|cc|cpp|cxx|h|hh|hpp|rs|cu|cuh|S)$")


def _parse_json(inp: Input, sink: Sink) -> None:
    threads = _DECODER.decode(inp.document())
    several = len({thread.pid for thread in threads}) > 1  # --subprocesses: the file is of more than the process in its name
    for thread in threads:
        tid = thread.os_thread_id or thread.thread_id
        mixed = [_frame(f.name, f.short_filename or f.filename, f.line, f.module) for f in thread.frames]
        python = [f for f in mixed if not f.native]
        frames = bounded(python)
        name = plain(thread.thread_name or "")
        sink.add(
            ThreadStack(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f'thread {tid} "{name}"', _quote(frames)),
                pid=thread.pid if several else inp.pid or thread.pid,
                tid=tid,
                name=name,
                active=thread.active,
                gil=thread.owns_gil,
                frames=frames,
                mixed=bounded(mixed) if len(python) < len(mixed) else (),
                sample=inp.sample,
            )
        )


@lru_cache(maxsize=1 << 16)
def _frame(name: str, file: str, line: int, module: str | None) -> Frame:
    """Threads that stand at the same place share their frames: a large case holds each place once."""
    if module is None:
        return Frame(name=plain(name), file=plain(file, 300), line=line)
    # code without a symbol is named by its address, which is another one in every process
    known = "???" if name.startswith("0x") else plain(name)
    return Frame(name=known, file=plain(module.rpartition("/")[2], 300), line=line, native=True)


def _parse_text(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        _sheet(sheet, sink)


def _sheet(sheet: Sheet, sink: Sink) -> None:
    inp = sheet.inp
    pid = inp.pid
    head: re.Match[str] | None = None
    mixed: list[Frame] = []

    def finish() -> None:
        if head is None or pid is None:
            return
        tid = int(head[1], 0)
        python = [f for f in mixed if not f.native]
        frames = bounded(python)
        sink.add(
            ThreadStack(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f'thread {tid} "{plain(head[4] or "")}"', _quote(frames)),
                pid=pid,
                tid=tid,
                name=plain(head[4] or ""),
                active=head[2] == "active",
                gil=head[3] is not None,
                frames=frames,
                mixed=bounded(mixed) if len(python) < len(mixed) else (),
                sample=inp.sample,
            )
        )

    for _, line in sheet.lines():
        if m := _PROCESS.match(line):
            finish()
            head, mixed = None, []
            pid = int(m[1])
            sink.process(ProcessInfo(pid=pid, node=inp.node, title=plain(m[2], LINE_CHARS), argv=tuple(m[2].split())))
        elif m := _THREAD.match(line):
            finish()
            head, mixed = m, []
        elif m := _FRAME.match(line):
            native = bool(_LIBRARY.search(m[2]) if m[3] is None else _SOURCE.search(m[2]))
            mixed.append(_frame(m[1], m[2], int(m[3] or 0), m[2] if native else None))
    finish()


def _quote(frames: tuple[Frame, ...]) -> str:
    return " < ".join(f"{f.name} ({f.file}:{f.line})" for f in frames[:4]) or "no Python frames"


def parse(inp: Input, sink: Sink) -> None:
    first = clean(bytes(inp.data[:64]).decode("utf-8", "replace")).lstrip()[:1]  # a header of ours never stands above JSON
    (_parse_json if first == "[" else _parse_text)(inp, sink)


def recognise(name: str, head: str) -> bool:
    stripped = head.lstrip()
    if stripped.startswith("["):
        return '"os_thread_id"' in head and '"frames"' in head
    lines = body(head, 3)
    return bool(lines and _PROCESS.match(lines[0]) and any(line.startswith("Python v") for line in lines[1:]))


PARSER = Parser("py-spy", ("pyspy-json", "pyspy-text"), recognise, parse)
