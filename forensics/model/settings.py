"""The configuration in force: one record for each setting, with everybody who says something of it."""

from __future__ import annotations

from forensics.model.records import EvidenceRef, Record


class SettingReading(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What one kind of place says of a setting: those of one node that say the same are one reading."""

    value: str
    via: str
    """live object | log | command line | environment"""
    node: str = ""
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    """() where the place names no process."""
    asked: bool = False
    """What the engine was asked for, which it may have resolved otherwise; else what it runs with."""
    ref: EvidenceRef


class Setting(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A setting of one engine."""

    name: str
    value: str = ""
    """In force: of the live object before the log, before the command line, before the environment. "" where those of the best
    place differ among processes."""
    via: str = ""
    """Where the value in force was read."""
    default: str = ""
    """What it is where nobody sets it, as far as that is known."""
    stated: bool = False
    """The operator set it."""
    risk: str = ""
    """Why it matters in an incident; "" for most."""
    disagreement: str = ""
    """Who says otherwise, in words."""
    disagreeing: tuple[EvidenceRef, ...] = ()
    """Both sides of the disagreement."""
    readings: tuple[SettingReading, ...] = ()
