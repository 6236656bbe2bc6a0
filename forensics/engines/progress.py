"""How far an engine has come, from one scrape of its metrics, and whether two scrapes show it moving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forensics.engines._profile import ProgressNames
from forensics.engines.exposition import fits, parse

COUNTERS = ("steps", "generation_tokens", "prompt_tokens", "requests")
GAUGES = ("running", "waiting", "kv_usage")


@dataclass(frozen=True)
class ProgressReading:
    """One replica in one scrape. What the engine does not offer is missing (counters) or None (gauges)."""

    replica: str = ""
    """Value of the replica label ("0", "1", …); "" where the engine has none."""
    counters: dict[str, float] = field(default_factory=dict)
    """Any of COUNTERS. They never decrease while the engine lives."""
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Fraction 0..1."""
    mean_step_s: float | None = None
    """Mean time between tokens since the engine started."""
    token_gaps: float | None = None
    """How many times between tokens that is the mean of."""

    @property
    def held(self) -> bool | None:
        """Whether requests are outstanding as far as the gauges know. They freeze in a stall: False is no proof of idleness."""
        known = [value for value in (self.running, self.waiting) if value is not None]
        return sum(known) > 0 if known else None


def read_progress(text: str, names: ProgressNames) -> list[ProgressReading]:
    """Read one exposition text into a reading per replica, ordered by replica. No known name in it gives []."""
    fields = {key: getattr(names, key) for key in (*COUNTERS, *GAUGES)}
    fields["step_sum"] = tuple(f"{name}_sum" for name in names.step_seconds)
    fields["step_count"] = tuple(f"{name}_count" for name in names.step_seconds)
    wanted = {want for wants in fields.values() for want in wants}
    if not wanted:
        return []
    # replica -> metric name -> values of its label sets
    seen: dict[str, dict[str, list[float]]] = {}
    for name, labels, value in parse(text, wanted):
        seen.setdefault(labels.get(names.replica_label, ""), {}).setdefault(name, []).append(value)
    if len(seen) > 1:
        # families without the replica label (front-end counters) belong to no replica; alone they would look like one
        seen.pop("", None)
    readings = []
    for replica in sorted(seen, key=lambda text: (len(text), text)):
        got = {key: _first(seen[replica], wants) for key, wants in fields.items()}
        values = {key: _combine(key, found) for key, found in got.items() if found is not None}
        count, total = values.get("step_count"), values.get("step_sum")
        readings.append(
            ProgressReading(
                replica=replica,
                counters={key: values[key] for key in COUNTERS if key in values},
                running=values.get("running"),
                waiting=values.get("waiting"),
                kv_usage=values.get("kv_usage"),
                mean_step_s=total / count if total is not None and count else None,
                token_gaps=count,
            )
        )
    return readings


def _first(metrics: dict[str, list[float]], wants: tuple[str, ...]) -> list[float] | None:
    """Values of the first wanted name that occurs; an exact name beats one that merely ends in it."""
    for want in wants:
        if want in metrics:
            return metrics[want]
        for name, values in metrics.items():
            if fits(name, want):
                return values
    return None


def _combine(key: str, values: list[float]) -> float:
    # one counter split over labels (finish reasons, API servers) adds up; a usage fraction does not
    return max(values) if key == "kv_usage" else sum(values)


def moved(before: Sequence[ProgressReading], after: Sequence[ProgressReading]) -> bool | None:
    """Whether any replica advanced between two scrapes. None when no counter can be compared.

    A counter that went down belongs to another life of the engine: that replica cannot be compared.
    """
    earlier = {reading.replica: reading for reading in before}
    verdicts = [replica_moved(earlier[reading.replica], reading) for reading in after if reading.replica in earlier]
    if any(verdict is True for verdict in verdicts):
        return True
    return False if any(verdict is False for verdict in verdicts) else None


def replica_moved(before: ProgressReading, after: ProgressReading) -> bool | None:
    """The same for one replica."""
    common = before.counters.keys() & after.counters.keys()
    if not common or any(after.counters[key] < before.counters[key] for key in common):
        return None
    return any(after.counters[key] > before.counters[key] for key in common)


def held(readings: Sequence[ProgressReading]) -> bool:
    """Whether any replica says that it has requests running or waiting."""
    return any(reading.held for reading in readings)
