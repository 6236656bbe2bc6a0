"""What `kubectl logs --prefix` puts in front."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="pod-prefix",
    wrapper=True,
    starts="[",
    pattern=re.compile(r"\[pod/(?P<host>[\w.\-]{1,253})(?:/[\w.\-]{1,253})?\] ?"),
    exact=True,
    order=5,
    samples=("[pod/vllm-0/engine] (EngineCore pid=280) INFO 09-01 10:00:00 [core.py:1] x", "[pod/vllm-0/engine] "),
    negatives=("[pods/vllm-0/engine] x", "[pod] x", "pod/vllm-0/engine x"),
)
