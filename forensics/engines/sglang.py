"""SGLang: an HTTP server that also tokenizes, a scheduler for each rank (core and worker in one), a detokenizer.

Titles are written by managers/scheduler.py:configure_scheduler_process as sglang::scheduler_DPn_PPn_TPn_EPn, each part only
where its size is larger than 1; log lines carry the same parts behind their time ("[2026-09-01 10:00:00 DP0 TP1] "), in an
order that changed between versions. The server keeps the command line that started it.
"""

from __future__ import annotations

import re

from forensics.engines._argv import WORLD_LIMIT, ancestors, command, is_python, multiprocessing_helper, number, option, program
from forensics.engines._generic_frames import FRAMES
from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Stated, Table
from forensics.model import ProcessInfo, RankId, Role

_TITLE = re.compile(r"sglang::(?P<name>[a-z_]+?)(?P<place>(?:_(?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d{1,5})*)(?::\d+)?\Z")
_PART = re.compile(r"(?<![A-Z])(DP|PP|TP|EP)(\d{1,5})(?!\d)")
_ROLES = {
    "scheduler": Role.WORKER,
    "detokenizer": Role.HELPER,
    "detokenizer_router": Role.HELPER,
    "tokenizer_worker": Role.API,
    "data_parallel_controller": Role.COORDINATOR,
}
_CUT = "sglang::schedul"
"""What the kernel keeps of a scheduler's name."""
_ARG = re.compile(
    r"\b(tp_size|pp_size|dp_size|nnodes|node_rank|dist_init_addr|enable_dp_attention|watchdog_timeout)=('[^']*'|\"[^\"]*\"|[^,)\s]+)"
)

_NUMBERS = (
    ("tp_size", "--tp-size", "--tensor-parallel-size", "--tp"),
    ("pp_size", "--pp-size", "--pipeline-parallel-size", "--pp"),
    ("dp_size", "--dp-size", "--data-parallel-size", "--dp"),
    ("nnodes", "--nnodes"),
    ("node_rank", "--node-rank"),
)


def parts(place: str) -> dict[str, int]:
    """The dimensions that a title or a log prefix names: "DP0 TP1" to {"DP": 0, "TP": 1}. MOE_DP and ATTN_CP are left out."""
    text = re.sub(r"(?:MOE_DP|ATTN_CP)\d+", "", place)
    return {name: int(value) for name, value in _PART.findall(text)}


def rank_at(place: str, tp_size: int | None) -> RankId | None:
    """The place that a prefix names. Ranks count stage by stage: without their size only stage 0 is told."""
    found = parts(place)
    if not {"TP", "PP"} & found.keys():
        return None
    pp, tp = found.get("PP", 0), found.get("TP", 0)
    rank = tp if not pp else pp * tp_size + tp if tp_size else None
    return RankId(rank=rank, tp=found.get("TP"), pp=found.get("PP"), dp=found.get("DP"), ep=found.get("EP"))


def stated(fields: dict[str, str]) -> Stated:
    """What the line "server_args=ServerArgs(…)" says of the engine."""
    args = {name: value.strip("'\"") for name, value in _ARG.findall(fields.get("args", ""))}
    sizes = {name: int(text) for name, text in args.items() if text.isascii() and text.isdigit() and len(text) < 10}
    return _shape(sizes, args.get("dist_init_addr", "None"), args.get("enable_dp_attention") == "True")


def commanded(info: ProcessInfo) -> Stated | None:
    """What a server's own command line says, where it is whole."""
    argv = command(info)
    if not serves(info) or not info.argv or option(argv, "--config") is not None:  # a YAML file may state anything
        return None
    sizes = {key: value for key, *names in _NUMBERS if (value := number(argv, *names)) is not None}
    address = option(argv, "--dist-init-addr", "--nccl-init-addr") or "None"
    return _shape({"node_rank": 0, **sizes}, address, option(argv, "--enable-dp-attention") is not None)


def _shape(sizes: dict[str, int], address: str, dp_attention: bool) -> Stated:
    tp, pp, dp, nodes = (n if 0 < (n := sizes.get(key, 1)) <= WORLD_LIMIT else 1 for key in ("tp_size", "pp_size", "dp_size", "nnodes"))
    across = nodes > 1 and address not in ("None", "")
    return Stated(
        world=tp * pp if tp * pp <= WORLD_LIMIT else None,
        tp=tp,
        # with attention in data parallel the replicas share one world
        dp=1 if dp_attention else dp,
        nodes=nodes,
        node_rank=sizes.get("node_rank"),
        together=f"{address} {tp}/{pp} {nodes}" if across else "",
    )


def serves(info: ProcessInfo) -> bool:
    run = program(command(info))
    if run.kind == "module":
        return run.name in ("sglang.launch_server", "sglang.srt.entrypoints.http_server")
    return run.kind == "script" and (
        run.name.endswith("sglang/launch_server.py") or (run.name.rpartition("/")[2] == "sglang" and run.arguments[:1] == ("serve",))
    )


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim a process of SGLang."""
    title = info.title or (info.argv[0] if info.argv else info.comm)
    if (titled := _TITLE.match(title)) and titled["name"] in _ROLES:
        role = _ROLES[titled["name"]]
        if role is Role.WORKER:
            return _scheduler(info, titled["place"], table)
        return Placed(role, None, titled["name"].replace("_", " "))
    if title == _CUT:
        return Placed(Role.WORKER, RankId(), "scheduler")
    if serves(info):  # on a further node it only looks after its schedulers
        follows = (number(command(info), "--node-rank") or 0) > 0
        return Placed(Role.LAUNCHER, None, "launcher") if follows else Placed(Role.API, None, "server")
    if is_python(info) and (helper := multiprocessing_helper(info)):
        return Placed(Role.HELPER, None, helper) if any(serves(each) for each in ancestors(info, table)) else None
    return None


def _scheduler(info: ProcessInfo, name: str, table: Table) -> Placed:
    server = next((each for each in ancestors(info, table) if serves(each)), None)
    argv = command(server) if server else ()
    tp_size = number(argv, "--tp-size", "--tensor-parallel-size", "--tp") or (1 if server else None)
    pp_size = number(argv, "--pp-size", "--pipeline-parallel-size") or 1
    found = rank_at(name, tp_size)
    if found is None:
        dp = parts(name).get("DP")
        found = RankId(rank=0, world_size=1, dp=dp) if tp_size == 1 and pp_size == 1 else RankId(dp=dp)
    world = tp_size * pp_size if tp_size else None
    label = " ".join(f"{key}{value}" for key, value in parts(name).items())
    return Placed(
        Role.WORKER,
        RankId(rank=found.rank, world_size=world, tp=found.tp, pp=found.pp, dp=found.dp, ep=found.ep),
        f"scheduler {label}".strip(),
    )


def together(info: ProcessInfo) -> str:
    """What a server's command line says about belonging to an engine that spans several nodes; "" for one node."""
    argv = command(info)
    if not serves(info) or (number(argv, "--nnodes") or 1) < 2:
        return ""
    address = option(argv, "--dist-init-addr", "--nccl-init-addr") or ""
    return f"{address} {number(argv, '--tp-size', '--tensor-parallel-size', '--tp')} {number(argv, '--nnodes')}" if address else ""


def listens(info: ProcessInfo) -> int | None:
    if not serves(info) or (number(command(info), "--node-rank") or 0) > 0:
        return None
    return number(command(info), "--port") or (30000 if info.argv else None)


PROFILE = EngineProfile(
    name="sglang",
    place=place,
    packages=("sglang", "sgl_kernel"),
    version=lambda info: info.packages.get("sglang", ""),
    together=together,
    listens=listens,
    stated=stated,
    commanded=commanded,
    rank_at=rank_at,
    failures_end_it=True,
    setting_names={
        "tp": "tp_size",
        "tensor_parallel_size": "tp_size",
        "pp": "pp_size",
        "pipeline_parallel_size": "pp_size",
        "dp": "dp_size",
        "data_parallel_size": "dp_size",
        "nccl_init_addr": "dist_init_addr",
        "model": "model_path",
    },
    health_paths=("/health", "/health_generate"),
    load_paths=("/v1/loads",),
    progress=ProgressNames(
        generation_tokens=("sglang:generation_tokens_total",),
        prompt_tokens=("sglang:prompt_tokens_total",),
        requests=("sglang:num_requests_total",),
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_usage=("sglang:token_usage",),
        step_seconds=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        replica_label="dp_rank",
    ),
    frames=FRAMES,
    env_allow=(
        "SGLANG_HEALTH_CHECK_TIMEOUT",
        "SGLANG_LOG_MS",
        "SGLANG_LOGGING_CONFIG_PATH",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
        "SGLANG_DIAG_BYPASS_HEALTH_GENERATE",
        "SGLANG_DISAGGREGATION_WAITING_TIMEOUT",
        "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT",
    ),
)
