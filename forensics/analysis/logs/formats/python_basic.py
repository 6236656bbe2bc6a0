"""Python's logging without a configuration: LEVEL:logger:message."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled


def engine_of(logger: str) -> str:
    """The engine whose logger has this name."""
    head = logger.partition(".")[0]
    known = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "tensorrt-llm", "ray": "ray", "torch": "torch", "dynamo": "dynamo"}
    return known.get(head, "")


def _take(out: Peeled, m: re.Match[str]) -> None:
    out.engine = engine_of(m["logger"]) or out.engine


FORMAT = Format(
    name="python-basic",
    wrapper=False,
    starts="DIWECF",
    pattern=re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):(?P<logger>[A-Za-z_][\w.]{0,100}):(?! *\d+[,)])"),
    take=_take,
    order=30,
    samples=("INFO:root:started", "WARNING:vllm.engine:queue is long", "ERROR:asyncio:Task exception was never retrieved"),
    negatives=("INFO:     Application startup complete.", "ERROR: no logger", "NOTE:root:x"),
)
