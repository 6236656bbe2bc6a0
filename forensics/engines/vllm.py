"""vLLM (v1 engine): one API server or several, a core for each data-parallel replica, one worker for each rank.

Titles are written by utils/system_utils.py:set_process_title as PREFIX::NAME, where PREFIX is VLLM_PROCESS_NAME_PREFIX and
NAME carries only dimensions larger than 1 (multiproc_executor.py:setup_proc_title_and_log_prefix). Log prefixes carry
almost the same names, without PREFIX and partly in another spelling. A lone API server and a headless parent keep the
command line that started them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from forensics.engines._argv import WORLD_LIMIT, ancestors, command, is_python, multiprocessing_helper, number, option, program
from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Stated, Table
from forensics.engines._vllm_frames import FRAMES
from forensics.engines._vllm_functions import FUNCTIONS
from forensics.engines._vllm_live import LIVE, SETTINGS, running
from forensics.model import ProcessInfo, RankId, Role

_DIMENSIONS = r"(?:_(?:DP|PP|PCP|TP|DCP|EP)\d+)*"
_NAMES = (
    # newest first within a role; the role of the first full match wins
    (Role.WORKER, rf"Worker{_DIMENSIONS}"),
    (Role.WORKER, r"VllmWorker(?:Process)?(?:[-_ ](?:rank=)?(?P<rank>\d+))?"),
    (Role.WORKER, r"RayWorker(?:Proc|Wrapper)\b.*"),
    (Role.CORE, r"EngineCore(?:_(?:DP)?(?P<dp>\d+))?(?:Actor.*)?"),
    (Role.CORE, r"DP(?:MoE)?EngineCore(?:Proc|Actor).*"),
    (Role.API, r"A(?:PI|pi)Server(?:_(?:DP)?(?P<api>\d+))?"),
    (Role.COORDINATOR, r"(?:VLLM_)?DP_?Coordinator"),
    (Role.LAUNCHER, r"MainProcess"),
)
_PATTERNS = tuple((role, re.compile(pattern + r"\Z")) for role, pattern in _NAMES)
_TITLE = re.compile(r"[\w.\-]+::(?P<name>[A-Z].*)")
_CUT_COMM = (("Worker", Role.WORKER), ("EngineCor", Role.CORE), ("APIServer", Role.API), ("DPCoordin", Role.COORDINATOR))
"""comm is cut to 15 characters; it is all that is left of a process whose command line cannot be read."""
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main", "vllm")

_SIZE_NAMES = "(?:tensor|pipeline|prefill_context|data)_parallel_size(?:_local)?|data_parallel_start_rank|nnodes|node_rank"
_SIZE = re.compile(rf"\b({_SIZE_NAMES})['\"]?[=:] ?(\d{{1,5}})\b")
_NUMBERS = (
    ("data_parallel_size", "--data-parallel-size", "-dp"),
    ("data_parallel_size_local", "--data-parallel-size-local", "-dpl"),
    ("data_parallel_start_rank", "--data-parallel-start-rank", "-dpr"),
    ("nnodes", "--nnodes", "-n"),
    ("node_rank", "--node-rank", "-r"),
)


@dataclass(frozen=True)
class Sizes:
    """Parallel sizes as the command line states them. `stated` is False where no command line was found."""

    tp: int = 1
    pp: int = 1
    pcp: int = 1
    dp: int = 1
    stated: bool = False

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.pcp


def serves(info: ProcessInfo) -> bool:
    """Whether a command line starts a server (and not `vllm bench` or another subcommand)."""
    run = program(command(info))
    if run.kind == "module" and run.name in _MODULES:
        return run.name.endswith("api_server") or run.arguments[:1] == ("serve",)
    if run.kind == "script":
        name = run.name.rpartition("/")[2]
        return (name == "vllm" and run.arguments[:1] == ("serve",)) or run.name.endswith(("vllm/entrypoints/openai/api_server.py",))
    return False


def sizes(info: ProcessInfo, table: Table) -> Sizes:
    """Sizes from the nearest ancestor (or the process itself) that serves; failing that, from the only server of its session.

    Where no parents are known at all (a log), that is the node's only server.
    """
    found = next((each for each in (info, *ancestors(info, table)) if serves(each)), None)
    if found is None:
        near = [each for each in table.values() if info.ppid is None or (info.session is not None and each.session == info.session)]
        servers = [each for each in near if serves(each)]
        found = servers[0] if len(servers) == 1 else None
    if found is None or option(command(found), "--config") is not None:  # a YAML file may state anything
        return Sizes()
    argv = command(found)
    return Sizes(
        tp=number(argv, "--tensor-parallel-size", "-tp") or 1,
        pp=number(argv, "--pipeline-parallel-size", "-pp") or 1,
        pcp=number(argv, "--prefill-context-parallel-size", "-pcp") or 1,
        dp=number(argv, "--data-parallel-size", "-dp") or 1,
        stated=bool(found.argv),  # a `ps` line may be cut anywhere
    )


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim a process of vLLM."""
    named = _named(info)
    if named:
        role, name, fields = named
        if role is Role.WORKER:
            return _worker(info, name, fields, table)
        if role is Role.CORE:
            return _core(info, fields, table)
        index = fields.get("api") or ""
        labels = {Role.API: f"api {index}".strip(), Role.COORDINATOR: "coordinator", Role.LAUNCHER: "launcher"}
        return Placed(role, None, labels[role])
    if serves(info):
        # with several API servers (or none, on a follower node) the process that was started only looks after the others
        below = [_named(child) for child in table.values() if child.ppid == info.pid]
        alone = not any(child and child[0] is Role.API for child in below) and option(command(info), "--headless") is None
        return Placed(Role.API, None, "api") if alone else Placed(Role.LAUNCHER, None, "launcher")
    if not is_python(info):
        return None
    helper = multiprocessing_helper(info)
    if helper:
        ours = any(_named(each) or serves(each) for each in ancestors(info, table))
        return Placed(Role.HELPER, None, helper) if ours else None
    if any(child.ppid == info.pid and (_named(child) or (None,))[0] is Role.CORE for child in table.values()):
        return Placed(Role.API, None, "client")  # a program of the user's own around LLM() or AsyncLLM
    return None


def _named(info: ProcessInfo) -> tuple[Role, str, dict[str, str | None]] | None:
    """Recognise a title, or the name that a log prefix gives. Returns (role, name, fields of the pattern)."""
    title = info.title or (info.argv[0] if info.argv else info.comm)
    titled = _TITLE.match(title)
    if not titled and info.argv:
        return None  # a bare name proves something only where a log line gives nothing else
    name = titled["name"] if titled else title
    for role, pattern in _PATTERNS:
        found = pattern.match(name)
        if found:
            return role, name, found.groupdict()
    if titled and not info.argv:
        return next(((role, "", {}) for cut, role in _CUT_COMM if name.startswith(cut)), None)
    return None


def _core(info: ProcessInfo, fields: dict[str, str | None], table: Table) -> Placed:
    number_text = fields.get("dp")
    dp = int(number_text) if number_text else None
    stated = sizes(info, table)
    rank = RankId(dp=dp) if dp is not None else None
    below = [each for each in table.values() if each.ppid == info.pid]
    if stated.stated and stated.world == 1 and not any(_is_worker(each) or multiprocessing_helper(each) == "starting" for each in below):
        # a world of one runs inside the core itself (UniProcExecutor): the core is rank 0
        rank = RankId(rank=0, world_size=1, tp=0, pp=0, dp=dp)
    return Placed(Role.CORE, rank, "core" if dp is None else f"core DP{dp}")


def _worker(info: ProcessInfo, name: str, fields: dict[str, str | None], table: Table) -> Placed:
    dims = _dimensions(name)
    stated = sizes(info, table)
    siblings = [each for each in table.values() if _is_worker(each) and each.ppid == info.ppid]
    shown = [_dimensions(_title(each)) for each in siblings] or [dims]
    if not name and stated.stated and stated.tp == stated.world <= WORLD_LIMIT:
        # a zombie keeps only the cut name; the one rank that nobody else holds is its own
        missing = set(range(stated.tp)) - {each["TP"] for each in shown if "TP" in each}
        if len(missing) == 1 and sum(1 for each in siblings if not _title(each)) == 1:
            dims = {"TP": missing.pop()}
    tp_size, pp_size, pcp_size = (
        max(size, *(each.get(key, 0) + 1 for each in shown)) for key, size in (("TP", stated.tp), ("PP", stated.pp), ("PCP", stated.pcp))
    )
    world: int | None = tp_size * pp_size * pcp_size
    dp = dims.get("DP")
    if dp is None:
        # dense replicas: every world has plain worker names, and only the parent's title tells the replicas apart
        parent = table.get(info.ppid) if info.ppid is not None else None
        above = _named(parent) if parent else None
        if above and above[0] is Role.CORE and above[2].get("dp"):
            dp = int(above[2]["dp"] or 0)
    rank: int | None
    if fields.get("rank"):
        rank = int(fields["rank"] or 0)
        world = stated.world if stated.stated else None
    elif {"TP", "PP", "PCP"} & dims.keys():
        # order of ranks within a replica: parallel_state.py:initialize_model_parallel, PP outermost, TP innermost
        rank = (dims.get("PP", 0) * pcp_size + dims.get("PCP", 0)) * tp_size + dims.get("TP", 0)
    else:
        # a title without dimensions: a world of one, or a worker whose groups do not exist yet
        cores = sum(1 for each in table.values() if (_named(each) or (None,))[0] is Role.CORE)
        plain = [each for each in siblings if not _dimensions(_title(each))]
        one = stated.world == 1 if stated.stated else len(plain) <= (1 if info.ppid is not None else max(1, cores))
        # V0 forked its workers beside the driver, which is rank 0 itself: that one is none of them
        beside = name.startswith("VllmWorkerProcess") or _title(info).startswith("VllmWorkerProcess")
        rank = 0 if one and not beside and len(shown) == len(plain) else None
        world = stated.world if stated.stated else None
    placed = RankId(rank=rank, world_size=world, tp=dims.get("TP"), pp=dims.get("PP"), dp=dp, ep=dims.get("EP"))
    text = "".join(f" {key}{value}" for key, value in dims.items()) or (f" {rank}" if rank else "")
    if dp is not None and "DP" not in dims:
        text = f" DP{dp}{text}"
    return Placed(Role.WORKER, placed, f"worker{text}")


def _is_worker(info: ProcessInfo) -> bool:
    named = _named(info)
    return named is not None and named[0] is Role.WORKER


def _title(info: ProcessInfo) -> str:
    named = _named(info)
    return named[1] if named else ""


def _dimensions(name: str) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"_(DP|PP|PCP|TP|DCP|EP)(\d{1,6})", name)}


def together(info: ProcessInfo) -> str:
    """What a server's command line says about belonging to an engine that spans several nodes; "" for one node."""
    if not serves(info):
        return ""
    argv = command(info)
    headless = option(argv, "--headless") is not None
    world = "/".join(
        str(number(argv, name, short) or 1) for name, short in (("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp"))
    )
    if (number(argv, "--nnodes", "-n") or 1) > 1:
        address = option(argv, "--master-addr") or "127.0.0.1"
        return f"{address}:{option(argv, '--master-port') or 29501} {world} {number(argv, '--nnodes', '-n')}"
    address = option(argv, "--data-parallel-address", "-dpa") or ""
    if address and (headless or (number(argv, "--data-parallel-size", "-dp") or 1) > 1):
        return (
            f"{address}:{option(argv, '--data-parallel-rpc-port', '-dpp') or 29550} {world} dp{number(argv, '--data-parallel-size', '-dp')}"
        )
    return ""


def listens(info: ProcessInfo) -> int | None:
    """The port that the command line asks for; 8000 is the default of a whole command line."""
    if not serves(info) or option(command(info), "--headless") is not None:
        return None
    return number(command(info), "--port") or (8000 if info.argv else None)


def world(info: ProcessInfo) -> int | None:
    """The world that a server's own command line states, where it is whole."""
    stated = sizes(info, {}) if serves(info) else Sizes()
    return stated.world if stated.stated else None


def stated(fields: dict[str, str]) -> Stated:
    """What a start-up line says: the front's names what is no default, the core's names every size but those of nodes."""
    front = fields.get("args", "")
    text = fields.get("config", "") or front
    found = {key: int(value) for key, value in _SIZE.findall(text)}
    told = _shape(found, ray="ray" in text, whole=front.startswith("{"))
    return told if found.keys() & {"tensor_parallel_size", "pipeline_parallel_size"} else replace(told, world=None, tp=None)


def commanded(info: ProcessInfo) -> Stated | None:
    """What a server's own command line says; of a line that may be cut, no more than what it names."""
    if not serves(info):
        return None
    argv, read = command(info), sizes(info, {})
    found = {key: value for key, *names in _NUMBERS if (value := number(argv, *names)) is not None}
    found |= {"tensor_parallel_size": read.tp, "pipeline_parallel_size": read.pp, "prefill_context_parallel_size": read.pcp}
    told = _shape(found, ray=option(argv, "--distributed-executor-backend") == "ray", whole=read.stated)
    return told if read.stated else replace(told, world=None, tp=None)


def _shape(found: dict[str, int], *, ray: bool, whole: bool) -> Stated:
    """Sizes by vLLM's own names to a shape. `whole`: what is not named has its default, which under Ray says nothing of nodes."""
    tp = found.get("tensor_parallel_size", 1)
    world = tp * found.get("pipeline_parallel_size", 1) * found.get("prefill_context_parallel_size", 1)
    dp, local = found.get("data_parallel_size", 1), found.get("data_parallel_size_local")
    nodes, node_rank = found.get("nnodes", 1), found.get("node_rank", 0)
    if nodes == 1 and local is not None and local < dp:  # replicas are spread over nodes, each started by itself
        nodes, node_rank = (-(-dp // local), found.get("data_parallel_start_rank", 0) // local) if local else (0, 0)
    known = 0 < nodes <= WORLD_LIMIT and (nodes > 1 or (whole and not ray))
    return Stated(
        world=world if 0 < world <= WORLD_LIMIT else None,
        tp=tp,
        # the core of a dense replica calls itself the only one: a size of 1 says nothing
        dp=dp if 1 < dp <= WORLD_LIMIT else None,
        nodes=nodes if known else None,
        node_rank=node_rank if known else None,
    )


def version(info: ProcessInfo) -> str:
    return info.packages.get("vllm", "")


def output_rank(world_size: int, tp_size: int) -> int:
    """The only rank whose answer the core waits for: TP 0 of the last pipeline stage (multiproc_executor.py)."""
    return world_size - tp_size


PROFILE = EngineProfile(
    name="vllm",
    place=place,
    packages=("vllm",),
    version=version,
    together=together,
    listens=listens,
    world=world,
    stated=stated,
    commanded=commanded,
    running=running,
    dp_size=lambda info: number(command(info), "--data-parallel-size", "-dp") if serves(info) else None,
    health_paths=("/health",),
    metrics_paths=("/metrics",),
    load_paths=("/load",),
    progress=ProgressNames(
        # a histogram despite its name: _count is the number of steps, _sum the number of tokens
        steps=("vllm:iteration_tokens_total_count",),
        generation_tokens=("vllm:generation_tokens_total",),
        prompt_tokens=("vllm:prompt_tokens_total",),
        requests=("vllm:request_success_total",),
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        step_seconds=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        replica_label="engine",
    ),
    frames=FRAMES,
    live=LIVE,
    settings=SETTINGS,
    setting_names={
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "pcp": "prefill_context_parallel_size",
        "dp": "data_parallel_size",
        "dpa": "data_parallel_address",
        "dpp": "data_parallel_rpc_port",
        "dpl": "data_parallel_size_local",
        "dpr": "data_parallel_start_rank",
        "n": "nnodes",
        "max_seq_len": "max_model_len",
        "model_tag": "model",
    },
    functions=FUNCTIONS,
    delivery_threads=("WorkerAsyncOutputCopy",),
    execute_timeout_env="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
    execute_timeout_default_s=300.0,
    env_allow=(
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        "VLLM_RINGBUFFER_WARNING_INTERVAL",
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "VLLM_ENGINE_ITERATION_TIMEOUT_S",
        "VLLM_NIXL_ABORT_REQUEST_TIMEOUT",
        "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT",
        "VLLM_MQ_MAX_CHUNK_BYTES_MB",
        "VLLM_LOG_STATS_INTERVAL",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_USE_SPINLOOP_EXT",
        "VLLM_LOGGING_LEVEL",
        "VLLM_LOGGING_PREFIX",
        "VLLM_LOGGING_STREAM",
        "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_PLUGINS",
        "VLLM_WORKER_MULTIPROC_METHOD",
        "VLLM_USE_RAY_V2_EXECUTOR_BACKEND",
        "VLLM_PROCESS_NAME_PREFIX",
        "VLLM_WATCHDOG_TIME_S",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_USE_V1",
        "VLLM_HOST_IP",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_OMP_THREADS_BIND",
    ),
    output_rank=output_rank,
)
