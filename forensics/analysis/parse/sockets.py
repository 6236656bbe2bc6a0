"""Queues that the kernel keeps for sockets: /proc/PID/net/tcp joined with descriptors through inodes.

In a listening socket's row rx_queue is the number of connections that nobody has accepted yet (net/ipv4/tcp_ipv4.c
get_tcp4_sock: sk_ack_backlog); in an established one it is bytes received and not read, tx_queue bytes not acknowledged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from forensics.model import PROBE_SOURCE, EvidenceRef, QueueDepth, TimeRange

_NET = re.compile(r"^/proc/(\d+)/net/tcp6?$")
_FD = re.compile(r"^/proc/(\d+)/fd/\d+$")
_ROW = re.compile(
    r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) ([0-9A-F]+):([0-9A-F]{4}) ([0-9A-F]{2}) ([0-9A-F]{8}):([0-9A-F]{8})"
    r"\s+\S+\s+\S+\s+\S+\s+\S+\s+(\d+)",
    re.M,
)
ESTABLISHED, LISTEN = "01", "0A"
OURS = "".join(f"{int(part):02X}" for part in reversed(PROBE_SOURCE.split(".")))
"""Remote address of our own probes, as the kernel writes it: they are nobody's clients."""


def socket_queues(
    files: Mapping[str, str],
    links: Mapping[str, str],
    *,
    node: str,
    at: TimeRange | None,
    sample: int,
    ref: Callable[[str, str], EvidenceRef],
) -> Iterator[QueueDepth]:
    """Yield the depth of every socket queue that belongs to a target, and the clients of each listening port."""
    owner: dict[str, int] = {}
    for path, target in links.items():
        if (m := _FD.match(path)) and target.startswith("socket:["):
            owner.setdefault(target[8:-1], int(m[1]))
    for path, text in files.items():
        if not path.endswith(("/tcp", "/tcp6")) or not _NET.match(path):
            continue
        rows = [row for row in _ROW.findall(text) if not row[1].endswith(OURS)]
        listening = {local: (owner[inode], int(rx, 16)) for local, _, _, state, _, rx, inode in rows if state == LISTEN and inode in owner}
        clients = Counter(local for local, *_, state, _, _, _ in rows if state == ESTABLISHED and local in listening)
        for port, (pid, backlog) in listening.items():
            number = int(port, 16)
            common = {"node": node, "at": at, "pid": pid, "sample": sample}
            quote = f"port {number}: {clients[port]} established, {backlog} not accepted"
            yield QueueDepth(**common, ref=ref(path, quote), queue=f"port {number}", kind="clients", depth=clients[port])  # type: ignore[arg-type]
            yield QueueDepth(**common, ref=ref(path, quote), queue=f"port {number}", kind="accept-backlog", depth=backlog)  # type: ignore[arg-type]
        for local, _, remote, state, tx, rx, inode in rows:
            if state != ESTABLISHED or inode not in owner:
                continue
            for kind, depth in (("socket-recv", int(rx, 16)), ("socket-send", int(tx, 16))):
                if depth:
                    name = f"{int(local, 16)}->{int(remote, 16)}"
                    yield QueueDepth(
                        node=node,
                        at=at,
                        pid=owner[inode],
                        sample=sample,
                        ref=ref(path, f"{name} {kind} {depth} bytes"),
                        queue=name,
                        kind=kind,
                        depth=depth,
                        unit="bytes",
                    )
