"""A log that only a command can read (dmesg, journalctl): run it bounded, and tell refusal, silence and age apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from collectors._contract import os_error_outcome, run_bounded

REFUSED = (b"not permitted", b"permission denied", b"not seeing messages from", b"insufficient permissions")
"""What dmesg and journalctl say (LC_ALL=C) when they show less than there is. journalctl then ends with status 0."""


class CommandLog(NamedTuple):
    """What a log command printed. `text` may hold something even when it did not end well."""

    outcome: str
    reason: str
    cure: str
    text: bytes
    cut: bool


def read_log(argv: Sequence[str], patience_s: float, limit: int, cure: str) -> CommandLog:
    """The newest `limit` bytes that `argv` prints, and how it went. `cure` is what helps against a refusal."""
    said = " ".join(argv)
    try:
        ran = run_bounded(argv, patience_s, limit, newest=True)
    except OSError as error:
        outcome, reason, _ = os_error_outcome(error)
        return CommandLog(outcome, f"{argv[0]} is not installed" if outcome == "ABSENT" else reason, "", b"", cut=False)
    # "-- No entries --", "-- Boot … --"
    empty = not any(line and not line.startswith(b"-- ") for line in ran.out.splitlines())
    complaint = ran.err.decode("utf-8", "backslashreplace").strip()[:300]
    text = b"" if empty else ran.out
    if empty and any(word in ran.err.lower() for word in REFUSED):
        return CommandLog("DENIED", complaint, cure, text, ran.cut)
    if ran.status is None:
        return CommandLog("TIMEOUT", f"{said} did not end within {patience_s:g} s", "", text, cut=True)
    if not empty:
        reason = f"only the newest {len(text)} bytes were kept" if ran.cut else ""
        return CommandLog("PARTIAL" if ran.cut else "OK", reason, "", text, ran.cut)
    if ran.status:
        return CommandLog("UNSUPPORTED", f"{said} ended with {ran.status}: {complaint}", "", text, ran.cut)
    return CommandLog("EMPTY", complaint or f"{said} printed nothing", "", text, ran.cut)
