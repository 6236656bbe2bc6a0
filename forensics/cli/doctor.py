"""forensics doctor"""

from __future__ import annotations

import sys
from pathlib import Path

MARKS = {True: "ok  ", False: "LACK", None: "-   "}


def doctor_command(out: Path) -> int:
    """Print a line for each check, with its cure where something lacks. Returns 0, or 3 when something lacks."""
    from forensics.capture.doctor import examine
    from forensics.capture.progress import plain

    lacking = []
    for check in examine(out):
        sys.stdout.write(f"{MARKS[check.ok]} {check.name:<15} {plain(check.detail, 200)}\n")
        if check.cure and check.ok is not True:
            sys.stdout.write(f"     {'':<15} cure: {plain(check.cure, 300)}\n")
        sys.stdout.flush()
        if check.ok is False:
            lacking.append(check.name)
    sys.stdout.write(f"lacking: {', '.join(lacking)}\n" if lacking else "nothing lacks\n")
    return 3 if lacking else 0
