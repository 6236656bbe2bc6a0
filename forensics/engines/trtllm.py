"""TensorRT-LLM (PyTorch backend): trtllm-serve in front, one rank for each MPI process that runs the executor loop.

Ranks come from the launcher's environment (Open MPI, PMI, Slurm) in a process table and from "[RANK n]" in log lines
(logger.py; "[MPI_Rank n]" before 0.20). A world of one prints no rank.
"""

from __future__ import annotations

from forensics.engines._argv import WORLD_LIMIT, ancestors, command, number, option, program
from forensics.engines._generic_frames import FRAMES
from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Stated, Table
from forensics.model import ProcessInfo, RankId, Role

_RANKS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))
_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "srun")
_LAUNCHED = ("trtllm-serve", "trtllm-llmapi-launch")


def serves(info: ProcessInfo) -> bool:
    """Whether a command line starts a server."""
    run = program(command(info))
    name = run.name.rpartition("/")[2]
    return (run.kind == "script" and name == "trtllm-serve") or (run.kind == "module" and run.name == "tensorrt_llm.commands.serve")


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim the server, and the MPI processes that it started or that were started with it."""
    if _launches(info):
        return Placed(Role.LAUNCHER, None, "launcher")
    if serves(info):
        mine = _rank(info)
        # under trtllm-llmapi-launch every rank runs the same command line; all but the first only work
        return Placed(Role.WORKER, mine, f"worker {mine.rank}") if mine and mine.rank else Placed(Role.API, mine, "server")
    run = program(command(info))
    if (
        run.kind == "module"
        and run.name == "mpi4py.futures.server"
        and any(serves(each) for each in (*ancestors(info, table), *table.values()))
    ):
        mine = _rank(info) or RankId()
        return Placed(Role.WORKER, mine, f"worker {mine.rank}" if mine.rank is not None else "worker")
    return None


def _launches(info: ProcessInfo) -> bool:
    """Whether it starts the server, once for each rank."""
    argv = command(info)
    return bool(argv) and _base(argv[0]) in _LAUNCHERS and any(_base(word) in _LAUNCHED for word in argv[1:])


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def commanded(info: ProcessInfo) -> Stated | None:
    """What the launcher was asked for, or what the server was: a launcher starts as many ranks as the server's sizes multiply to."""
    argv = list(command(info))
    if _launches(info):
        own = argv[: next(i for i, word in enumerate(argv) if i and _base(word) in _LAUNCHED)]
        slurm = _base(argv[0]) == "srun"
        ranks = number(own, "--ntasks", "-n") if slurm else number(own, "--np", "-np", "-n", "--n")
        nodes = number(own, "--nodes", "-N") if slurm else None
        return Stated(world=_within(ranks), nodes=_within(nodes))
    size = next((n for _, name in _RANKS if (text := info.env.get(name, "")).isdigit() and (n := _within(int(text[:9])))), None)
    if not serves(info) or not info.argv or {option(argv, "--config"), option(argv, "--extra-llm-api-options")} != {None}:
        return Stated(world=size) if size else None  # a YAML file may state anything
    tp, pp = number(argv, "--tp-size", "--tp") or 1, number(argv, "--pp-size", "--pp") or 1
    return Stated(world=size or _within(tp * pp), tp=tp)


def _within(size: int | None) -> int | None:
    return size if size and size <= WORLD_LIMIT else None


def _rank(info: ProcessInfo) -> RankId | None:
    for rank_name, size_name in _RANKS:
        rank, size = info.env.get(rank_name, ""), info.env.get(size_name, "")
        if rank.isdigit() and size.isdigit():
            return RankId(rank=int(rank), world_size=int(size))
    return None


PROFILE = EngineProfile(
    name="trtllm",
    place=place,
    packages=("tensorrt_llm",),
    version=lambda info: info.packages.get("tensorrt-llm", ""),
    listens=lambda info: (number(command(info), "--port") or (8000 if info.argv else None)) if serves(info) else None,
    commanded=commanded,
    failures_end_it=True,
    health_paths=("/health", "/health_generate"),
    metrics_paths=("/prometheus/metrics",),
    progress=ProgressNames(
        requests=("trtllm_request_success_total",),
        kv_usage=("trtllm_kv_cache_utilization",),
        step_seconds=("trtllm_time_per_output_token_seconds",),
    ),
    frames=FRAMES,
    env_allow=("TLLM_LOG_LEVEL", "TLLM_HANG_DIAGNOSTICS", "TLLM_HANG_DETECTOR_THRESHOLD", "TLLM_RANK_CRASH_HARD_KILL_GRACE"),
)
