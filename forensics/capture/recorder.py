"""Takes what collectors send and writes it into the bundle, with where it came from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from forensics.capture.discovery import Discovery
from forensics.capture.plan import Step
from forensics.capture.runner import AttemptLine, EvidenceLine
from forensics.model import Attempt, Origin, Outcome, ProcessKey

if TYPE_CHECKING:
    from forensics.bundle import BundleWriter, EvidenceStream

QUEUES_LIMIT_BYTES = 64 * 1024 * 1024
"""What is kept in memory of the queues evidence, to decide whether to look again."""


class _Show(Protocol):
    def attempt(self, attempt: Attempt, /) -> None: ...

    def ended(self, step: Step, seconds: float, /) -> object: ...


class Recorder:
    """The runner's sink. Nothing may arrive before `open`."""

    def __init__(self, found: Discovery, show: _Show, boot_id: str = "") -> None:
        self.boot_id = boot_id
        self.queues: dict[int, tuple[list[tuple[int | None, str]], list[bytes]]] = {}
        """sample -> (expositions with the pid that served them, socket tables) as the queues collector sent them."""
        self._show = show
        self._node = found.node
        self._places = {process.pid: process for engine in found.engines for process in engine.processes}
        self._writer: BundleWriter | None = None
        self._streams: dict[tuple[str, str], EvidenceStream] = {}
        self._parts: dict[str, list[bytes]] = {}
        self._kept = 0
        self._early: list[Attempt] = []
        self._stacks: dict[int, set[int]] = {}

    def open(self, writer: BundleWriter) -> None:
        self._writer = writer
        for attempt in self._early:
            self._write(attempt)
        self._early = []

    def evidence(self, step: Step, line: EvidenceLine) -> None:
        if self._writer is None:
            return  # only a collector that had to run in this process sends before the bundle exists
        key = (step.collector, line.name)
        stream = self._streams.pop(key, None)
        if stream is None:
            stream = self._writer.stream(
                line.name,
                line.kind,
                collector=step.collector,
                at_ns=line.at_ns or time.time_ns(),
                sample=line.sample,
                pid=line.pid,
                source=line.source,
            )
        data = line.data
        stream.write(data)
        if step.collector == "queues":
            self._keep(line, data)
        if line.more:
            self._streams[key] = stream
        else:
            stream.close(truncated=line.truncated)

    def attempt(self, step: Step, line: AttemptLine) -> None:
        if step.collector == "stacks" and line.pid is not None:
            self._stacks.setdefault(line.sample, set()).add(line.pid)
        self._write(
            Attempt(
                collector=step.collector,
                target=line.target,
                outcome=line.outcome,
                reason=line.reason,
                cure=line.cure,
                started_ns=line.started_ns,
                ended_ns=line.ended_ns,
                sample=line.sample,
                origin=self._origin(line.pid),
                evidence=tuple(line.evidence),
            )
        )

    def ended(self, step: Step, seconds: float) -> list[str]:
        """Close what a collector left open, as cut off; returns the names."""
        cut = [key for key in self._streams if key[0] == step.collector]
        for key in cut:
            self._streams.pop(key).close(truncated=True)
        self._show.ended(step, seconds)
        return [name for _, name in cut]

    def note(self, collector: str, target: str, outcome: Outcome, reason: str, cure: str, evidence: tuple[str, ...] = ()) -> None:
        """An attempt of the capture itself."""
        now = time.time_ns()
        self._write(
            Attempt(
                collector=collector,
                target=target,
                outcome=outcome,
                reason=reason,
                cure=cure,
                started_ns=now,
                ended_ns=now,
                origin=self._origin(None),
                evidence=evidence,
            )
        )

    def stacks_seen(self, sample: int) -> int:
        """Of how many processes the stacks of this sample have been tried."""
        return len(self._stacks.get(sample, ()))

    def _origin(self, pid: int | None) -> Origin:
        place = self._places.get(pid) if pid is not None else None
        if pid is None:
            return Origin(node=self._node)
        ticks = place.info.start_ticks if place else None
        return Origin(
            node=self._node, process=ProcessKey(pid=pid, start_ticks=ticks, boot_id=self.boot_id), rank=place.rank if place else None
        )

    def _keep(self, line: EvidenceLine, data: bytes) -> None:
        self._kept += len(data)
        if line.kind not in ("prometheus", "fileset") or self._kept > QUEUES_LIMIT_BYTES:
            return
        parts = self._parts.setdefault(line.name, [])
        parts.append(data)
        if line.more:
            return
        whole = b"".join(self._parts.pop(line.name))
        expositions, filesets = self.queues.setdefault(line.sample, ([], []))
        if line.kind == "prometheus":
            expositions.append((line.pid, whole.decode("utf-8", "replace")))
        else:
            filesets.append(whole)

    def _write(self, attempt: Attempt) -> None:
        if self._writer is None:
            self._early.append(attempt)
            return
        self._show.attempt(self._writer.attempt(attempt))
