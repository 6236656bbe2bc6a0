"""Lines that say which rank runs where: "rank 5 local_rank 5 pid 91 pci 0000:b3:00.0", in any order of these words."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.analysis.parse._units import pci
from forensics.model import RankPlace

_WORD = re.compile(
    r"\b(rank|local_rank|pid|pci|bus|bus_id|gpu|cuda_device|device|host|node|hostname)[ =:]+([A-Za-z0-9][\w.:-]{0,99})", re.I
)


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            words = _words(line)
            if words is None:
                continue
            bus = pci(words.get("pci", words.get("bus", words.get("bus_id", ""))))
            gpu = words.get("gpu", words.get("cuda_device", words.get("device", "")))
            sink.add(
                RankPlace(
                    node=plain(words.get("host", words.get("node", words.get("hostname", sheet.inp.node)))),
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", line),
                    pid=_int(words.get("pid", "")) if "pid" in words else sheet.inp.pid,
                    rank=int(words["rank"]),
                    local_rank=_int(words.get("local_rank", "")),
                    pci=bus,
                    gpu=_int(gpu),
                )
            )


def _words(line: str) -> dict[str, str] | None:
    """The words of such a line; None where it is none: a line of a log says more than this."""
    found = [(m[1].lower(), m[2]) for m in _WORD.finditer(line[:600])]
    words = dict(found)
    rest = _WORD.sub("", line[:600])
    if len(found) < 2 or len(words) != len(found) or _int(words.get("rank", "")) is None or re.search(r"\w{3}", rest) or len(line) > 600:
        return None
    return words


def _int(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def recognise(name: str, head: str) -> bool:
    lines = body(head, 60)
    if len(head) >= 8000:
        lines = lines[:-1]
    return bool(lines) and all(_words(line) is not None for line in lines)


PARSER = Parser("rank map", ("rank-map",), recognise, parse)
