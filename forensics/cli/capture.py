"""forensics capture"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forensics.capture.session import CaptureOptions

DONE, INCOMPLETE = 0, 3
_SHOWN = 12


def capture_command(options: CaptureOptions, *, quiet: bool = False, analyze: bool = False) -> int:
    """Capture, print the bundle's path as the last line of stdout. Returns 0, or 3 with what is missing on stderr.

    Raises CaptureError with its cure when nothing could be captured.
    """
    from forensics.capture.progress import display, plain
    from forensics.capture.session import capture
    from forensics.cli import as_usual

    as_usual()  # a capture raises and lowers its priority by itself
    show = None if quiet else display()
    try:
        result = capture(options, show)
    finally:
        if show:
            show.close()
    code = INCOMPLETE if result.incomplete else DONE
    if result.incomplete:
        sys.stderr.write("incomplete:\n")
        for line in result.incomplete[:_SHOWN]:
            sys.stderr.write(f"  {plain(line, 300)}\n")
        if len(result.incomplete) > _SHOWN:
            sys.stderr.write(f"  and {len(result.incomplete) - _SHOWN} more, all in the bundle's attempts.jsonl\n")
    if analyze:
        from forensics.cli.analyze import analyze_command

        code = max(code, analyze_command([str(result.path)], None, "terminal", None))
    sys.stdout.write(f"{result.path}\n")
    sys.stdout.flush()
    return code
