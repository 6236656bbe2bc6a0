"""Weights that come in slowly: start-up waits for storage, not for the engine."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity

SLOW_SHARD_S = 20.0
"""Shards are about 5 GB: slower than this is below 250 MB/s, what a disk or a network share gives and a local flash drive does not."""
SLOW_GIB_S = 0.15
LONG_S = 300.0
"""A load that took less is not worth a finding, whatever its rate."""


def evaluate(view: View) -> Iterator[Finding]:
    told = [h for h in view.feeding("slow-weight-load") if h.role == "context"]
    shards = [h for h in told if _shard_s(h) is not None and int(h.fields.get("done", "0")) > 0]
    loaded = [h for h in told if _gib_s(h) is not None]
    slow_shards = [h for h in shards[-3:] if (_shard_s(h) or 0) >= SLOW_SHARD_S]
    slow_whole = [h for h in loaded if (_gib_s(h) or 1) < SLOW_GIB_S and float(h.fields["seconds"]) >= LONG_S]
    # one shard may come from a cold cache; the last line's rate is that of all of them
    whole = bool(shards) and shards[-1].fields.get("done") == shards[-1].fields.get("total")
    if len(slow_shards) == len(shards[-3:]) and len(slow_shards) > (0 if whole else 1):
        last = slow_shards[-1]
        done, count = last.fields.get("done", "?"), last.fields.get("total", "?")
        going = done != count and not view.events("ready")
        yield _finding(
            view,
            [*shards[:1], *slow_shards],
            f"Weights {'are' if going else 'were'} loaded at {duration(_shard_s(last) or 0)} a shard, {done} of {count} so far"
            if going
            else f"Weights were loaded at {duration(_shard_s(last) or 0)} a shard, {count} shards",
            going,
        )
    elif slow_whole:
        h = slow_whole[0]
        took = float(h.fields["seconds"])
        rate = (_gib_s(h) or 0) * 1024
        yield _finding(view, slow_whole, f"Loading {h.fields['gib']} GiB took {duration(took)}, {rate:.0f} MiB/s a rank", False)


def _finding(view: View, hits: list[LogHit], title: str, going: bool) -> Finding:
    return view.finding(
        "slow-weight-load",
        grade(observed=True),
        title=title,
        because=[h.ref for h in hits[:4]],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        since=hits[0].at,
        until=None if going else hits[-1].at,
        does_not_show="what limits it: the store, the network to it, or a cold cache",
    )


def _shard_s(hit: LogHit) -> float | None:
    """Seconds a shard, None where the line tells none."""
    try:
        rate = float(hit.fields.get("rate", ""))
    except ValueError:
        return None
    return rate if hit.fields.get("unit") == "s/it" else 1 / rate if rate > 0 else None


def _gib_s(hit: LogHit) -> float | None:
    try:
        return float(hit.fields["gib"]) / float(hit.fields["seconds"])
    except (KeyError, ValueError, ZeroDivisionError):
        return None


TEXTS = {
    "slow-weight-load": Text(
        says="Weights are read at the speed of slow storage.",
        establishes="Shard progress with times and sizes.",
        lower="Supported: times without sizes.",
        next_steps=("measure the read rate of the store from this node before calling the start a hang",),
    ),
}

RULE = Rule(
    name="weight_load",
    texts=TEXTS,
    about="Weights were loaded at a rate that speaks of slow storage.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Weights that are quantised or converted while they are loaded are slow for another reason.",
    references=("vllm model_executor/model_loader/weight_utils.py", "vllm default_loader.py: Loading weights took"),
)
