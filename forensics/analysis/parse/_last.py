"""When each process wrote its last line into a log: silence is told only by lines that nobody would look at otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable

from forensics.analysis.buffers import Buffer
from forensics.analysis.parse._lines import Reader

LOOK_BACK_BYTES = 16 * 1024 * 1024
"""How far from its end a log is read for this. Who wrote nothing in there is not listed: when it fell silent is not known."""
WINDOW_BYTES = 1024 * 1024
OVERLAP_BYTES = 4096
"""A line that begins before a window and names its writer inside of it is found in the next one."""
_PID = re.compile(rb"\bpid=(\d{1,9})\b")


def last_lines(data: Buffer, pids: Iterable[int], reader: Reader) -> dict[int, int]:
    """pid to the time (ns) of its last dated line, of those of `pids` that wrote one near the end."""
    wanted = set(pids)
    found: dict[int, int] = {}
    end, floor = len(data), max(0, len(data) - LOOK_BACK_BYTES)
    while wanted and end > floor:
        start = max(floor, end - WINDOW_BYTES)
        window = bytes(data[start : min(len(data), end + OVERLAP_BYTES)])
        places: dict[int, int] = {}
        for m in _PID.finditer(window):
            if (pid := int(m[1])) in wanted:
                places[pid] = m.start()
        for pid, place in places.items():
            if (ns := _written(window, place, start == 0, pid, reader)) is not None:
                found[pid] = ns
                wanted.discard(pid)
        end = start
    return found


def _written(window: bytes, place: int, whole: bool, pid: int, reader: Reader) -> int | None:
    """Time of the last dated line of this process in a window, from the place where it is named last."""
    for _ in range(8):
        begin = window.rfind(b"\n", 0, place) + 1
        if begin == 0 and not whole:
            return None
        stop = window.find(b"\n", place)
        text = window[begin : min(stop if stop >= 0 else len(window), begin + OVERLAP_BYTES)].decode("utf-8", "replace")
        line = reader.take_apart(text, 0)
        if line.pid == pid and line.at is not None:
            return line.at.latest_ns
        place = window.rfind(b"pid=%d" % pid, 0, begin)
        if place < 0:
            return None
    return None
