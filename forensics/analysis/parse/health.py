"""HTTP probes: our own (kind http) and the one-line form `http=200 t=0.005` of a curl write-out."""

from __future__ import annotations

import re

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import ConfigValue, HealthSample, QueueDepth

_CURL = re.compile(r"\bhttp=(\d{3})\b(?:\s+t=([\d.]+))?")


class _Probe(msgspec.Struct):
    url: str = ""
    status: int | None = None
    latency_s: float | None = None
    error: str = ""
    body: str = ""


def parse(inp: Input, sink: Sink) -> None:
    text = inp.text(1024 * 1024)
    if inp.kind != "http":
        if m := _CURL.search(text):
            status = int(m[1])
            sink.add(
                HealthSample(
                    node=inp.node,
                    at=inp.at,
                    ref=inp.ref("line 1", text.strip()),
                    url="health",
                    # curl writes 000 when nothing answered
                    status=status or None,
                    latency_s=float(m[2]) if m[2] else None,
                )
            )
        return
    probe = msgspec.json.decode(text, type=_Probe)
    path = probe.url.split("//", 1)[-1].partition("/")[2]
    ref = inp.ref(probe.url, f"status {probe.status} after {probe.latency_s or 0:.3f} s {probe.error}")
    if path.startswith("version") and probe.status == 200:
        if m := re.search(r'"version"\s*:\s*"([^"]+)"', probe.body):
            sink.add(ConfigValue(node=inp.node, at=inp.at, ref=ref, pid=inp.pid, name="version", value=m[1], via="http"))
    elif path.startswith("load") and probe.status == 200:
        if m := re.search(r'"server_load"\s*:\s*(\d+)', probe.body):
            sink.add(QueueDepth(node=inp.node, at=inp.at, ref=ref, pid=inp.pid, queue=probe.url, kind="server-load", depth=int(m[1])))
    else:
        sink.add(
            HealthSample(
                node=inp.node,
                at=inp.at,
                ref=ref,
                pid=inp.pid,
                url=probe.url,
                status=probe.status,
                latency_s=probe.latency_s,
                error=probe.error,
            )
        )


PARSER = Parser("health", ("http",), lambda name, head: len(head) < 400 and bool(_CURL.search(head)), parse)
