"""TensorRT-LLM's C++ side: two brackets and no time."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format

FORMAT = Format(
    name="trtllm-cpp",
    wrapper=False,
    starts="[",
    pattern=re.compile(
        r"\[TensorRT-LLM\]\[(?P<level>TRACE|DEBUG|INFO|WARNING|ERROR|FATAL)\](?:\[(?:RANK|Rank|rank) ?(?P<rank>\d{1,6})\])? ?"
    ),
    engine="tensorrt-llm",
    exact=True,
    order=10,
    samples=(
        "[TensorRT-LLM][ERROR] Assertion failed: x (/src/cpp/tensorrt_llm/runtime/utils.cpp:12)",
        "[TensorRT-LLM][INFO] [batchmgr] Capacity scheduler allows 1 requests",
        "[TensorRT-LLM][WARNING][RANK 2] x",
        "[TensorRT-LLM][INFO] Rank 2 is using GPU 2",
    ),
    negatives=("[TensorRT-LLM] TensorRT-LLM version: 1.1.0", "[TensorRT][ERROR] x"),
)
