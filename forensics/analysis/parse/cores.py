"""The list of core files that lie on a node, as the cores collector writes it (kind cores)."""

from __future__ import annotations

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.model import CoreFile, TimeRange


class _Core(msgspec.Struct):
    path: str
    size_bytes: int = 0
    mtime_ns: int = 0
    executable: str = ""
    pid: int | None = None
    signal: int | None = None


class _List(msgspec.Struct):
    core_pattern: str = ""
    cores: list[_Core] = []


def parse(inp: Input, sink: Sink) -> None:
    for core in msgspec.json.decode(bytes(inp.data), type=_List).cores:
        path = plain(core.path, 400)
        said = f"{core.size_bytes} bytes, of {plain(core.executable) or 'an unknown program'}" + (
            f", signal {core.signal}" if core.signal else ""
        )
        sink.add(
            CoreFile(
                node=inp.node,
                at=TimeRange(earliest_ns=core.mtime_ns, latest_ns=core.mtime_ns, basis="file time") if core.mtime_ns else inp.at,
                ref=inp.ref(path, said),
                pid=core.pid,
                path=path,
                size_bytes=core.size_bytes,
                written_ns=core.mtime_ns or None,
                executable=plain(core.executable),
                signal=core.signal,
            )
        )


PARSER = Parser("cores", ("cores",), lambda name, head: head.lstrip().startswith('{"core_pattern"'), parse)
