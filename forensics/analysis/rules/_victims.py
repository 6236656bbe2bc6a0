"""Kinds of exceptions by their type and text."""

from __future__ import annotations

import re

_PEER_LOSS = re.compile(
    r"(?i)DistStoreError|clients joined|clos(?:ed|ure).{0,20}by (?:peer|remote)|reset by peer|broken ?pipe|recvValue failed"
    r"|remote_?disconnect|remote process (?:exited|has)|nccl.{0,30}remote error|wait timeout after|client socket has timed out"
    r"|timed out waiting|ConnectionReset|ConnectionAborted|heartbeat|pair closure|EngineDeadError"
    r"|gloo.{0,120}(?:read|writev?) error|gloo.{0,160}connection timed out|got 0 bytes|peer.{0,20}(?:gone|lost|died)"
)

REFUSALS = frozenset({"queue.Full", "Full", "_queue.Full", "asyncio.QueueFull", "asyncio.queues.QueueFull", "QueueFull"})
"""Exceptions by which a queue with a software bound refuses an item."""


def lost_peer(exc_type: str, exc_message: str) -> bool:
    """Whether an exception reports the loss or absence of another process rather than a failure of its own: a symptom, never the root."""
    return bool(_PEER_LOSS.search(f"{exc_type}: {exc_message}"))
