"""Kernel logs: /dev/kmsg records, dmesg in its forms, `journalctl -k`."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.signatures import signatures
from forensics.analysis.times import SECOND
from forensics.model import KernelEvent, KernelSpan, TimeRange

_KMSG = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
_MONOTONIC = re.compile(r"^(?:<\d+>)?\[\s*(\d+)\.(\d{6})\] (.*)$")
_LOOKS = re.compile(r"(?m)^(?:\d+,\d+,\d+,[^;\n]*;|(?:<\d+>)?\[\s*\d+\.\d{6}\] |.{0,60}\bkernel: |-- Journal begins at )")


def parse(inp: Input, sink: Sink) -> None:
    # what names a fault exactly comes before the catch-all, which has no literal
    known = sorted((s for s in signatures() if s.engine == "kernel"), key=lambda s: not s.literal)
    first: TimeRange | None = None
    last: TimeRange | None = None
    count = 0
    for number, line in enumerate(inp.text().splitlines(), 1):
        if not line.strip() or line.startswith("-- "):
            continue
        count += 1
        message = line
        at = None
        if m := _KMSG.match(line):
            message = m[2]
            at = _since_boot(inp, int(m[1]) * 1000)
        elif m := _MONOTONIC.match(line):
            message = m[3]
            at = _since_boot(inp, int(m[1]) * SECOND + int(m[2]) * 1000)
        else:
            at = inp.calendar.parse(line, 40)
        if at:
            first, last = first or at, at
        for signature in known:
            found = signature.regex.search(message) if signature.literal in message else None
            if found and (fields := signature.read(found)) is not None:
                sink.add(
                    KernelEvent(
                        node=inp.node,
                        at=at,
                        ref=inp.ref(f"line {number}", line),
                        signature=signature.id,
                        feeds=signature.feeds,
                        role=signature.role,
                        fields=fields,
                        text=message[:400],
                    )
                )
                break
    span = inp.at
    if first and last:
        span = TimeRange(earliest_ns=first.earliest_ns, latest_ns=max(last.latest_ns, first.earliest_ns + SECOND), basis="kernel")
    sink.add(KernelSpan(node=inp.node, at=span, ref=inp.ref(f"lines 1-{count}", f"{count} kernel log lines"), lines=count))


def _since_boot(inp: Input, after_ns: int) -> TimeRange | None:
    """Date a record that counts from boot; None where nobody recorded when that was."""
    if inp.boot_ns is None:
        return None
    at = inp.boot_ns + after_ns
    return TimeRange(earliest_ns=at, latest_ns=at + SECOND, basis="kernel")


def recognise(name: str, head: str) -> bool:
    return bool(_LOOKS.search(head)) and (
        " kernel: " in head or ".kernel" in name or "dmesg" in name or "kmsg" in name or head.startswith("-- Journal")
    )


PARSER = Parser("kernel", ("kernel-log",), recognise, parse)
