"""Ports of the network: ibstat, `rdma link`, ibv_devinfo, `ip link`, perfquery, hw_counters and the counters that people print of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.model import LinkCounter, LinkState

_COUNTER = re.compile(
    # a device has a number in its name, or the word "port" stands before that of the port
    r"^(?=[A-Za-z.@-]{1,40}\d|[\w.@-]{1,40}[ /:]+ports?\b)([A-Za-z][\w.@-]{1,40})(?:/ports/|[ /:]+(?:port[ _]?)?)(\d{1,3})"
    r"[ /:]+(?:(?:hw_)?counters/)?([A-Za-z][A-Za-z0-9_]{2,60})[ =:]+(\d{1,20})\s*$"
)
_PATH = re.compile(r"^\S*/infiniband/([\w.-]{1,40})/ports/(\d{1,3})/(?:hw_)?counters/(\w{2,60})[ :=]+(\d{1,20})\s*$")
_RDMA = re.compile(
    r"^(?:\d+: )?link ([\w.-]{1,40})/(\d{1,3}) (?:.{0,200} )?state (\S{2,20})(?: physical_state (\S{2,20}))?(?: netdev (\S+))?"
)
_CA = re.compile(r"^CA '([^']{1,60})'")
_PORT = re.compile(r"^\s+Port (\d{1,3}):\s*$")
_IBSTAT = re.compile(r"^\s+(State|Physical state|Rate): *(\S.*)$")
_HCA = re.compile(r"^hca_id:\s+(\S{1,60})")
_VPORT = re.compile(r"^\s+port:\s+(\d{1,3})\s*$")
_VSTATE = re.compile(r"^\s+state:\s+(PORT_\w+) \(\d+\)")
_VRATE = re.compile(r"^\s+active_(?:width|speed):\s+(\S.*)$")
_PERF = re.compile(r"^# Port counters: Lid (\d{1,6}) port (\d{1,3})")
_PERF_ROW = re.compile(r"^([A-Z][A-Za-z0-9]{2,40}):\.*(\d{1,20})\s*$")
_RDMA_STAT = re.compile(r"^(?:\d+: )?link ([\w.-]{1,40})/(\d{1,3}) (\w+ \d+(?: \w+ \d+)*)\s*$")
_PAIR = re.compile(r"(\w{2,60}) (\d{1,20})")
_ETHTOOL = re.compile(r"^NIC statistics:|^Settings for (\S+):")
_IP = re.compile(r"^\d{1,5}: ([\w.@-]{1,40}): <([A-Z_,-]{0,200})> .*\bstate ([A-Z]{2,12})\b")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for found in _sheet(inp, sheet):
            sink.add(found)


def _sheet(inp: Input, sheet: Sheet) -> Iterator[LinkState | LinkCounter]:
    node, at, pid = sheet.inp.node, sheet.inp.at, None
    device = port = ""
    state: LinkState | None = None
    lid = ""
    for number, line in sheet.lines():
        ref = inp.ref(f"line {number}", line)
        if m := _CA.match(line) or _HCA.match(line):
            if state:
                yield state
            device, port, state = plain(m[1]), "", None
        elif device and (m := _PORT.match(line) or _VPORT.match(line)):
            if state:
                yield state
            port, state = m[1], None
        elif device and ((m := _IBSTAT.match(line)) or (m := _VSTATE.match(line)) or (m := _VRATE.match(line))):
            key, value = (m[1], m[2]) if m.re is _IBSTAT else ("State", m[1].removeprefix("PORT_")) if m.re is _VSTATE else ("Rate", m[1])
            value = plain(value.strip(), 80)
            old_state, old_rate = (state.state, state.rate) if state else ("", "")
            if key == "State":
                old_state = value.upper()
            elif key == "Rate":
                old_rate = f"{old_rate} {value}".strip()
            elif value != "LinkUp":  # what the cable says where it says no
                old_state = f"{old_state} ({value})".strip()
            state = LinkState(
                node=node, at=at, ref=state.ref if state else ref, pid=pid, device=device, port=port, state=old_state, rate=old_rate
            )
        elif m := _RDMA.match(line):
            words = m[3] if not m[4] or m[4] == "LINK_UP" else f"{m[3]} ({m[4]})"
            yield LinkState(node=node, at=at, ref=ref, device=plain(m[1]), port=m[2], state=plain(words))
        elif m := _IP.match(line):
            down = "NO-CARRIER" in m[2].split(",") and "DOWN" not in m[3]
            yield LinkState(node=node, at=at, ref=ref, device=plain(m[1].partition("@")[0]), state="NO-CARRIER" if down else m[3])
        elif m := _PERF.match(line):
            lid, port = f"lid {m[1]}", m[2]
        elif lid and (m := _PERF_ROW.match(line)):
            yield LinkCounter(node=node, at=at, ref=ref, device=lid, port=port, counter=m[1], value=int(m[2]))
        elif m := _PATH.match(line) or _COUNTER.match(line):
            yield LinkCounter(node=node, at=at, ref=ref, device=plain(m[1]), port=m[2], counter=m[3], value=int(m[4]))
        elif m := _RDMA_STAT.match(line):
            for pair in _PAIR.finditer(m[3]):
                yield LinkCounter(node=node, at=at, ref=ref, device=plain(m[1]), port=m[2], counter=pair[1], value=int(pair[2]))
    if state:
        yield state


def recognise(name: str, head: str) -> bool:
    if any(_PERF.match(line) for line in head.split("\n")[:20]):
        return True
    lines = body(head, 40)
    if any(_CA.match(line) or _HCA.match(line) or _RDMA.match(line) or _RDMA_STAT.match(line) or _IP.match(line) for line in lines[:3]):
        return True
    if len(head) >= 8000:
        lines = lines[:-1]
    return bool(lines) and all(_PATH.match(line) or _COUNTER.match(line) for line in lines)


PARSER = Parser("links", ("links",), recognise, parse)
