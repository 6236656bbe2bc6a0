"""Reading a Python traceback out of a log, where every line may carry a prefix and other processes write in between."""

from __future__ import annotations

import re
from dataclasses import dataclass

TRACEBACK_BYTES = 128 * 1024
"""How far below its first line a traceback is followed."""

BARE_LINES = 6
"""How far below its announcement an exception without a traceback is looked for."""
_PREFIX = re.compile(r"^.*?\((?P<proc>[A-Za-z_][\w\-]*(?: \S+)?) pid=(?P<pid>\d+)[^)]*\)(?: \w+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\])? ?")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<message>.*))?$")
_MARKERS = re.compile(r"^\s*[\^~]+\s*$")
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_OURS = ("Error", "Exception", "Full", "Empty", "Interrupt", "Exit", "Warning", "Timeout", "Iteration", "Cancelled", "Death", "Expired")


@dataclass(frozen=True)
class Traceback:
    """The exception that was raised first in a chain, and where."""

    exc_type: str
    exc_message: str
    at: str
    """Innermost frame outside the standard library: "function (file:line)"."""
    code: str
    """Its source line."""
    chain: tuple[str, ...] = ()
    """Types of the whole chain, first raised first."""


def _bodies(text: str, pid: int | None) -> list[str]:
    """Lines of one process with their prefix removed. Without a pid: the lines as they stand."""
    out: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip("\r")
        m = _PREFIX.match(line[:400])
        if m:
            if pid is not None and int(m["pid"]) != pid:
                continue
            line = line[m.end() :]
        elif pid is not None and out and not line[:1].isspace() and not _FRAME.match(line):
            # an unprefixed line between prefixed ones belongs to somebody else
            continue
        out.append(line)
    return out


def read_traceback(text: str, pid: int | None) -> Traceback | None:
    """The first traceback at or below the start of `text`; None when there is none or it is cut before its exception."""
    lines = _bodies(text, pid)
    begin = next((i for i, line in enumerate(lines[:60]) if "Traceback (most recent call last)" in line), None)
    if begin is None:
        return _bare_exception(lines[1:BARE_LINES])
    chain: list[str] = []
    first: Traceback | None = None
    frames: list[tuple[str, str, str, str]] = []
    i = begin + 1
    while i < len(lines):
        line = lines[i]
        if m := _FRAME.match(line):
            below = lines[i + 1] if i + 1 < len(lines) else ""
            code = below.strip() if below[:1].isspace() and not _FRAME.match(below) else ""
            frames.append((m[1], m[2], m[3], code))
            i += 2 if code else 1
            continue
        if line.strip() and not line[:1].isspace() and not _MARKERS.match(line):
            if line.startswith("Traceback (most recent call last)"):
                if first and not (i >= 2 and any(c in "".join(lines[max(0, i - 3) : i]) for c in _CHAINED)):
                    break
                frames = []
            elif not line.startswith(_CHAINED):
                m = _EXCEPTION.match(line)
                if not m or not (m["type"].rsplit(".", 1)[-1].endswith(_OURS) or "." in m["type"]):
                    if first:
                        break
                    i += 1
                    continue
                chain.append(m["type"])
                if first is None:
                    where = _innermost(frames)
                    first = Traceback(m["type"], (m["message"] or "").strip(), where[0], where[1])
        i += 1
    if first is None:
        return None
    return Traceback(first.exc_type, first.exc_message, first.at, first.code, tuple(chain))


def _bare_exception(lines: list[str]) -> Traceback | None:
    """An exception without its frames, as when somebody shortened the log: the first line that is one."""
    for line in lines:
        m = _EXCEPTION.match(line.strip())
        if m and m["type"].rsplit(".", 1)[-1].endswith(_OURS):
            return Traceback(m["type"], (m["message"] or "").strip(), "", "", (m["type"],))
    return None


def _innermost(frames: list[tuple[str, str, str, str]]) -> tuple[str, str]:
    """Innermost frame that is not the standard library's: there the mistake was made or met."""
    for file, line, function, code in reversed(frames):
        if not re.search(r"/python3\.\d+/(?!site-packages|dist-packages)[^/]+(?:/(?!site-packages|dist-packages)[^/]+)*$", file):
            return f"{function} ({file.rsplit('/', 1)[-1]}:{line})", code
    if frames:
        file, line, function, code = frames[-1]
        return f"{function} ({file.rsplit('/', 1)[-1]}:{line})", code
    return "", ""
