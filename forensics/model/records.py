"""Who was looked at, when, how it went, and where the evidence lies. Times are ns since the epoch, sizes are bytes."""

from __future__ import annotations

import msgspec

from forensics.model.outcome import Outcome

PROBE_SOURCE = "127.70.79.82"
"""Loopback address that every probe of ours connects from, so that it can be told from the engine's own clients.

The collectors, which import nothing of ours, name the same one (collectors._http); a test holds them together.
"""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every record: immutable, keyword-only, small in JSON."""


class ProcessKey(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A process for good: a reused pid has other start ticks, a rebooted node another boot id."""

    pid: int
    start_ticks: int | None = None
    boot_id: str = ""


class RankId(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A rank in its engine's world. `rank` is always the global rank; the others are None where that dimension is unknown."""

    rank: int | None = None
    world_size: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None


class Origin(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Where a piece of evidence came from."""

    node: str
    process: ProcessKey | None = None
    rank: RankId | None = None
    container: str = ""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


class Attempt(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One try at one source of one target. Every try leaves exactly one, and it ships in the bundle."""

    collector: str
    target: str
    """What was asked: "node", "pid 4243", "http://127.0.0.1:8000/metrics", a path."""
    outcome: Outcome
    reason: str = ""
    cure: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    sample: int = 0
    origin: Origin | None = None
    evidence: tuple[str, ...] = ()


class Evidence(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A file of the bundle. `kind` decides which parser reads it; see forensics.analysis.parse."""

    path: str
    collector: str
    kind: str
    size_bytes: int
    sha256: str
    at_ns: int = 0
    """When the content was sampled."""
    sample: int = 0
    pid: int | None = None
    source: str = ""
    """What it is a copy of, as seen from the node: a path, a URL, a command."""
    truncated: bool = False
    redactions: int = 0


class EvidenceRef(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A pointer into evidence, with the words found there."""

    source: str
    locator: str
    """"line 812", "thread 4411 frame 3", "/proc/4243/status State"."""
    quote: str = ""


class TimeRange(Record, frozen=True, kw_only=True, omit_defaults=True):
    """When something was the case, honestly: no earlier than `earliest_ns`, no later than `latest_ns`."""

    earliest_ns: int
    latest_ns: int
    basis: str
    """sampled | logged | kernel | file time | inferred"""

    def before(self, other: TimeRange) -> bool:
        """True only when the order is certain: ranges that overlap have no order."""
        return self.latest_ns < other.earliest_ns


class Alignment(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How a node's clock relates to the reference: corrected = raw + offset, give or take bound."""

    node: str
    offset_ns: int = 0
    bound_ns: int | None = None
    method: str = "none"
    utc_offset_s: int | None = None
    """The zone in which this node writes its logs; None when nobody recorded it (UTC is then assumed and said)."""
