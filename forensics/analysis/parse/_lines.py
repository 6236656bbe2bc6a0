"""One log line taken apart into what its prefixes tell and the message behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forensics.analysis.logs import Hint, Peeled, peel, peel_all
from forensics.analysis.logs.clocks import Clocks, survey
from forensics.analysis.parse._base import Input
from forensics.analysis.times import Calendar
from forensics.model import TimeRange

HEAD_CHARS = 160
"""How far into a line that no format knows a pid, a rank and a time are looked for."""
PID = re.compile(r"\bpid[ =:]+(\d{1,9})\b")
_RANK = re.compile(r"\brank[ =:]*(\d{1,9})\b", re.I)
_LEVEL = re.compile(r"\W*(?:\S+ ){0,4}?\W?(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b")


@dataclass(frozen=True)
class Line:
    """One log line taken apart."""

    number: int
    text: str
    message: str
    process: str = ""
    pid: int | None = None
    rank: int | None = None
    level: str = ""
    at: TimeRange | None = None
    engine: str = ""
    """Whose form of line it is, where the form tells."""
    spoken_rank: int | None = None
    """The rank of who speaks; `rank` may also be one that plain words speak of."""


class Reader:
    """Takes the lines of one log apart, with what the lines before have shown."""

    def __init__(self, inp: Input) -> None:
        self.hint = Hint()
        self.clocks: Clocks = survey(inp.data, inp.calendar, inp.boot_ns, self.hint)
        self._calendar: Calendar = inp.calendar

    def take_apart(self, text: str, number: int, near: TimeRange | None = None) -> Line:
        """Split one line; `near`: when a neighbour was written."""
        return self._line(peel(text, self.hint), text, number, near)

    def each(self, text: str, number: int, near: TimeRange | None = None) -> list[Line]:
        """The same for a line into which several processes wrote: what each of them said."""
        return [self._line(out, text, number, near) for out in peel_all(text, self.hint)]

    def _line(self, out: Peeled, text: str, number: int, near: TimeRange | None) -> Line:
        at = self.clocks.at(out, near)
        pid, rank, level = out.pid, out.rank, out.level
        if not out.format:
            # plain logging of whatever program: its own words may say more
            head = out.message[:HEAD_CHARS]
            if at is None and not out.wrappers:
                at = self._calendar.parse(head, 48)
            if at is not None or out.wrappers:
                pid = int(m[1]) if pid is None and (m := PID.search(head)) else pid
                rank = int(m[1]) if rank is None and (m := _RANK.search(head)) else rank
                level = m[1] if not level and (m := _LEVEL.match(head)) else level
        elif rank is None and out.format not in ("vllm", "sglang") and (m := _RANK.search(out.message[:HEAD_CHARS])):
            rank = int(m[1])
        return Line(number, text, out.message, out.process, pid, rank, level, at, out.engine, out.rank)

    def who(self, text: str) -> tuple[str, str]:
        """The message of a line, and what of its prefixes tells two writers apart."""
        line = self.take_apart(text, 0)
        return line.message, f"{line.process} {line.pid} {line.rank}"
