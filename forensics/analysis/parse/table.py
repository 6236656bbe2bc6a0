"""The process table that capture photographed first (kind process-table)."""

from __future__ import annotations

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import ProcessInfo, ProcessState


def parse(inp: Input, sink: Sink) -> None:
    for info in msgspec.json.decode(bytes(inp.data), type=list[ProcessInfo]):
        info = msgspec.structs.replace(info, node=inp.node)
        sink.process(info)
        sink.add(
            ProcessState(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"pid {info.pid}", f"{info.state} {info.title}"),
                pid=info.pid,
                ppid=info.ppid,
                state=info.state,
                title=info.title,
            )
        )


PARSER = Parser("process-table", ("process-table",), lambda name, head: False, parse)
