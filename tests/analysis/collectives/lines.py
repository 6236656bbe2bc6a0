"""Lines as torch, NCCL and vLLM print them, for incidents that are made up here."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

from forensics.analysis import analyze
from tests.analysis.conftest import Told

DAY = "2026-03-14"


def clock(at: str, plus: float = 0.0) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{DAY}T{at}") + datetime.timedelta(seconds=plus)


def glog(rank: int | None, at: str, text: str, level: str = "E", file: str = "ProcessGroupNCCL.cpp:632") -> str:
    when = clock(at)
    front = f"[rank{rank}]:" if rank is not None else ""
    return f"{front}[{level}{when.month}{when.day:02d} {when:%H:%M:%S}.118859045 {file}] {text}"


def gave_up(
    rank: int, at: str, seq: int = 41, op: str = "ALLREDUCE", numel: int = 4096, ran: int = 600_041, group_rank: int | None = None
) -> str:
    own = rank if group_rank is None else group_rank
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={ran // 1000 * 1000})"
    return glog(
        rank, at, f"[Rank {own}] Watchdog caught collective operation timeout: {work} ran for {ran} milliseconds before timing out."
    )


def status(rank: int, at: str, seq: int = 41, enqueued: int = 42, completed: int = 40, group: str = "PG ID 0 PG GUID 0(default_pg)") -> str:
    return glog(
        rank,
        at,
        f"[{group} Rank {rank}]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {enqueued}, last completed work: {completed}",
    )


def dump_signal(rank: int, at: str, source: int | None, enqueued: int, completed: int, group: str = "PG ID 0 PG GUID 0(default_pg)") -> str:
    who = f" rank {source}" if source is not None else "this local rank"
    return glog(
        rank,
        at,
        f"[{group} Rank {rank}] Received a dump signal due to a collective timeout from {who} and we will try our best to dump the debug "
        f"info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages",
    )


def vllm(process: str, pid: int, at: str, text: str, level: str = "INFO", file: str = "core.py:112") -> str:
    when = clock(at)
    return f"({process} pid={pid}) {level} {when:%m-%d %H:%M:%S} [{file}] {text}"


def start(at: str, world: int = 2, pid: int = 1) -> list[str]:
    return [
        vllm("APIServer", pid, at, "vLLM API server version 0.25.1", file="api_server.py:1890"),
        vllm(
            "EngineCore",
            pid + 40,
            at,
            f"Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size={world}, pipeline_parallel_size=1",
        ),
    ]


def place(process: str, pid: int, at: str, rank: int, world: int, local: int, address: str = "192.0.2.1:29501") -> str:
    text = f"world_size={world} rank={rank} local_rank={local} distributed_init_method=tcp://{address} backend=nccl"
    return vllm(process, pid, at, text, file="parallel_state.py:1607")


def ready(at: str, pid: int = 1) -> list[str]:
    return [
        vllm("EngineCore", pid + 40, at, "init engine (profile, create kv cache, warmup model) took 61.20 seconds"),
        f"(APIServer pid={pid}) INFO:     Application startup complete.",
    ]


def serving(at: str, pid: int = 1, running: int = 3, tokens: float = 210.0) -> str:
    return vllm(
        "APIServer",
        pid,
        at,
        f"Engine 000: Avg prompt throughput: 90.0 tokens/s, Avg generation throughput: {tokens} tokens/s, Running: {running} reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 4.0%, Prefix cache hit rate: 0.0%",
        file="loggers.py:310",
    )


Read = Callable[..., Told]


def read_in(folder: Path) -> Read:
    """Write files (names without dots to lines) into a folder and analyse it: `read(node0=[…], node1=[…])`."""

    def read(files: dict[str, str] | None = None, **logs: list[str]) -> Told:
        mailed = folder / "mailed"
        mailed.mkdir(exist_ok=True)
        for name, lines in logs.items():
            (mailed / f"{name}.log").write_text("\n".join(lines) + "\n")
        for name, text in (files or {}).items():
            (mailed / name).write_text(text)
        told = Told(analyze([mailed]))
        broken = [(r.rule, r.reason) for r in told.report.rules if r.status.value == "ERRORED"]
        assert not broken, broken
        return told

    return read
