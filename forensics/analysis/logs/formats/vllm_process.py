"""The name of a vLLM process in front of what it prints without its logger: uvicorn's lines, prints, tracebacks."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled
from forensics.analysis.logs.formats.vllm import name_of


def _take(out: Peeled, m: re.Match[str]) -> None:
    out.process = name_of(m["process"])


FORMAT = Format(
    name="vllm-process",
    wrapper=True,
    starts="(",
    pattern=re.compile(
        r"\((?P<process>(?:APIServer|ApiServer_\d{1,4}|EngineCore|Worker|VllmWorker|MainProcess|VLLM_DP_Coordinator|DPCoordinator"
        r"|(?:Spawn|Fork|ForkServer)?Process-\d{1,5})[\w\-]{0,60}(?: [TPDE]P\d{1,5}| rank=\d{1,6})?),? pid=(?P<pid>\d{1,9})\) ?"
    ),
    engine="vllm",
    take=_take,
    order=12,
    samples=(
        '(APIServer pid=1) INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 200 OK',
        "(ApiServer_0 pid=12) INFO:     Application startup complete.",
        "(EngineCore_DP1 pid=77) Traceback (most recent call last):",
        "(VllmWorker-1 pid=9) Process VllmWorker-1:",
    ),
    negatives=(
        "(RayWorkerWrapper pid=1202) some print",
        "(Workers pid=soon) x",
        "(APIServer) no pid",
        "APIServer pid=1 no parenthesis",
    ),
)
