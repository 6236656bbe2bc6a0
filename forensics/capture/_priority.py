"""Being quick on a host that is full, where that is permitted: ahead of whatever spins, for the moments in which a target is held.

Engines spin while they wait, so a stalled one is often the very thing that fills the processors.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from forensics.capture.plan import PROMPT

AUTOGROUP = Path("/proc/self/autogroup")
"""Where the kernel groups tasks by session (sched_autogroup), nice values count only within a group: an engine that spins in
several sessions leaves ours a small share, whatever our own priority. The group's own nice value is the lever then."""


class Priority:
    """Raises this process and its session's group while something volatile is read, and only then: an engine may be well.

    What a child sends must be read at once as well: a reader that sleeps on a full pipe takes its next sample late.
    """

    def __init__(self) -> None:
        self.usual = os.getpriority(os.PRIO_PROCESS, 0)
        self._group: int | None = None
        """The group's nice value from before, where it may be changed."""
        self._raised = False

    def prompt(self, wanted: bool) -> None:
        if wanted == self._raised:
            return
        self._raised = wanted
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(-20, self.usual + PROMPT) if wanted else self.usual)
        if self._group is not None:
            with contextlib.suppress(OSError):
                AUTOGROUP.write_text(str(PROMPT if wanted else self._group))

    def __enter__(self) -> Priority:
        with contextlib.suppress(OSError, ValueError):  # no such file
            before = re.search(r"nice (-?\d+)", AUTOGROUP.read_text())
            if before and int(before[1]) > PROMPT:
                self._group = int(before[1])
        self.prompt(True)
        return self

    def __exit__(self, *_: object) -> None:
        self.prompt(False)
