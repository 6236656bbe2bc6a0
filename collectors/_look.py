"""One process at one moment, as a probe must know it before it touches it: state, tracer, identity."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from collectors._contract import read_bounded, stat_fields


class Look:
    """What /proc says of a process at one moment. Raises OSError when it is gone."""

    def __init__(self, pid: int) -> None:
        fields = stat_fields(f"/proc/{pid}/stat")
        self.state = fields[0].decode()
        self.kernel_thread = bool(int(fields[6]) & 0x00200000)  # PF_KTHREAD
        self.start_ticks = int(fields[19])
        status, _ = read_bounded(f"/proc/{pid}/status", 16384)
        tracer = re.search(rb"^TracerPid:\s*(\d+)", status, re.MULTILINE)
        self.tracer = int(tracer.group(1)) if tracer else 0
        pids = re.search(rb"^NSpid:\s*(.*)", status, re.MULTILINE)
        names = pids.group(1).split() if pids else []
        self.inner = int(names[-1]) if len(names) > 1 else None
        """Its pid in its own pid namespace, None where that is ours as well."""

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")


def staying_in_d(pid: int, suspects: list[str] | None = None) -> list[str]:
    """The threads that stay in uninterruptible sleep, of those just seen in it (or of all).

    A passing page fault shows D too, so believe only the third look. Raises OSError when the process is gone.
    """
    if suspects is None:
        suspects = _in_d(pid, os.listdir(f"/proc/{pid}/task"))
    for pause_s in (0.005, 0.01):
        if suspects:
            time.sleep(pause_s)
            suspects = _in_d(pid, suspects)
    return suspects


def _in_d(pid: int, tids: list[str]) -> list[str]:
    found = []
    for tid in tids:
        with contextlib.suppress(OSError):  # the thread has ended
            # the state follows the name, which has 15 bytes, 63 in a kernel thread
            if b") D " in read_bounded(f"/proc/{pid}/task/{tid}/stat", 128)[0]:
                found.append(tid)
    return found


def stop_pending(pid: int) -> bool:
    """Whether a thread has a SIGSTOP underway that it cannot take yet (one in state D): it would stop the process later."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for tid in tids:
        with contextlib.suppress(OSError):  # the thread has ended
            status, _ = read_bounded(f"/proc/{pid}/task/{tid}/status", 16384)
            pending = re.search(rb"^SigPnd:\s*([0-9a-f]+)", status, re.MULTILINE)
            if pending and int(pending.group(1), 16) >> (signal.SIGSTOP - 1) & 1:
                return True
    return False
