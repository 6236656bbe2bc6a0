"""One log line taken apart into what its prefix tells and the message behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forensics.analysis.parse._base import Input
from forensics.model import TimeRange

VLLM = re.compile(
    r"\((?P<proc>[A-Za-z_][\w\-]*(?: (?:TP|PP|DP)\d+| rank=\d+)?),? pid=(?P<pid>\d+)(?:, ip=[^)]*)?\)"
    r"(?: (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL))?(?: (?P<time>\d\d-\d\d \d\d:\d\d:\d\d))?(?: \[(?P<at>[^\]]+:\d+)\])? ?"
)
_PLAIN = re.compile(
    r"^\W{0,2}(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?\S{0,6}|\d\d-\d\d \d\d:\d\d:\d\d|\w{3} +\d+ \d\d:\d\d:\d\d)?\W*"
    r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)?\b"
)
_SGLANG = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<place>(?: [A-Z]+(?:_[A-Z]+)*\d{1,5}){0,8})\] ")
_TRTLLM = re.compile(
    r"^\W{0,2}(?:\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\](?: \[(?P<level>[FEWIV])\])? "
    r"?(?:\[_torch\])?(?:\[(?:MPI_)?R(?:ank|ANK) (?P<rank>\d{1,5})\])? ?(?:\[(?P<late>[FEWIV])\] )?"
)
_LETTERS = {"F": "CRITICAL", "E": "ERROR", "W": "WARNING", "I": "INFO", "V": "DEBUG"}
PID = re.compile(r"\bpid[ =:]+(\d+)\b")
_RANK = re.compile(r"\brank[ =:]*(\d+)\b", re.I)


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


def take_apart(text: str, number: int, inp: Input) -> Line:
    """Split one line into prefix and message; the prefix tells time, process, pid, rank and level as far as it says so."""
    if m := VLLM.search(text[:200]):
        stamp = m["time"]
        at = inp.calendar.stamp(stamp) if stamp else inp.calendar.parse(text[: m.start()])
        pid = int(m["pid"])
        return Line(
            number,
            text,
            text[m.end() :],
            process_name(m["proc"]),
            pid,
            _rank_of(text[: m.start()]) if m.start() else None,
            m["level"] or "",
            at,
        )
    head = text[:160]
    if m := _SGLANG.match(head):
        place = m["place"].strip()
        tp = re.search(r"(?:^| )TP(\d+)", place)
        rank = int(tp[1]) if tp and "PP" not in place else None  # with stages the rank takes their size to tell
        return Line(number, text, text[m.end() :], place, None, rank, "", inp.calendar.parse(m[1]))
    if "[TRT-LLM]" in head and (m := _TRTLLM.match(head)):
        rank = int(m["rank"]) if m["rank"] else None
        return Line(
            number, text, text[m.end() :], "", None, rank, _LETTERS.get(m["late"] or m["level"] or "", ""), inp.calendar.parse(head, 32)
        )
    at = inp.calendar.parse(head, 48)
    plain = _PLAIN.match(head)
    pid_m = PID.search(head) if at else None
    level = (plain["level"] or "") if plain else ""
    return Line(number, text, text, "", int(pid_m[1]) if pid_m else None, _rank_of(head) if at else None, level, at)


def process_name(prefix: str) -> str:
    """Older prefixes put the place behind a space: "VllmWorker TP1", "VllmWorker rank=1"."""
    if " " not in prefix:
        return prefix
    return prefix.replace("VllmWorker ", "Worker_", 1) if re.search(r" [TPD]P\d", prefix) else prefix.replace(" rank=", "-")


def _rank_of(text: str) -> int | None:
    m = _RANK.search(text)
    return int(m[1]) if m else None
