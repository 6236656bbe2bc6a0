"""Faults on demand. A control file holds "MODE RANK [SECONDS]"; empty or absent is normal, and normal again when emptied.

stop            the rank stops itself (SIGSTOP), at once
idle-then-stop  the same, but only when it has had nothing to do for half a second
kill            the rank kills itself (SIGKILL), at once
exception       its next step raises
deadlock        its next step and a helper thread take two locks in opposite order
queue-full      the offload thread takes nothing more; put_nowait raises queue.Full when the queue is full
queue-blocked   the same with put, which waits for ever
slow            every step takes SECONDS longer
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

MODES = ("stop", "idle-then-stop", "kill", "exception", "deadlock", "queue-full", "queue-blocked", "slow")
WATCH_S = 0.05
IDLE_S = 0.5


def write(path: str, mode: str, rank: int, seconds: float) -> None:
    """Replace the control file in one move, so that nobody reads half a line. Mode "" clears it."""
    temporary = Path(path + ".new")
    temporary.write_text(f"{mode} {rank} {seconds}\n" if mode else "")
    temporary.replace(path)


class Faults:
    """What this rank is asked to do wrong right now."""

    def __init__(self, path: str, rank: int) -> None:
        self.path, self.rank = path, rank
        self.busy_at = time.monotonic()
        threading.Thread(target=self._watch, name="control-watch", daemon=True).start()

    def asked(self) -> tuple[str, float]:
        """(mode, seconds), ("", 0) when all is normal."""
        try:
            words = Path(self.path).read_text().split()
        except OSError:
            return "", 0.0
        if len(words) < 2 or words[1] != str(self.rank):
            return "", 0.0
        return words[0], float(words[2]) if len(words) > 2 else 1.0

    def _watch(self) -> None:
        """Signals are sent from here, because a rank without work would never come to a step."""
        stopped = False  # once only: whoever continues a stopped rank wants it to go on
        while True:
            mode, _ = self.asked()
            idle = time.monotonic() - self.busy_at > IDLE_S
            if not stopped and (mode == "stop" or (mode == "idle-then-stop" and idle)):
                stopped = True
                os.kill(os.getpid(), signal.SIGSTOP)
            elif mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif not mode:
                stopped = False
            time.sleep(WATCH_S)
