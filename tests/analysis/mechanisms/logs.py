"""Logs as engines write them, line by line, for folders that somebody mailed."""

from __future__ import annotations

import time
from pathlib import Path

from forensics.analysis import analyze
from tests.analysis.conftest import Told

T0 = 1_782_900_000  # 2026-07-01T10:00:00Z


class Log:
    """One vLLM log. Times are seconds after T0."""

    def __init__(self, start: bool = True, version: str = "0.19.1", config: str = "", core: int = 310) -> None:
        self.lines: list[str] = []
        self.core = core
        if start:
            self.line(
                -900,
                "EngineCore",
                core,
                f"Initializing a V1 LLM engine (v{version}) with config: model='/m', {config}tensor_parallel_size=2",
            )
            self.line(-700, "EngineCore", core, "init engine (profile, create kv cache, warmup model) took 88.10 seconds")
            self.lines.append("(APIServer pid=7) INFO:     Application startup complete.")

    def line(self, at: float, process: str, pid: int, message: str, level: str = "INFO", source: str = "x.py:1") -> Log:
        stamp = time.strftime("%m-%d %H:%M:%S", time.gmtime(T0 + at))
        self.lines.append(f"({process} pid={pid}) {level} {stamp} [{source}] {message}")
        return self

    def stats(self, at: float, gen: float, running: int, waiting: int = 0, kv: float = 5.0, prompt: float = 0.0, extra: str = "") -> Log:
        return self.line(
            at,
            "APIServer",
            7,
            f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {gen:.1f} tokens/s, "
            f"Running: {running} reqs, Waiting: {waiting} reqs, {extra}GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: 0.0%",
            source="loggers.py:259",
        )

    def flow(self, since: float, until: float, gen: float = 180.0, running: int = 4, waiting: int = 0, kv: float = 12.0) -> Log:
        for at in range(int(since), int(until), 10):
            self.stats(at, gen, running, waiting, kv, prompt=40.0)
        return self

    def core_says(self, at: float, message: str, level: str = "WARNING") -> Log:
        return self.line(at, "EngineCore", self.core, message, level)

    def raw(self, text: str) -> Log:
        self.lines.append(text)
        return self


def sglang(at: float, message: str, tp: int | None = 0) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(T0 + at))
    return f"[{stamp}{'' if tp is None else f' TP{tp}'}] {message}"


def told(folder: Path, **files: Log | list[str] | str) -> Told:
    """Analyse a folder of these files; `node0` becomes node0.log, `env_txt` env.txt."""
    for name, content in files.items():
        text = content if isinstance(content, str) else "\n".join(content.lines if isinstance(content, Log) else content) + "\n"
        file = name.replace("__", "-")
        (folder / (file.replace("_", ".") if "_" in file else f"{file}.log")).write_text(text)
    # the year of lines that carry none
    (folder / "when.log").write_text("2026-07-01 09:00:00 collected\n")
    return Told(analyze([folder]))
