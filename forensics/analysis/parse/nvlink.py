"""`nvidia-smi -L` and `nvidia-smi nvlink -s | -e`: which GPUs there are, and the state and the error counters of their links."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.model import GpuSample, LinkCounter, LinkState

_GPU = re.compile(r"^GPU (\d{1,3}): (\S.{0,100}?) \(UUID: (GPU-[0-9A-Za-z-]{1,60})\)\s*$")
_LINK = re.compile(r"^\s+Link (\d{1,3}): (?:(<?inactive>?|[Ii]nactive|Disabled)|([\d.]{1,10}) (GB/s))\s*$")
_ERRORS = re.compile(r"^\s+Link (\d{1,3}): ([A-Z][\w /-]{2,60}?): (\d{1,20})\s*$")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        gpu = ""
        for number, line in sheet.lines():
            ref = inp.ref(f"line {number}", line)
            if m := _GPU.match(line):
                gpu = f"gpu{m[1]}"
                sink.add(GpuSample(node=sheet.inp.node, at=sheet.inp.at, ref=ref, index=int(m[1]), name=plain(m[2]), uuid=m[3]))
            elif gpu and (m := _LINK.match(line)):
                state, rate = ("INACTIVE", "") if m[2] else ("ACTIVE", f"{m[3]} {m[4]}")
                sink.add(LinkState(node=sheet.inp.node, at=sheet.inp.at, ref=ref, device=gpu, port=m[1], state=state, rate=rate))
            elif gpu and (m := _ERRORS.match(line)):
                counter = "nvlink_" + re.sub(r"\W+", "_", m[2].lower())
                sink.add(
                    LinkCounter(node=sheet.inp.node, at=sheet.inp.at, ref=ref, device=gpu, port=m[1], counter=counter, value=int(m[3]))
                )


PARSER = Parser("nvidia-smi links", ("nvlink",), lambda name, head: any(_GPU.match(line) for line in body(head, 2)), parse)
