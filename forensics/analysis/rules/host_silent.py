"""A machine that stopped: every log of it ends at one moment, or its kernel said in its last words why."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import POWER_FIRST
from forensics.analysis.rules._afterwards import gone
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import first_at, grave, part
from forensics.analysis.rules._silence import silences
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import CrashRecord, Finding, FindingRole, Grade, Severity

_PANIC = re.compile(r"Kernel panic - not syncing: ?(.*)|Oops: |BUG: unable to handle|Internal error: Oops")


def evaluate(view: View) -> Iterator[Finding]:
    yield from _panics(view)
    for silence in silences(view):
        yield view.finding(
            "host-stopped-logging",
            silence.grade,
            title=f"{silence.node} stopped: all of its logs end at {iso(silence.at.earliest_ns)}; {silence.how}",
            because=silence.because,
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            nodes=[silence.node],
            since=silence.at,
            does_not_show="why: power, heat, firmware and a kernel that is stuck look the same from its logs",
            would_settle=["the management controller's event log", "temperature and power over the minutes before", "a serial console"],
        )


def _panics(view: View) -> Iterator[Finding]:
    events = view.kernel_feeding("kernel-panic")
    records = [(r, m) for r in view.on_nodes(CrashRecord) if not r.empty and (m := _PANIC.search(r.text))]
    end = gone(view)
    for node in dict.fromkeys([*(e.node for e in events), *(r.node for r, _ in records)]):
        mine = [e for e in events if e.node == node]
        kept = [(r, m) for r, m in records if r.node == node]
        panicked = any(e.role == "root" for e in mine) or any("panic" in m[0] for _, m in kept)
        first = first_at(mine)
        # booted again after the engine's last word: the record tells of that end
        down = end is not None and end.how == "booted" and end.node == node
        role = FindingRole.ROOT if panicked and (down or not _went_on(view, first is None)) else part(view, first)
        words = next((e.fields.get("why", "") or e.text for e in mine if e.role == "root"), "") or next((m[0] for _, m in kept), "")
        yield view.finding(
            "kernel-panic",
            Grade.ESTABLISHED if panicked else Grade.SUPPORTED,
            title=f"The kernel of {node} {'panicked' if panicked else 'had an internal error (oops)'}: {(words or mine[0].text)[:140]}",
            because=[*(e.ref for e in mine[:6]), *(r.ref for r, _ in kept[:2])],
            severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
            role=role,
            nodes=[node],
            since=first or next((r.at for r, _ in kept), None) or (end.at if end and end.node == node else None),
            does_not_show="" if panicked else "that the machine went down with it",
        )


def _went_on(view: View, undated: bool) -> bool:
    """A record of the firmware without a date may be years old: it explains nothing where the engine is well."""
    return undated and view.stall is None and not view.events("fatal", "worker-death", "death-told")


TEXTS = {
    "host-stopped-logging": Text(
        says="The machine's log stops while time went on elsewhere: power, firmware, heat or a freeze. No line says which.",
        establishes="The log ends in the middle, a later boot is seen or others go on, and nothing asked for a shutdown.",
        lower="Supported: other nodes went on, but no later boot was seen.",
        next_steps=("journalctl --list-boots, wtmp and /sys/fs/pstore of that node, and the BMC's event log", POWER_FIRST),
    ),
    "kernel-panic": Text(
        says="The kernel panicked: the machine ended, and these are its last words.",
        establishes="Its own last words, from a console, netconsole or pstore.",
        next_steps=("keep /sys/fs/pstore and the console log before the next boot clears them",),
    ),
}

RULE = Rule(
    name="host_silent",
    texts=TEXTS,
    about="A machine stopped, with or without last words of its kernel.",
    any_of=("log", "kernel"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Logs that were copied at one moment end together: something must show that time went on.",
    references=("Linux kernel/panic.c", "Linux fs/pstore"),
)
