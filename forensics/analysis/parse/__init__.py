"""Parsers: raw evidence to observations. One format, one file, one line in PARSERS."""

from __future__ import annotations

from forensics.analysis.parse import (
    boottime,
    builds,
    clock,
    cores,
    df,
    environ,
    flight,
    gdb,
    gpucsv,
    gputable,
    health,
    kernel,
    limits,
    links,
    log,
    maps,
    memory,
    netstat,
    nvlink,
    nvml,
    objects,
    patches,
    podlist,
    pods,
    procfile,
    procfiles,
    prometheus,
    pstore,
    pyspy,
    pyspytop,
    pystack,
    rankmap,
    ras,
    rings,
    shm,
    table,
    top,
    transcript,
)
from forensics.analysis.parse._base import TEXT_BYTES, Input, Parser, Sink, clean

# Ranked: what is recognised by an unmistakable head first, then what a form of many lines tells, plain log text last.
PARSERS: tuple[Parser, ...] = (
    table.PARSER,
    pyspy.PARSER,
    pystack.PARSER,
    gdb.PARSER,
    cores.PARSER,
    rings.PARSER,
    objects.PARSER,
    procfiles.PARSER,
    clock.PARSER,
    nvml.PARSER,
    patches.PARSER,
    builds.PARSER,
    builds.ENVIRONMENT,
    patches.LIVE_PARSER,
    health.PARSER,
    flight.PARSER,
    ras.PARSER,
    gputable.PARSER,
    gpucsv.PARSER,
    nvlink.PARSER,
    pyspytop.PARSER,
    top.TOP,
    top.PS,
    df.PARSER,
    netstat.PARSER,
    limits.PARSER,
    memory.PARSER,
    maps.PARSER,
    procfile.PARSER,
    boottime.PARSER,
    prometheus.PARSER,
    podlist.PARSER,
    pods.PARSER,
    links.PARSER,
    shm.PARSER,
    pstore.PARSER,
    rankmap.PARSER,
    environ.PARSER,
    kernel.PARSER,
    log.PARSER,
)


def find(kind: str, name: str, head: str) -> Parser | None:
    """The parser for a file: by the kind its bundle declares, else by content and name."""
    for parser in PARSERS:
        if kind and kind in parser.kinds:
            return parser
    head = clean(head)
    binary = "\0" in head[:512] and "pid=" not in head  # no parser of text may guess at it
    if not binary and TRANSCRIPT.recognise(name, head):
        return TRANSCRIPT
    return _single(name, head, binary)


def _single(name: str, head: str, binary: bool) -> Parser | None:
    return next((p for p in PARSERS if (p.binary or not binary) and p.recognise(name, head)), None)


TRANSCRIPT = transcript.parser(lambda kind, name, head: _single(name, clean(head), False))
"""Of files that hold what several of the others read."""

__all__ = ["PARSERS", "TEXT_BYTES", "TRANSCRIPT", "Input", "Parser", "Sink", "find"]
