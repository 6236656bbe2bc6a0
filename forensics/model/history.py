"""What the incident store of this machine knows of a cause."""

from __future__ import annotations

from forensics.model.records import Record


class SeenBefore(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Earlier incidents with the root that a report names. Times are ns since the epoch, of the incidents themselves."""

    fingerprint: str
    times: int = 0
    """With the same root, mechanism and versions. The incident at hand is not among them."""
    last_ns: int | None = None
    other_versions: int = 0
    """With the same root and mechanism, and other versions."""
    other_last_ns: int | None = None
