"""Classic syslog (RFC 3164) and journalctl's short form: date, host, program."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import MONTH_TIME, PRIORITY, Format, Peeled

_RUNTIME = re.compile(r"(?:docker(?:d|-.*)?|containerd(?:-.*)?|podman|conmon|cri-o|crio|[0-9a-f]{12}|[0-9a-f]{64})$")


def of_program(out: Peeled, priority: str | None) -> None:
    """What the program's name tells: the kernel is one, and a container runtime's pid is not that of who wrote the line."""
    if out.process == "kernel":
        out.engine, out.process, out.pid = "kernel", "", None
    elif _RUNTIME.match(out.process):
        out.process, out.pid = "", None
    if priority and len(priority) < 4 and int(priority) < 192:
        out.level = PRIORITY[int(priority) % 8]


def _take(out: Peeled, m: re.Match[str]) -> None:
    of_program(out, m["pri"])


FORMAT = Format(
    name="syslog",
    wrapper=True,
    starts="<JFMASOND",
    pattern=re.compile(
        rf"(?:<(?P<pri>\d{{1,3}})>)?(?P<time>{MONTH_TIME}(?: \d{{4}})?) (?P<host>[\w.\-:]{{1,120}}) "
        r"(?P<process>[\w./@\-]{1,100})(?:\[(?P<pid>\d{1,9})\])?: ?"
    ),
    stamp="syslog",
    take=_take,
    order=30,
    samples=(
        "Sep 17 15:23:34 node2 kernel: mlx5_core 0000:ab:00.0 mlx5_32: Port: 1 Link DOWN",
        "<30>Sep  1 10:00:00 node0 vllm[812]: (EngineCore pid=280) INFO 09-01 10:00:00 [core.py:1] x",
        "Sep 01 10:00:00.123456 node0 systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL",
    ),
    negatives=("Sep 17 15:23:34 no program here", "September 17 15:23:34 n k: x", "Sep 17 2026 n k: x"),
)
