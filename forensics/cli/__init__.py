"""The command line: typer, one thin file per command, heavy imports inside functions."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Entry of the `forensics` command. Exit codes: 0 done, 1 error, 2 wrong usage, 3 incomplete, 4 nothing to work on."""
    if sys.argv[1:2] == ["capture"]:
        promptly()
    from forensics.cli.app import app

    # unwinds, so that nothing of ours stays behind: the default ends this process and leaves its children running
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except KeyboardInterrupt:
        sys.stderr.write("forensics: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # whoever read our output has gone (| head); without this Python complains once more while it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        cure = getattr(error, "cure", None)
        if cure is None:  # not one of ours: a defect, and its traceback is what a report of it needs
            raise
        complain(str(error), cure)
        sys.exit(getattr(error, "exit_code", 1))


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


_usual_priority: int | None = None


def promptly() -> None:
    """Raise our priority while modules load, where that is permitted: on a saturated host a start takes seconds otherwise."""
    global _usual_priority
    try:
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, max(-20, usual - 10))
        _usual_priority = usual
    except OSError:
        pass  # not permitted


def as_usual() -> None:
    """Undo `promptly`."""
    global _usual_priority
    if _usual_priority is not None:
        os.setpriority(os.PRIO_PROCESS, 0, _usual_priority)
        _usual_priority = None


def complain(message: str, cure: str = "") -> None:
    """Say on stderr what went wrong and what helps."""
    sys.stderr.write(f"forensics: {message}\n" + (f"  cure: {cure}\n" if cure else ""))
