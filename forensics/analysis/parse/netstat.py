"""`ss -tnp`, `ss -lntp` and `netstat -tnp`: what waits in sockets, and who is connected.

In a listening socket Recv-Q counts connections that nobody has accepted yet (Send-Q of `ss` the most that may wait); in an established
one Recv-Q and Send-Q are bytes that were not read, or not acknowledged.
"""

from __future__ import annotations

import re
from collections import Counter

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.model import PROBE_SOURCE, EvidenceRef, QueueDepth

_SS = re.compile(r"^(?:Netid\s+)?State\s+Recv-Q\s+Send-Q\s+Local Address:Port\s+Peer Address:Port")
_NETSTAT = re.compile(r"^Proto\s+Recv-Q\s+Send-Q\s+Local Address\s+Foreign Address\s+State")
_ROW = re.compile(
    r"^(?:(?:tcp|udp|u_str|u_dgr|v_str|mptcp)\S*\s+)?([A-Z][A-Z0-9-]{3,11})\s+(\d{1,12})\s+(\d{1,12})\s+(\S+)[:.](\d{1,5}|\*)\s+(\S+)[:.](\d{1,5}|\*)(.*)$"
)
_NET_ROW = re.compile(r"^tcp6?\s+(\d{1,12})\s+(\d{1,12})\s+(\S+):(\d{1,5}|\*)\s+(\S+):(\d{1,5}|\*)\s+([A-Z_0-9]{3,12})(.*)$")
_PID = re.compile(r"pid=(\d{1,9})|^\s*(\d{1,9})/")
_LISTEN = ("LISTEN",)
_OPEN = ("ESTAB", "ESTABLISHED")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        _sheet(inp, sheet, sink)


def _sheet(inp: Input, sheet: Sheet, sink: Sink) -> None:
    rows: list[tuple[int, str, str, int, int, str, str, int | None, str]] = []
    seen_head = False
    for number, line in sheet.lines():
        if _SS.match(line) or _NETSTAT.match(line):
            seen_head = True
            continue
        if not seen_head:
            continue
        if m := _ROW.match(line):
            state, rx, tx, local, remote, peer, rest = m[1], int(m[2]), int(m[3]), m[5], m[7], m[6], m[8]
        elif m := _NET_ROW.match(line):
            state, rx, tx, local, remote, peer, rest = m[7], int(m[1]), int(m[2]), m[4], m[6], m[5], m[8]
        else:
            continue
        if peer.strip("[]") == PROBE_SOURCE:
            continue
        owner = _PID.search(rest)
        rows.append((number, line, state, rx, tx, local, remote, int(owner[1] or owner[2]) if owner else None, peer))
    listening = {row[5] for row in rows if row[2] in _LISTEN}
    clients = Counter(row[5] for row in rows if row[2] in _OPEN and row[5] in listening)
    complete = any(row[2] in _OPEN for row in rows)  # `ss -l` shows no connections: none seen is not none there
    for number, line, state, rx, tx, local, remote, pid, _ in rows:
        ref = inp.ref(f"line {number}", line)
        if state in _LISTEN:
            capacity = tx if tx and "Proto" not in line and not line.startswith("tcp") else None
            _add(sheet, sink, ref, pid, f"port {local}", "accept-backlog", rx, "items", capacity)
            if complete:
                _add(sheet, sink, ref, pid, f"port {local}", "clients", clients[local], "items", None)
        elif state in _OPEN:
            for kind, depth in (("socket-recv", rx), ("socket-send", tx)):
                if depth:
                    _add(sheet, sink, ref, pid, f"{local}->{remote}", kind, depth, "bytes", None)


def _add(
    sheet: Sheet, sink: Sink, ref: EvidenceRef, pid: int | None, queue: str, kind: str, depth: int, unit: str, capacity: int | None
) -> None:
    sink.add(
        QueueDepth(
            node=sheet.inp.node,
            at=sheet.inp.at,
            ref=ref,
            pid=pid,
            queue=plain(queue),
            kind=kind,
            depth=depth,
            unit=unit,
            capacity=capacity,
            sample=sheet.inp.sample,
        )
    )


PARSER = Parser("ss", ("ss",), lambda name, head: any(_SS.match(line) or _NETSTAT.match(line) for line in body(head)), parse)
