"""Parsers: raw evidence to observations. One format, one file, one line in PARSERS."""

from __future__ import annotations

from forensics.analysis.parse import (
    clock,
    cores,
    health,
    kernel,
    log,
    nvml,
    objects,
    patches,
    procfiles,
    prometheus,
    pyspy,
    pystack,
    rings,
    table,
    top,
)
from forensics.analysis.parse._base import Input, Parser, Sink

# Ranked: what is recognised by an unmistakable head first, plain log text last.
PARSERS: tuple[Parser, ...] = (
    table.PARSER,
    pyspy.PARSER,
    pystack.PARSER,
    cores.PARSER,
    rings.PARSER,
    objects.PARSER,
    procfiles.PARSER,
    clock.PARSER,
    nvml.PARSER,
    patches.PARSER,
    health.PARSER,
    prometheus.PARSER,
    top.TOP,
    top.PS,
    procfiles.MEMINFO,
    kernel.PARSER,
    log.PARSER,
)


def find(kind: str, name: str, head: str) -> Parser | None:
    """The parser for a file: by the kind its bundle declares, else by content and name."""
    for parser in PARSERS:
        if kind and kind in parser.kinds:
            return parser
    if "\0" in head[:512] and "pid=" not in head:  # binary: no parser of text may guess at it
        return None
    return next((p for p in PARSERS if p.recognise(name, head)), None)


__all__ = ["PARSERS", "Input", "Parser", "Sink", "find"]
