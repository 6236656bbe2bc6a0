"""Ray and what else is known by its logs alone: no processes of an engine, but something that a folder of logs may be all about.

A raylet, a Dynamo frontend or a TGI launcher works for an engine (vLLM, SGLang, TensorRT-LLM) or for a program of the user's own.
In a process table they claim nothing: the engine under them does. Where a folder holds only their lines, they are its subject.
"""

from __future__ import annotations

from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Table
from forensics.model import ProcessInfo


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim nothing: see above."""
    return None


PROFILE = EngineProfile(name="ray", place=place, by_logs_only=True)
DYNAMO = EngineProfile(name="dynamo", place=place, by_logs_only=True, health_paths=("/health", "/live"))
TGI = EngineProfile(
    name="tgi",
    place=place,
    by_logs_only=True,
    failures_end_it=True,
    progress=ProgressNames(
        requests=("tgi_request_success",),
        generation_tokens=("tgi_request_generated_tokens_sum",),
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
    ),
)
