"""forensics diff: two captures beside each other.

Exit status:
  0  done
  2  wrong usage: no such path, unknown format
  3  done, but whether the load was comparable is not known
  4  a side holds nothing that any parser knows
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forensics.cli import complain

OK, USAGE, INCOMPLETE, NOTHING = 0, 2, 3, 4
FORMATS = ("terminal", "json", "markdown")


def diff_command(before: Path, after: Path, fmt: str) -> int:
    """Compare two sides and print what changed."""
    if fmt not in FORMATS:
        complain(f"there is no format {fmt!r}", f"choose {', '.join(FORMATS)}")
        return USAGE
    if lost := [str(p) for p in (before, after) if not os.path.lexists(p)]:
        complain(f"no such file or directory: {', '.join(lost)}")
        return USAGE
    from forensics.analysis.compare import compare
    from forensics.analysis.ingest import NothingToAnalyze
    from forensics.report.comparison import render
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    try:
        comparison = compare([before], [after])
    except NothingToAnalyze as error:
        complain(one_line(error))
        return NOTHING
    text = render(comparison, fmt)
    sys.stdout.write(encodable(text, sys.stdout.encoding or "ascii"))
    known = any(c.topic == "load" and c.before is not None and c.after is not None for c in comparison.changes)
    return OK if known else INCOMPLETE
