"""Settings that change what an incident looks like, or what may be concluded from it; each from the engine's own source.

They are named beside the configuration and are no findings: a legitimate choice is no fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from forensics.model.times import duration

LIMITS: dict[str, float] = {
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": 300,
    "VLLM_ENGINE_ITERATION_TIMEOUT_S": 60,
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": 480,
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": 480,
    "RAY_CGRAPH_GET_TIMEOUT": 300,
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": 600,
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": 300,
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": 300,
    "TLLM_HANG_DETECTOR_THRESHOLD": 300,
    "WATCHDOG_TIMEOUT": 300,
}
"""Limits of work under way, in seconds, by name in upper case; the greatest default of the versions that have them."""

DEFAULTS: dict[str, str] = {
    **{name: f"{limit:g}" for name, limit in LIMITS.items() if name != "WATCHDOG_TIMEOUT"},
    "watchdog_timeout": f"{LIMITS['WATCHDOG_TIMEOUT']:g}",
    "VLLM_RINGBUFFER_WARNING_INTERVAL": "60",
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "5",
    "VLLM_ENGINE_READY_TIMEOUT_S": "600",
    "VLLM_MQ_MAX_CHUNK_BYTES_MB": "16",
    "VLLM_LOG_STATS_INTERVAL": "10",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "0",
    "VLLM_SERVER_DEV_MODE": "0",
    "VLLM_USE_SPINLOOP_EXT": "0",
    "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "1",
    "SGLANG_HEALTH_CHECK_TIMEOUT": "20",
    "NCCL_RAS_ENABLE": "1",
    "TORCH_NCCL_ENABLE_MONITORING": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
}
"""What a setting is where nobody sets it; vLLM 0.32 envs.py, SGLang 0.5 environ.py, NCCL 2.24, torch ProcessGroupNCCL.hpp."""

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
SWITCHES: dict[str, tuple[tuple[str, ...], str]] = {
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": (
        _ON,
        "the API server lives on when the engine is dead, and its metrics keep answering with the last values",
    ),
    "VLLM_SERVER_DEV_MODE": (_ON, "anybody who reaches the port can put the engine to sleep or call its workers"),
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": (_OFF, "/health answers 200 without asking the scheduler: it says nothing of progress"),
    "SGLANG_DIAG_BYPASS_HEALTH_GENERATE": (_ON, "/health answers 200 always: it says nothing of progress"),
    "NCCL_RAS_ENABLE": (_OFF, "NCCL cannot be asked which rank is behind"),
    "TORCH_NCCL_ENABLE_MONITORING": (_OFF, "nothing notices a watchdog of NCCL that is stuck itself"),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": (_OFF, "no flight recorder: a collective that hangs is not recorded"),
    "TORCH_FR_BUFFER_SIZE": (_OFF, "no flight recorder: a collective that hangs is not recorded"),
}


def risk(name: str, values: Sequence[str]) -> str:
    """Why one of these values of a setting matters in an incident, or ""."""
    if (switch := SWITCHES.get(name)) and any(v.lower() in switch[0] for v in values):
        return switch[1]
    if (found := raised(name, values)) is not None:
        value, default = found
        return f"{duration(value)} is above the default of {duration(default)}: a standstill is noticed that much later, and none is cured"
    return ""


def raised(name: str, values: Sequence[str]) -> tuple[float, float] | None:
    """(the greatest of these values, its default) of a limit on work under way that was raised, in seconds; None for all else."""
    limit = LIMITS.get(name.upper())
    above = [s for v in values if limit is not None and (s := _seconds(v)) is not None and s > limit]
    return (max(above), limit) if above and limit is not None else None


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
