"""Logs as container runtimes store them: docker's json-file, and CRI's "TIME stdout F text". Unwrapped to the text inside."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from forensics.analysis.parse._base import Buffer

_CRI = re.compile(rb"^\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) ([FP]) ")


class _Docker(msgspec.Struct):
    log: str = ""


def unwrap(data: Buffer) -> Buffer:
    """The text inside a container log, one line for each line, so that line numbers stay true; anything else unchanged."""
    head = bytes(data[:4096]).lstrip()
    if head.startswith(b'{"log":'):
        decode = msgspec.json.Decoder(_Docker).decode
        return b"".join(_docker_line(line, decode) for line in bytes(data[:]).splitlines(keepends=True))
    if _CRI.match(head):
        return b"".join(_CRI.sub(b"", line, count=1) for line in bytes(data[:]).splitlines(keepends=True))
    return data


def _docker_line(line: bytes, decode: Callable[[bytes], _Docker]) -> bytes:
    try:
        text = decode(line).log
    except msgspec.MsgspecError:  # a line cut by rotation, or the runtime's own words
        return line
    return text.rstrip("\n").replace("\n", " ").encode("utf-8", "replace") + b"\n"
