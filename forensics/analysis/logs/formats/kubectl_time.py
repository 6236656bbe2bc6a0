"""What `kubectl logs --timestamps` and `docker logs -t` put in front."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="kubectl-time",
    wrapper=True,
    starts="0123456789",
    pattern=re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))(?: |$)"),
    stamp="iso",
    order=60,
    samples=(
        "2026-09-01T10:00:00.123456789Z (EngineCore pid=280) INFO 09-01 10:00:00 [core.py:1] x",
        "2026-09-01T10:00:00.123456789Z     raise RuntimeError()",
    ),
    negatives=("2026-09-01T10:00:00.123456789 no zone", "2026-09-01T10:00:00Z: colon", "x 2026-09-01T10:00:00Z "),
)
