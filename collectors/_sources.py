"""Source files as the processes see them: refused where they may not be what runs, read once, within a budget of time."""

from __future__ import annotations

import os
import stat
import time

from collectors._contract import read_bounded, resolve_in_root
from collectors._sourcefile import Source, TooLarge
from collectors._withblocks import Position

SOURCE_LIMIT_BYTES = 2 * 1024 * 1024
PARSED_LIMIT_BYTES = 1 << 20
"""Of text in all: the trees of everyday code take 100 times as much memory."""
CLOCK_SLACK_NS = 50_000_000
"""A start is known to 10 ms, and a launcher writes its script just before it runs it."""


class Refused(Exception):
    """Why nothing may be concluded from this source. The text is for people."""


class Sources:
    """The files of all processes and samples of one run."""

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self._parsed_bytes = 0
        self._read: dict[tuple[int, int, int], Source | str] = {}

    def position(self, pid: int, path: str, started_ns: int, name: str, line: int) -> Position | None:
        """Where a frame of `pid` stands, None where the file knows no such function on that line.

        Raises Refused when the file may not be what runs, OSError when it cannot be read.
        """
        source = self._load(pid, path, started_ns)
        if self._left_s <= 0:
            raise Refused("not read for lack of time")
        if self._parsed_bytes > PARSED_LIMIT_BYTES:
            raise Refused("not read for lack of memory")
        began, parsed = time.thread_time(), source.parsed_bytes
        try:
            return source.position(name, line)
        except TooLarge:
            raise Refused("too large to be parsed whole") from None
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a newer Python than ours, or not Python
            raise Refused("this interpreter cannot parse it") from None
        finally:
            self._left_s -= time.thread_time() - began
            self._parsed_bytes += source.parsed_bytes - parsed

    def _load(self, pid: int, path: str, started_ns: int) -> Source:
        if not path.startswith("/") or not path.endswith(".py"):
            raise Refused("no source file of its own")
        real = resolve_in_root(f"/proc/{pid}/root", path)
        about = os.stat(real)
        if not stat.S_ISREG(about.st_mode):
            raise Refused("not a file")
        # ctime too: a file may be moved into place with an old mtime
        if max(about.st_mtime_ns, about.st_ctime_ns) > started_ns + CLOCK_SLACK_NS:
            raise Refused("changed after the process started")
        key = about.st_dev, about.st_ino, about.st_mtime_ns
        if key not in self._read:
            raw, cut = read_bounded(real, SOURCE_LIMIT_BYTES)
            self._read[key] = f"larger than {SOURCE_LIMIT_BYTES} bytes" if cut else Source(raw)
        found = self._read[key]
        if isinstance(found, str):
            raise Refused(found)
        return found
