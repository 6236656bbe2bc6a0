"""Coverage-guided fuzzing of the readers of log lines, run by hand:

    pip install atheris            # into an environment of its own; the project does not depend on it
    python tests/fuzz/fuzz_logs.py -max_total_time=600 -timeout=5 corpus/

What it finds becomes a test in tests/analysis/logs. Seeds are written into the corpus folder where that is empty.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["forensics.analysis.logs", "forensics.analysis.tracebacks", "forensics.analysis.times"]):
    from forensics.analysis.logs import FORMATS, Hint, peel_all, survey, unwrap
    from forensics.analysis.times import Calendar
    from forensics.analysis.tracebacks import read_traceback

CALENDAR = Calendar(reference_ns=1_788_256_800_000_000_000)


def one(data: bytes) -> None:
    inside = bytes(unwrap(data))
    clocks, hint = survey(inside, CALENDAR, 1), Hint()
    near = None
    for line in inside.split(b"\n")[:50]:
        for out in peel_all(line.decode("utf-8", "replace"), hint):
            near = clocks.at(out, near) or near
            assert out.rank is None or out.rank >= 0
            assert out.pid is None or out.pid >= 0
    text = data.decode("utf-8", "replace")
    for pid in (None, 7):
        read_traceback(text, pid)


def main() -> None:
    folders = [Path(a) for a in sys.argv[1:] if not a.startswith("-")]
    if folders and folders[0].is_dir() and not any(folders[0].iterdir()):
        for i, line in enumerate(s for f in FORMATS for s in f.samples):
            (folders[0] / f"seed-{i}").write_text(
                line + '\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n'
            )
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
