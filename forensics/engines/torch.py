"""Plain torch.distributed: torchrun, torch.distributed.run and other launchers, and their ranks.

Ranks are read from the environment that the launcher sets (torch/distributed/elastic/agent/server/local_elastic_agent.py:
RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A rank that retitled itself has lost it.
"""

from __future__ import annotations

from forensics.engines._argv import WORLD_LIMIT, ancestors, command, is_python, multiprocessing_helper, number, option, program
from forensics.engines._generic_frames import FRAMES
from forensics.engines._profile import EngineProfile, Placed, Stated, Table
from forensics.engines.generic import PROGRESS, listens
from forensics.model import ProcessInfo, RankId, Role

_AGENT_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "deepspeed.launcher.launch",
    "accelerate.commands.launch",
)
_AGENT_SCRIPTS = ("torchrun", "torch/distributed/run.py", "torch/distributed/launch.py", "accelerate", "deepspeed")
_RANK_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""The launcher's own names first: under a scheduler the others may describe the allocation and not the program."""


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim the agent, and every process to which a rank was given."""
    if _is_agent(info):
        return Placed(Role.LAUNCHER, None, "agent")
    if not is_python(info):
        return None
    above = ancestors(info, table)
    agent = next((each for each in above if _is_agent(each)), None)
    helper = multiprocessing_helper(info)
    mine = _rank(info)
    if helper and agent and mine is None:
        return Placed(Role.HELPER, None, helper)
    if mine is None:
        # not allowed to read the environment: a direct child of the agent is a rank all the same
        if agent is None or info.ppid != agent.pid:
            return None
        return Placed(Role.WORKER, RankId(rank=number(command(info), "--local-rank", "--rank")), "worker")
    if agent is None and not info.env.get("MASTER_ADDR"):
        return None
    if any(not _is_agent(each) and is_python(each) and _rank(each) == mine for each in above):
        return Placed(Role.HELPER, None, helper or "child")  # a data loader inherits its parent's rank
    return Placed(Role.WORKER, mine, f"worker {mine.rank}")


def _is_agent(info: ProcessInfo) -> bool:
    run = program(command(info))
    if run.kind == "module":
        return run.name in _AGENT_MODULES
    return run.kind == "script" and any(run.name == name or run.name.endswith("/" + name) for name in _AGENT_SCRIPTS)


def _rank(info: ProcessInfo) -> RankId | None:
    for rank_name, size_name in _RANK_NAMES:
        rank, size = info.env.get(rank_name, ""), info.env.get(size_name, "")
        if rank.isdigit() and size.isdigit():
            return RankId(rank=int(rank), world_size=int(size))
    return None


def commanded(info: ProcessInfo) -> Stated | None:
    """What the agent was asked for (an elastic range of nodes says nothing), or what it told its ranks."""
    if not _is_agent(info):
        size = info.env.get("WORLD_SIZE", "")
        return Stated(world=int(size)) if _rank(info) and size.isdigit() and 0 < int(size[:9]) <= WORLD_LIMIT else None
    argv = command(info)
    asked = option(argv, "--nnodes")
    nodes, local = number(argv, "--nnodes") if asked else 1, number(argv, "--nproc-per-node")
    world = nodes * local if nodes and local and nodes * local <= WORLD_LIMIT else None
    return Stated(world=world, nodes=nodes if nodes and nodes <= WORLD_LIMIT else None, node_rank=number(argv, "--node-rank"))


def together(info: ProcessInfo) -> str:
    if "MASTER_ADDR" not in info.env or _is_agent(info):
        return ""
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
    return ":".join(info.env.get(name, "") for name in names)


PROFILE = EngineProfile(
    name="torchrun",
    place=place,
    version=lambda info: info.packages.get("torch", ""),
    together=together,
    commanded=commanded,
    listens=listens,
    progress=PROGRESS,
    frames=FRAMES,
    env_allow=(
        *(name for pair in _RANK_NAMES for name in pair),
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "ROLE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
    ),
)
