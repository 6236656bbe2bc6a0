"""Which engines there are, how to recognise them, and what their processes are to each other. Pure: no I/O.

Adding an engine is one file that builds an EngineProfile, and its name in PROFILES.
"""

from __future__ import annotations

from collections.abc import Sequence

from forensics.engines import generic, ray, sglang, torch, trtllm, vllm
from forensics.engines._argv import WORLD_LIMIT, options
from forensics.engines._grouping import identify as _identify
from forensics.engines._profile import EngineProfile, FramePattern, LiveExpr, Placed, ProgressNames, Stated, Table, WatchedFunction
from forensics.engines.progress import ProgressReading, held, moved, read_progress
from forensics.model import EngineInstance, ProcessInfo

PROFILES: tuple[EngineProfile, ...] = (
    vllm.PROFILE,
    sglang.PROFILE,
    trtllm.PROFILE,
    ray.TGI,
    ray.DYNAMO,
    torch.PROFILE,
    ray.PROFILE,
    generic.PROFILE,
)
"""Most specific first: what an earlier profile claims, a later one never sees."""

COMMON_ENV = (
    "TZ",
    "LANG",
    "HOSTNAME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_TIMEOUT",
    "NCCL_SOCKET_IFNAME",
    "NCCL_CUMEM_ENABLE",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "GLOO_SOCKET_IFNAME",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_ENABLE_MONITORING",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_FR_BUFFER_SIZE",
    "RAY_CGRAPH_get_timeout",
    "SLURM_JOB_ID",
)
"""Environment names that are safe and useful whatever the engine. Each is named: a pattern would let a key through one day."""

ENV_ALLOW: tuple[str, ...] = tuple(dict.fromkeys((*COMMON_ENV, *(name for each in PROFILES for name in each.env_allow))))


def profile(kind: str) -> EngineProfile:
    """The profile of that name. Raises KeyError with the names that exist."""
    for each in PROFILES:
        if each.name == kind:
            return each
    raise KeyError(f"no engine profile {kind!r}; there are {', '.join(each.name for each in PROFILES)}")


def identify(processes: Sequence[ProcessInfo], kinds: Sequence[str] = ()) -> list[EngineInstance]:
    """Group processes (of any number of nodes) into engines, e0, e1, … in a stable order.

    Works on what there is: a whole process table, a `ps` listing, or nothing but the names in log prefixes.
    `kinds` restricts the profiles that are asked.
    """
    return _identify(processes, [each for each in PROFILES if not kinds or each.name in kinds])


__all__ = [
    "COMMON_ENV",
    "ENV_ALLOW",
    "PROFILES",
    "WORLD_LIMIT",
    "EngineProfile",
    "FramePattern",
    "LiveExpr",
    "Placed",
    "ProgressNames",
    "ProgressReading",
    "Stated",
    "Table",
    "WatchedFunction",
    "held",
    "identify",
    "moved",
    "options",
    "profile",
    "read_progress",
]
