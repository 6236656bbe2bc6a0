"""Folders of bare files about one or two nodes, as an operator would mail them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from forensics.analysis import analyze
from tests.analysis.conftest import Told

START = datetime(2026, 4, 7, 9, 0, 0)


def stamp(at_s: float) -> str:
    return (START + timedelta(seconds=at_s)).strftime("%m-%d %H:%M:%S")


def iso(at_s: float) -> str:
    return (START + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%S") + "Z"


def kernel(node: str, *lines: tuple[float, str], who: str = "kernel") -> str:
    """A journal of a kernel: (seconds after START, message)."""
    return "".join(f"{(START + timedelta(seconds=at)).strftime('%b %d %H:%M:%S')} {node} {who}: {text}\n" for at, text in lines)


class Node:
    """One engine's log on one node, from its start on."""

    def __init__(self, ranks: int = 4, pids: int = 500, began: float = 0.0) -> None:
        self.lines: list[str] = []
        self.ranks, self.pids = ranks, pids
        self.start(began)

    def start(self, at_s: float) -> None:
        self.say(at_s, "APIServer", 1, "INFO", "vLLM API server version 0.25.1", "api_server.py:1890")
        self.say(
            at_s, "APIServer", 1, "INFO", f"non-default args: {{'model_tag': '/m', 'tensor_parallel_size': {self.ranks}}}", "utils.py:233"
        )
        config = (
            f"Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size={self.ranks}, pipeline_parallel_size=1"
        )
        self.say(at_s + 5, "EngineCore", self.pids, "INFO", config, "core.py:112")
        for rank in range(self.ranks):
            place = f"rank {rank} in world size {self.ranks} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank {rank}, EP rank N/A"
            self.say(at_s + 10, f"Worker_TP{rank}", self.pids + 1 + rank, "INFO", place, "parallel_state.py:1400")
        took = "init engine (profile, create kv cache, warmup model) took 40.00 s"
        self.say(at_s + 60, "EngineCore", self.pids, "INFO", took, "core.py:281")
        self.lines.append("(APIServer pid=1) INFO:     Application startup complete.")

    def say(self, at_s: float, process: str, pid: int, level: str, text: str, place: str = "x.py:1") -> None:
        self.lines.append(f"({process} pid={pid}) {level} {stamp(at_s)} [{place}] {text}")

    def stats(self, since: float, until: float, tokens: float = 300.0, running: int = 8) -> None:
        at = since
        while at <= until:
            text = (
                f"Engine 000: Avg prompt throughput: {tokens} tokens/s, Avg generation throughput: {tokens} tokens/s, Running: {running} reqs, "
                "Waiting: 0 reqs, GPU KV cache usage: 20.0%, Prefix cache hit rate: 0.0%"
            )
            self.say(at, "APIServer", 1, "INFO", text, "loggers.py:310")
            at += 10

    def stall(self, at_s: float, warnings: int = 3) -> None:
        self.stats(at_s + 10, at_s + 30, tokens=0.0)
        for i in range(1, warnings + 1):
            text = "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
            self.say(at_s + 60 * i, "EngineCore", self.pids, "INFO", text, "shm_broadcast.py:466")

    def worker_died(self, at_s: float, rank: int, status: str = "") -> None:
        code = f" (exit code: {status})" if status else ""
        text = f"Worker proc VllmWorker-{rank} died unexpectedly{code}, shutting down executor."
        self.say(at_s, "EngineCore", self.pids, "ERROR", text, "multiproc_executor.py:283")
        self.fatal(at_s)

    def fatal(self, at_s: float) -> None:
        self.say(at_s, "EngineCore", self.pids, "ERROR", "EngineCore encountered a fatal error.", "core.py:1138")

    def raw(self, text: str) -> None:
        self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


Tell = Callable[..., Told]


def told_in(folder: Path) -> Tell:
    """Write files ("n1__kernel_log" is n1.kernel.log) and analyse the folder."""

    def told(**files: str | Node) -> Told:
        for name, content in files.items():
            node, _, rest = name.partition("__")
            (folder / f"{node.replace('_', '-')}.{rest.replace('_', '.')}").write_text(
                content.text if isinstance(content, Node) else content
            )
        return Told(analyze([folder]))

    return told
