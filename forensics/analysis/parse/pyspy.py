"""py-spy dump, as JSON (what we capture) and as text (what people mail)."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import LINE_CHARS, bounded, plain
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
_FRAME = re.compile(r"^ {4}(\S.*) \(([^()]*):(\d{1,9})\)$")


def _parse_json(inp: Input, sink: Sink) -> None:
    for thread in _DECODER.decode(bytes(inp.data)):
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
                pid=inp.pid or thread.pid,
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
    pid = inp.pid
    head: re.Match[str] | None = None
    frames: list[Frame] = []

    def finish() -> None:
        if head is None or pid is None:
            return
        tid = int(head[1], 0)
        sink.add(
            ThreadStack(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f'thread {tid} "{head[4] or ""}"', _quote(bounded(frames))),
                pid=pid,
                tid=tid,
                name=plain(head[4] or ""),
                active=head[2] == "active",
                gil=head[3] is not None,
                frames=bounded(frames),
                sample=inp.sample,
            )
        )

    for line in inp.text().splitlines():
        line = line[:LINE_CHARS]
        if m := _PROCESS.match(line):
            finish()
            head, frames = None, []
            pid = int(m[1])
            sink.process(ProcessInfo(pid=pid, node=inp.node, title=m[2], argv=tuple(m[2].split())))
        elif m := _THREAD.match(line):
            finish()
            head, frames = m, []
        elif m := _FRAME.match(line):
            frames.append(Frame(name=plain(m[1]), file=plain(m[2], 300), line=int(m[3])))
    finish()


def _quote(frames: tuple[Frame, ...]) -> str:
    return " < ".join(f"{f.name} ({f.file}:{f.line})" for f in frames[:4]) or "no Python frames"


def parse(inp: Input, sink: Sink) -> None:
    first = bytes(inp.data[:64]).lstrip()[:1]
    (_parse_json if first == b"[" else _parse_text)(inp, sink)


def recognise(name: str, head: str) -> bool:
    stripped = head.lstrip()
    return bool(_PROCESS.match(stripped.split("\n", 1)[0]) and "Python v" in head) or (
        stripped.startswith("[") and '"os_thread_id"' in head and '"frames"' in head
    )


PARSER = Parser("py-spy", ("pyspy-json", "pyspy-text"), recognise, parse)
