"""Tables of containers: `kubectl get pods` (also -o wide, -A) and `docker ps -a`."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.model import ContainerStatus

_PODS = re.compile(r"^(NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE\b")
_POD = re.compile(
    r"^(?:\S+\s+)??([a-z0-9][\w.-]*)\s+\d{1,4}/\d{1,4}\s+([A-Z]\S*)\s+(\d{1,9})(?: \(((?:\d+[smhdy])+) ago\))?\s+((?:\d+[smhdy])+)\b"
)
_DOCKER = re.compile(r"^CONTAINER ID\s+IMAGE\s+.*\bSTATUS\b.*\bNAMES\s*$")
_CONTAINER = re.compile(r"^[0-9a-f]{12}\s.*?\s{2,}(Up|Exited|Restarting|Created|Dead|Paused)\b(?: \((\d{1,3})\))?.*?(\S+)\s*$")
_WELL = ("Running", "Up", "Created", "ContainerCreating", "Pending")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            if m := _POD.match(line):
                ended = sheet.aged(m[4] or "")
                sink.add(
                    ContainerStatus(
                        node=sheet.inp.node,
                        at=sheet.inp.at,
                        ref=inp.ref(f"line {number}", line),
                        name=plain(m[1]),
                        restarts=int(m[3]),
                        started=ended,
                        created=sheet.aged(m[5]),
                        reason="" if m[2] in _WELL else plain(m[2]),
                    )
                )
            elif m := _CONTAINER.match(line):
                sink.add(
                    ContainerStatus(
                        node=sheet.inp.node,
                        at=sheet.inp.at,
                        ref=inp.ref(f"line {number}", line),
                        name=plain(m[3]),
                        exit_code=int(m[2]) if m[2] and m[1] in ("Exited", "Restarting") else None,
                        reason="" if m[1] in _WELL else m[1],
                    )
                )


PARSER = Parser(
    "pod list", ("pod-list",), lambda name, head: any(_PODS.match(line) or _DOCKER.match(line) for line in body(head, 5)), parse
)
