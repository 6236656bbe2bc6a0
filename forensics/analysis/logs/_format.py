"""What a format of log lines is, and what one line comes apart into."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forensics.analysis.times import Stamp

LEVELS: dict[str, str] = {
    **dict.fromkeys(("T", "D", "V", "TRACE", "DEBUG", "VERBOSE", "debug", "trace"), "DEBUG"),
    **dict.fromkeys(("I", "INFO", "NOTICE", "info", "notice", "Info"), "INFO"),
    **dict.fromkeys(("W", "WARN", "WARNING", "warn", "warning", "Warning"), "WARNING"),
    **dict.fromkeys(("E", "ERROR", "ERR", "error", "err", "Error"), "ERROR"),
    **dict.fromkeys(("C", "F", "CRITICAL", "FATAL", "crit", "critical", "fatal", "panic", "dpanic", "PANIC", "Fatal"), "CRITICAL"),
}
"""The words and letters of all engines for the five levels of Python's logging."""


@dataclass(slots=True)
class Peeled:
    """One line taken apart. What it does not say is "" or None."""

    message: str = ""
    """What is left behind the last prefix."""
    lead: str = ""
    """What somebody else had written on the line before its prefix: a progress bar, half a message."""
    wrappers: tuple[str, ...] = ()
    """Names of the wrappers around it, outermost first."""
    format: str = ""
    """Name of the engine's format under them; "" where none is known."""
    wrapper_time: Stamp | None = None
    """The clock of who passed the line on: of several the outermost, unless only a later one names its zone."""
    inner_time: Stamp | None = None
    """The clock of the process that wrote it."""
    host: str = ""
    """The host or pod as the line names it."""
    process: str = ""
    """The name in the innermost prefix: "Worker_TP1"."""
    pid: int | None = None
    rank: int | None = None
    task: int | None = None
    """The launcher's number of the process it started (mpirun, srun): a rank where it starts one process for each, else a node."""
    level: str = ""
    """DEBUG | INFO | WARNING | ERROR | CRITICAL"""
    at: str = ""
    """Where in its source: "core.py:12"."""
    engine: str = ""
    """vllm | sglang | tensorrt-llm | dynamo | tgi | ray | torch | nccl | gloo | kernel, where the form alone tells."""
    stream: str = ""
    """stdout | stderr"""
    partial: bool = False
    """The container runtime cut this line: the next one goes on with it."""


DIGITS = string.digits
LETTERS = string.ascii_letters + "_"
LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d(?!\d)|UTC))?"
MONTH_TIME = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
CTIME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d (?:[A-Z]{3,4} )?\d{4}"

Taker = Callable[[Peeled, re.Match[str]], None]
Decoder = Callable[[dict[str, Any], Peeled], "str | None"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Format:
    """One form of prefix. Named groups of its pattern become fields of Peeled:

    time, host, process, pid, rank, task, level, at, stream.
    """

    name: str
    wrapper: bool
    """Somebody passed the line on, rather than wrote it: what comes behind is peeled further."""
    starts: str
    """The characters with which it may begin."""
    pattern: re.Pattern[str] = re.compile(r"(?!)")
    """Matched where the previous prefix ended. Bounded: a hostile line must cost no more than its head."""
    stamp: str = ""
    """The form of its time group, see times.FORMS."""
    engine: str = ""
    take: Taker | None = None
    """What the groups alone do not tell."""
    decode: Decoder | None = None
    """For lines that are a record as a whole (JSON): the text inside, or None when it is no such record."""
    exact: bool = False
    """No other format fits a line that fits this one: it may be tried first where the line before had it."""
    weak: bool = False
    """Much else looks like it: it counts only where another format fits behind it, or fitted behind it in this file before."""
    goes_on: bool = False
    """An engine's prefix behind which another may stand."""
    order: int = 50
    """Lower ones are tried first."""
    samples: tuple[str, ...]
    """Lines that it fits."""
    negatives: tuple[str, ...]
    """Lines that look like it and are none."""
    places: tuple[tuple[str, int], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        groups = self.pattern.groupindex
        known = ("time", "host", "process", "pid", "rank", "task", "level", "at", "stream")
        object.__setattr__(self, "places", tuple((name, groups[name]) for name in known if name in groups))

    def fill(self, out: Peeled, m: re.Match[str]) -> None:
        """Move what the pattern found into the record."""
        for name, place in self.places:
            text = m[place]
            if not text:
                continue
            if name == "time":
                stamped(self, out, text)
            elif name == "pid":
                out.pid = int(text)
            elif name == "rank":
                out.rank = int(text)
            elif name == "task":
                out.task = int(text)
            elif name == "level":
                out.level = LEVELS.get(text, out.level)
            elif name == "host":
                out.host = out.host or text
            elif name == "process":
                out.process = text
            elif name == "at":
                out.at = text
            else:
                out.stream = text
        if self.engine:
            out.engine = self.engine
        if self.take is not None:
            self.take(out, m)


def source_line(record: dict[str, Any], file: str, line: str) -> str:
    """Where a record of JSON says that it was written: "core.py:12", or the file alone; `file`, `line`: the names of its fields."""
    name, at = word(record.get(file)), number(record.get(line))
    return f"{name}:{at}" if name and at is not None else name


def stamped(form: Format, out: Peeled, text: str, stamp: str = "") -> None:
    """Keep a time: a wrapper's apart from the process's own."""
    found = Stamp(stamp or form.stamp, text)
    if not form.wrapper:
        out.inner_time = found
    elif out.wrapper_time is None or (found.zoned and not out.wrapper_time.zoned):
        out.wrapper_time = found


PRIORITY = ("CRITICAL", "CRITICAL", "CRITICAL", "ERROR", "WARNING", "INFO", "INFO", "DEBUG")
"""The severities of syslog, 0 to 7."""


def number(value: object) -> int | None:
    """A pid or rank out of a record, whatever type its writer gave it."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return value
    if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdigit():
        return int(value)
    return None


def word(value: object, limit: int = 256) -> str:
    """A name out of a record; "" for anything that is none."""
    return value[:limit] if isinstance(value, str) else ""
