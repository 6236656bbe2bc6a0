"""One process at one moment, as a probe must know it before it touches it: state, tracer, identity."""

from __future__ import annotations

import os
import re
import time

from collectors._contract import read_bounded


class Look:
    """What /proc says of a process at one moment. Raises OSError when it is gone."""

    def __init__(self, pid: int) -> None:
        raw, _ = read_bounded(f"/proc/{pid}/stat", 4096)
        fields = raw[raw.rindex(b")") + 2 :].split()
        self.state = fields[0].decode()
        self.kernel_thread = bool(int(fields[6]) & 0x00200000)  # PF_KTHREAD
        self.start_ticks = int(fields[19])
        status, _ = read_bounded(f"/proc/{pid}/status", 16384)
        tracer = re.search(rb"^TracerPid:\s*(\d+)", status, re.MULTILINE)
        self.tracer = int(tracer.group(1)) if tracer else 0

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")


def threads_in_d(pid: int) -> list[str]:
    """The threads that stay in uninterruptible sleep. A passing page fault shows D too, so believe only the third look."""
    suspects = os.listdir(f"/proc/{pid}/task")
    for pause_s in (0.0, 0.005, 0.01):
        time.sleep(pause_s)
        sleeping = []
        for tid in suspects:
            try:  # by hand, not read_bounded: hundreds of these stand between us and the picture
                fd = os.open(f"/proc/{pid}/task/{tid}/stat", os.O_RDONLY)
                raw = os.read(fd, 128)  # the state follows the name, which has 15 bytes, 63 in a kernel thread
                os.close(fd)
            except OSError:
                continue  # the thread has ended
            if b") D " in raw:
                sleeping.append(tid)
        suspects = sleeping
        if not suspects:
            break
    return suspects
