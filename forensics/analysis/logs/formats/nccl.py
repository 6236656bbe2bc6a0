"""NCCL: host, pid, thread and GPU; newer versions date their warnings."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import DIGITS, ISO, LETTERS, Format

FORMAT = Format(
    name="nccl",
    wrapper=False,
    starts="[" + DIGITS + LETTERS,
    pattern=re.compile(
        rf"(?:\[(?P<time>{ISO})\] )?(?P<host>[A-Za-z0-9][\w.\-]{{0,80}}):(?P<pid>\d{{1,9}}):\d{{1,9}} (?:\[-?\d{{1,4}}\] )?"
        r"(?:(?P<at>[\w./\-]{1,200}:\d{1,6})(?: \([^)\n]{0,80}\))? )?NCCL (?P<level>WARN|INFO|TRACE|ABORT|VERSION|CALL) ?"
    ),
    stamp="iso",
    engine="nccl",
    order=15,
    samples=(
        "[2026-09-17 15:16:23] prefill-2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_32:1 port error",
        "[2026-09-17 15:16:23] n0:311:405 [1] src/misc/shmutils.cc:129 (ncclShmOpen) NCCL WARN Error while creating shared memory segment",
        "decode-0:3663:4044 [0] NCCL INFO proxy.cc:1336 -> 2",
        "n0.cluster.example:12:34 [7] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 192.0.2.1 failed",
    ),
    negatives=("a:b:c [0] NCCL INFO x", "n0:1:2 [0] RCCL INFO x", "NCCL version 2.30.7+cuda13.3", "12:34:56 [0] x"),
)
