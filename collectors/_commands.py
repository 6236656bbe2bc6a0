"""What only a command can tell (dmesg, journalctl, chronyc): run it bounded, and tell refusal, silence and slowness apart."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from collectors._contract import os_error_outcome
from collectors._spawn import Pool

OUTPUT_BYTES = 32 * 1024 * 1024
"""More than any kernel log buffer. A command that prints more is stopped; its newest lines are then lost, and `cut` says so."""
REFUSED = (b"not permitted", b"permission denied", b"not seeing messages from", b"insufficient permissions")
"""What dmesg and journalctl say (LC_ALL=C) when they show less than there is. journalctl then ends with status 0."""


class CommandLog(NamedTuple):
    """What a log command printed. `text` may hold something even when it did not end well."""

    outcome: str
    reason: str
    cure: str
    text: bytes
    cut: bool


class Ran(NamedTuple):
    """status None: it was stopped, for its time or its output; what it had printed by then is kept."""

    status: int | None
    out: bytes
    err: bytes
    cut: bool


def run_bounded(argv: Sequence[str], timeout_s: float, limit: int = OUTPUT_BYTES) -> Ran:
    """Run a command in a process group of its own, bounded in time and output. Raises OSError when it cannot start."""
    places = [argv[0]] if argv[0].startswith("/") else [f"{folder}/{argv[0]}" for folder in os.get_exec_path()]
    program = next((path for path in places if os.access(path, os.X_OK)), None)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    pool = Pool()
    child = pool.start([program, *argv[1:]], timeout_s, limit)
    pool.wait()
    return Ran(child.rc if child.ending == "exited" else None, bytes(child.stdout), bytes(child.stderr), child.ending != "exited")


def read_log(argv: Sequence[str], patience_s: float, limit: int, cure: str) -> CommandLog:
    """The newest `limit` bytes that `argv` prints, and how it went. `cure` is what helps against a refusal."""
    said = " ".join(argv)
    try:
        ran = run_bounded(argv, patience_s)
    except OSError as error:
        outcome, reason, _ = os_error_outcome(error)
        return CommandLog(outcome, f"{argv[0]} is not installed" if outcome == "ABSENT" else reason, "", b"", cut=False)
    # "-- No entries --", "-- Boot … --"
    empty = not any(line and not line.startswith(b"-- ") for line in ran.out.splitlines())
    complaint = ran.err.decode("utf-8", "backslashreplace").strip()[:300]
    text, cut = b"" if empty else ran.out, ran.cut
    if len(text) > limit:
        text, cut = text[text.find(b"\n", len(text) - limit) + 1 :], True
    if any(word in ran.err.lower() for word in REFUSED):
        return CommandLog("DENIED" if empty else "PARTIAL", complaint, cure, text, cut)
    if ran.status is None:
        return CommandLog("TIMEOUT", f"{said} did not end within {patience_s:g} s", "", text, cut)
    if not empty:
        reason = f"only the newest {len(text)} bytes were kept" if cut else ""
        return CommandLog("PARTIAL" if cut else "OK", reason, "", text, cut)
    if ran.status:
        return CommandLog("UNSUPPORTED", f"{said} ended with {ran.status}: {complaint}", "", text, cut)
    return CommandLog("EMPTY", complaint or f"{said} printed nothing", "", text, cut)
