"""vLLM's own lines: V1 with the process in front, older ones without, and the one bracket of the time before V1."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled

_SPACED = re.compile(r" [TPDE]P\d")


def name_of(prefix: str) -> str:
    """Older prefixes put the place behind a space: "VllmWorker TP1", "VllmWorker rank=1"."""
    if " " not in prefix:
        return prefix
    return prefix.replace("VllmWorker ", "Worker_", 1) if _SPACED.search(prefix) else prefix.replace(" rank=", "-")


def _take(out: Peeled, m: re.Match[str]) -> None:
    out.engine = "vllm"
    if m["old"]:
        out.at = m["old"]
    if m["process"]:
        out.process = name_of(m["process"])


FORMAT = Format(
    name="vllm",
    wrapper=False,
    starts="(DIWEC",
    pattern=re.compile(
        r"(?:\((?P<process>[A-Za-z_][\w\-]{0,80}(?: [TPDE]P\d{1,5}| rank=\d{1,6})?),? pid=(?P<pid>\d{1,9})\) )?"
        r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d)"
        r"(?: \[(?P<at>[^\]\s]{1,200}:\d{1,7})\]| (?P<old>[\w./\-]{1,200}:\d{1,7})\])? ?"
    ),
    stamp="month-day",
    take=_take,
    exact=True,
    order=10,
    samples=(
        "(EngineCore pid=280) INFO 09-01 09:32:00 [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: model='/m'",
        "(Worker_DP0_TP1_EP1 pid=7) ERROR 09-01 10:00:00 [multiproc_executor.py:1063] WorkerProc hit an exception.",
        "(VllmWorker TP1 pid=31) INFO 06-30 11:00:00 [gpu_worker.py:12] loaded",
        "(VllmWorker rank=1 pid=417) INFO 04-11 23:00:00 [shm_broadcast.py:264] msg",
        "(VllmWorkerProcess pid=99) INFO 02-01 06:36:05 multiproc_worker_utils.py:215] Worker ready; awaiting tasks",
        "INFO 02-01 06:36:05 llm_engine.py:921] Initializing an LLM engine (v0.6.6)",
        "DEBUG 10-13 09:06:25 [v1/executor/multiproc_executor.py:558] Parent process exited, terminating worker",
        "WARNING 10-13 09:06:25 [__init__.py:12] ",
    ),
    negatives=(
        "INFO: 09-01 10:00:00 [core.py:112] not its colon",
        "INFO 2026-09-01 10:00:00,123 serve 12 -- a full date",
        "'INFO 09-01 09:32:00 [core.py:112] a quotation'",
        "INFO 9-1 09:32:00 [core.py:112] x",
        "INFORMATION 09-01 09:32:00",
    ),
)
