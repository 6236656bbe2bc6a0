"""Stacks that an engine takes of its own processes and writes into its log: SGLang's watchdog prints what py-spy told it."""

from __future__ import annotations

import re
from dataclasses import replace

from forensics.analysis.buffers import Buffer
from forensics.analysis.parse import pyspy
from forensics.analysis.parse._base import Input, Sink
from forensics.model import TimeRange

DUMP_BYTES = 512 * 1024
"""No process has more threads than fit in here, as far as anybody has seen."""
LEAD_CHARS = 200
_HEAD = re.compile(r"Process \d{1,9}: ")
_PART = re.compile(r"(?:Process \d{1,9}: |Python v|Thread (?:0x[0-9A-Fa-f]+|\d+) \(| {4}\S).*|\s*")


def read_dump(data: Buffer, start: int, at: TimeRange | None, inp: Input, sink: Sink) -> None:
    """Read the dump below the line that begins at `start`, to the first line that is none of it. What wraps each line alike is cut."""
    lines = bytes(data[start : start + DUMP_BYTES]).decode("utf-8", "replace").split("\n")[1:]
    head = _HEAD.search(lines[0][: LEAD_CHARS + 32]) if lines else None
    if head is None or head.start() > LEAD_CHARS:
        return
    found: list[str] = []
    for line in lines:
        text = line[head.start() :].rstrip("\r")
        if not _PART.fullmatch(text) or (found and _HEAD.match(text)):
            break
        found.append(text)
    pyspy.PARSER.parse(replace(inp, data="\n".join(found).encode(), kind="", pid=None, at=at, sample=1, parts=()), sink)
