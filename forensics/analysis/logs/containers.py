"""Files in which every line is a record of the container runtime or the journal: rendered as text, one line for each line.

Line numbers stay true. Who wrote when, on which host and stream is kept, in a form that `peel` takes apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec

from forensics.analysis.buffers import Buffer
from forensics.analysis.logs._format import Peeled
from forensics.analysis.logs.formats import docker_json, journald_json

JOINED_BYTES = 1024 * 1024
"""Pieces of one long line are put together up to here."""
HEAD_LINES = 4
"""So many lines tell what a file is made of."""
_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT\S{8,30} (?:stdout|stderr)) ([FP])(?::\w+)* ?")
_DIGITS = re.compile(r"\d{13,17}")


def unwrap(data: Buffer) -> Buffer:
    """A docker json-file as CRI lines, the journal's JSON as syslog lines, CRI with its pieces joined; anything else as it is."""
    head = bytes(data[:65536]).lstrip()
    form = container_form(head)
    return b"\n".join(unwrap_lines(bytes(data[:]).split(b"\n"), form)) if form else data


def container_form(head: bytes) -> str:
    """ "docker" | "journal" | "cri" | "": what the head of a file is made of."""
    # the first line of a rotated file may be the end of a record, or the runtime's own words
    for line in [line for line in head.split(b"\n", HEAD_LINES) if line.strip()][:HEAD_LINES]:
        if form := _form_of(line):
            return form
    return ""


def _form_of(line: bytes) -> str:
    if not line.startswith(b"{"):
        return "cri" if _CRI.match(line) else ""
    record = _record(line)
    keys = record.keys() if record else set(re.findall(r'"(\w+)":', line.decode("utf-8", "replace")))
    if "log" in keys and keys & {"stream", "time", "kubernetes"}:
        return "docker"
    if "MESSAGE" in keys and keys & {"__REALTIME_TIMESTAMP", "_HOSTNAME", "_SOURCE_REALTIME_TIMESTAMP"}:
        return "journal"
    return ""


def unwrap_lines(lines: list[bytes] | Iterator[bytes], form: str) -> Iterator[bytes]:
    """The same, line by line, for files that are not held in memory. What is no record stays as it is."""
    render: Callable[[bytes], tuple[bytes, bytes, bool]] = {"docker": _docker, "journal": _journal, "cri": _cri}[form]
    kept: dict[bytes, list[bytes]] = {}
    """Pieces that wait for their end, of each stream: the prefix of the last one, then their texts."""
    for line in lines:
        prefix, text, whole = render(line)
        stream = prefix[-9:]
        held = kept.pop(stream, [])
        if whole:
            yield b"".join((prefix, *held[1:], text))
        elif sum(map(len, held)) < JOINED_BYTES:
            kept[stream] = [prefix, *held[1:], text]
            yield b""
        else:
            kept[stream] = [prefix, text]
            yield b"".join(held)
    # a line cut by the end of the file
    yield from (b"".join(held) for held in kept.values())


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # cut by rotation, or the runtime's own words
        return None
    return found if isinstance(found, dict) else None


def _docker(line: bytes) -> tuple[bytes, bytes, bool]:
    record = _record(line) if line.startswith(b"{") else None
    out = Peeled()
    text = docker_json.FORMAT.decode(record, out) if record and docker_json.FORMAT.decode else None
    if text is None:
        return b"", line, True
    time = out.wrapper_time.text if out.wrapper_time else ""
    prefix = f"{time} {out.stream or 'stdout'} F " if time else ""
    return _bytes(prefix), _bytes(_flat(text)), not out.partial


def _journal(line: bytes) -> tuple[bytes, bytes, bool]:
    record = _record(line) if line.startswith(b"{") else None
    out = Peeled()
    text = journald_json.FORMAT.decode(record, out) if record and journald_json.FORMAT.decode else None
    if text is None:
        return b"", line, True
    name = "kernel" if out.engine == "kernel" else re.sub(r"[^\w./@\-]", "_", out.process or "unknown")
    pid = f"[{out.pid}]" if out.pid is not None and name != "kernel" else "" if name == "kernel" else "[0]"
    prefix = f"{_moment(out)} {out.host or 'localhost'} {name}{pid}: "
    return _bytes(prefix), _bytes(_flat(text)), True


def _cri(line: bytes) -> tuple[bytes, bytes, bool]:
    m = _CRI.match(line)
    if m is None:
        return b"", line, True
    return m[1] + b" F ", line[m.end() :], m[2] == b"F"


def _moment(out: Peeled) -> str:
    stamp = out.wrapper_time.text if out.wrapper_time else ""
    if not _DIGITS.fullmatch(stamp):
        return "1970-01-01T00:00:00Z"
    seconds, micros = divmod(int(stamp.ljust(16, "0")[:16]), 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") + f".{micros:06d}Z"
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00Z"


def _flat(text: str) -> str:
    return text.rstrip("\r\n").replace("\n", " ")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
