"""Which machine a bare file is of, where its own name does not say: "env.txt", "dmesg.log" or "rank0.maps.txt" beside "node0.log"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_LOG = re.compile(r"\.log(?:[._-]\d{1,8})*(?:\.(?:gz|xz|zst|bz2))?$")
_KERNEL = re.compile(r"dmesg|kernel|kern|kmsg|journal(?:ctl)?|syslog|messages|events?|pods?")
_OF_KERNEL = re.compile(r"[._-](?:dmesg|kernel|kern|kmsg|journal(?:ctl)?|syslog|messages)[._-]", re.I)
_KIND = re.compile(
    rf"(?:{_KERNEL.pattern}|env|environ(?:ment)?|metrics?|containers?|df|ps|top|free|mem|memory|meminfo|nvidia|nvidia-smi|smi|gpus?|maps|ulimit|limits"
    r"|rank-?map|ranks?|rank[-_]?\d+|tp[-_]?\d+|pp[-_]?\d+|pid[-_]?\d+|workers?|worker[-_]?\d+|engine|engine-?core|api-?server|stacks?|py-?spy|gdb|bt"
    r"|pystack|ss|netstat|sockets?|ibstat|ibv|ib|rdma|links?|counters|ras|nccl|nccl[-_]ras|fr|flight\S*|nccl_trace\S*|health|shm|dev-?shm|ls|uptime|boot"
    r"|pstore|docker|inspect|kubectl|describe|status|stat|stack|wchan|syscall|proc|lsof|dump|trace)",
    re.I,
)


def machines(names: Iterable[str], node_of: Callable[[str], str]) -> set[str]:
    """The machines that the logs of a folder are of, by their names. One of which only the kernel's log is there runs no engine."""
    found: set[str] = set()
    kernels: set[str] = set()
    for name in names:
        base = name.rsplit("/", 1)[-1]
        if _LOG.search(base) and not _KERNEL.fullmatch(base.split(".", 1)[0].lower()):
            (kernels if _OF_KERNEL.search(base) else found).add(node_of(name))
    return found or kernels


def place(name: str, known: set[str], node_of: Callable[[str], str]) -> str:
    """The node of a file: what its name says, unless that is only a kind of evidence or a rank and the folder has a single machine."""
    node = node_of(name)
    first = name.rsplit("/", 1)[-1].split(".", 1)[0]
    # "apps.csv" names no machine; "head.gpu.csv" may
    plain = re.fullmatch(r"[^.\d]+\.(?!log)[a-z]{2,5}", name.rsplit("/", 1)[-1])
    if len(known) != 1 or node in known or not (plain or _KIND.fullmatch(first)):
        return node
    return next(iter(known))
