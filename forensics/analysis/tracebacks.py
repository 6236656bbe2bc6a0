"""Reading a Python traceback out of a log, where every line may carry prefixes and other processes write in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forensics.analysis.logs import Hint, peel

TRACEBACK_BYTES = 128 * 1024
"""How far below its first line a traceback is followed."""
BEGIN_LINES = 60
"""How far below its announcement a traceback may begin."""
NEAR_LINES = 2
"""…where it has no prefix and its announcement has one."""
BARE_LINES = 6
"""How far below its announcement an exception without a traceback is looked for."""
AFTER_LINES = 60
"""How far below an exception the next of its chain may begin: its message and its notes stand between."""
FOREIGN_LINES = 400
"""So many lines of others in a row, and the traceback was cut."""
LINE_CHARS = 4096
NOTES, NOTE_CHARS = 8, 300

_FRAME = re.compile(r'\s*File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200}(?:\([\w.]{1,200}\))?)(?::\s?(?P<message>.*))?$")
_MARKERS = re.compile(r"\s*[\^~]+\s*$")
_GROUP_EDGE = re.compile(r" *\+-[-+]*(?: \d+ -+)?$| *\+-+ \.\.\. -+$")
_GROUP_BAR = re.compile(r" *(?:\| ?|\+ (?=Exception Group Traceback))")
_STANDARD = re.compile(r"/python3\.\d+/(?!site-packages|dist-packages)[^/]+(?:/(?!site-packages|dist-packages)[^/]+)*$|^<frozen ")
_BEGIN = "Traceback (most recent call last)"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_OURS = (
    "Error",
    "Exception",
    "Full",
    "Empty",
    "Interrupt",
    "Exit",
    "Warning",
    "Timeout",
    "Iteration",
    "Cancelled",
    "Death",
    "Expired",
    "Group",
)


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
    """Types of the whole chain, first raised first; of a group, its members before the group."""
    notes: tuple[str, ...] = ()
    """Further lines of the first exception's message, and what was added to it as notes."""
    count: int = 1
    """How many times it stands there in a row."""
    cut: bool = False
    """The text ended before the chain did."""


class _Line(NamedTuple):
    text: str
    writer: tuple[object, ...]
    """Who wrote it, as its innermost prefix says: lines of one record of one process have the same."""
    around: tuple[object, ...]
    """The wrappers alone."""
    pid: int | None
    bare: bool
    """No engine's prefix stands before it."""


def read_traceback(text: str, pid: int | None) -> Traceback | None:
    """The first traceback at or below the start of `text`; None when there is none or it is cut before its exception.

    `pid` is that of the line which announced it, where it has one: lines of other processes are left out.
    """
    lines = _lines(text)
    above: list[_Line] = []
    head: _Line | None = None
    far = BARE_LINES if pid is None and _BEGIN not in text else BEGIN_LINES
    for line in lines:
        if _BEGIN in line.text and (pid is None or line.pid == pid or (line.pid is None and len(above) <= NEAR_LINES)):
            head = line
            break
        above.append(line)
        if len(above) >= far:
            break
    if head is None:
        return _bare_exception([line.text for line in above[1:] if pid is None or line.pid == pid][: BARE_LINES - 1])
    body = _Body()
    for line in _of_one_writer(lines, head):
        if body.done(line):
            break
    else:
        body.cut = not body.complete
    return body.result()


def _lines(text: str) -> Iterator[_Line]:
    """Lines taken apart, as they are asked for; a record that holds several (JSON) is several."""
    hint = Hint()
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        out = peel(text[position : min(end, position + LINE_CHARS)], hint)
        around = (tuple(w for w in out.wrappers if w not in ("colour", "unknown", "frame")), out.host, out.stream, out.task)
        writer = (out.format, out.process, out.pid, out.rank, out.at, *around)
        for part in out.message.split("\n"):
            yield _Line(part.rstrip("\r"), writer, around, out.pid, not out.format)
        position = end + 1


def _of_one_writer(lines: Iterator[_Line], head: _Line) -> Iterator[_Line]:
    """The lines that belong to the traceback that begins with `head`.

    Some loggers put their prefix before every line, others before the first one only: the first frame tells which.
    """
    writer: tuple[object, ...] | None = None
    foreign = 0
    for line in lines:
        if (
            writer is None
            and _FRAME.match(_unbarred(line.text))
            and (line.writer == head.writer or (line.bare and line.around == head.around))
        ):
            writer = line.writer
        if line.writer == writer or (writer is None and line.writer == head.writer):
            foreign = 0
            yield line
        else:
            foreign += 1
            if foreign > FOREIGN_LINES:
                return


@dataclass
class _Body:
    """What was read so far below a "Traceback" line."""

    first: Traceback | None = None
    chain: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    frames: list[tuple[str, str, str, str]] = field(default_factory=list)
    outer: bool = False
    """The exception read last stands for others that follow: a group, or an error that Ray carried over."""
    reading: bool = True
    """Inside the frames of a traceback; else behind its exception."""
    chained: bool = False
    after: int = 0
    count: int = 1
    again: bool = False
    """The same traceback may stand there once more."""
    cut: bool = False

    @property
    def complete(self) -> bool:
        return self.first is not None and not self.reading

    def done(self, line: _Line) -> bool:
        """Take one more line; True where the traceback has ended before it."""
        if _GROUP_EDGE.match(line.text):
            self.frames, self.reading = [], True
            return False
        text = _unbarred(line.text)
        if m := _FRAME.match(text):
            if not self.reading and not self.outer:
                return False  # the note of an exception that was raised elsewhere
            self.reading = True
            self.frames.append((m[1], m[2], m[3] or "", ""))
            return False
        if _BEGIN in text:
            if self.first is not None and not self.reading and not self.chained and not self.outer:
                # once more by itself: the same one is counted, another one is not ours
                self.again = True
            self.frames, self.reading, self.chained, self.after = [], True, False, 0
            return False
        if not text.strip() or _MARKERS.match(text):
            return False
        if text[:1].isspace():
            if self.reading and self.frames and not self.frames[-1][3]:
                self.frames[-1] = (*self.frames[-1][:3], text.strip())
            return False
        return self._exception(text, line.bare) if self.reading else self._behind(text)

    def _exception(self, text: str, bare: bool) -> bool:
        m = _EXCEPTION.match(text)
        # where no prefix tells the writers apart, only what is called like an exception is one
        if m is None or not (_is_name(m["type"]) or (not bare and self.frames and m["message"] is not None)):
            return False  # somebody else's line, without a prefix
        where, code = _innermost(self.frames)
        found = Traceback(m["type"], (m["message"] or "").strip(), where, code)
        self.reading, self.after, self.frames = False, 0, []
        if self.again:
            self.again = False
            if self.first is None or (found.exc_type, found.at) != (self.first.exc_type, self.first.at):
                return True
            self.count += 1
            return False
        if self.first is None or self.outer:
            self.first, self.notes = found, []
            self.outer = m["type"].endswith("Group") or "RayTaskError" in m["type"]
        if self.outer:
            self.chain.append(m["type"])
        else:
            # what a group or a carrier stands for came before it
            self.chain.insert(_before_outer(self.chain), m["type"])
        return False

    def _behind(self, text: str) -> bool:
        self.after += 1
        if text.startswith(_CHAINED):
            self.chained, self.after = True, 0
        elif (m := _EXCEPTION.match(text)) and m["message"] is not None and m["type"].endswith(_OURS):
            self.chain.append(m["type"])  # of a log that somebody shortened
        elif len(self.notes) < NOTES and len(self.chain) == 1:
            self.notes.append(text.strip()[:NOTE_CHARS])
        return self.after > AFTER_LINES

    def result(self) -> Traceback | None:
        if self.first is None:
            return None
        return replace(self.first, chain=tuple(self.chain), notes=tuple(self.notes), count=self.count, cut=self.cut)


def _before_outer(chain: list[str]) -> int:
    """Where a member of a group goes: before the group at the end of the chain."""
    i = len(chain)
    while i and (chain[i - 1].endswith("Group") or "RayTaskError" in chain[i - 1]):
        i -= 1
    return i


def _is_name(type_: str) -> bool:
    last = type_.partition("(")[0].rsplit(".", 1)[-1]
    return last.endswith(_OURS) or "." in type_.partition("(")[0].strip(".")


def _unbarred(text: str) -> str:
    """A line of an exception group without the bar in front of it."""
    m = _GROUP_BAR.match(text)
    return text[m.end() :] if m else text


def _bare_exception(lines: list[str]) -> Traceback | None:
    """An exception without its frames, as when somebody shortened the log: the first line that is one."""
    for line in lines:
        m = _EXCEPTION.match(line.strip())
        if m and m["type"].partition("(")[0].rsplit(".", 1)[-1].endswith(_OURS):
            return Traceback(m["type"], (m["message"] or "").strip(), "", "", (m["type"],))
    return None


def _innermost(frames: list[tuple[str, str, str, str]]) -> tuple[str, str]:
    """Innermost frame that is not the standard library's: there the mistake was made or met."""
    if not frames:
        return "", ""
    file, line, function, code = next((f for f in reversed(frames) if not _STANDARD.search(f[0])), frames[-1])
    return f"{function} ({file.rsplit('/', 1)[-1]}:{line})", code
