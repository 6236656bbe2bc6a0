"""Folders of bare logs as other engines write them, line by line in their own forms."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from forensics.analysis import analyze
from tests.analysis.conftest import Told

T0 = 1_788_256_800  # 2026-09-01T10:00:00Z
ARGS = "server_args=ServerArgs(model_path='/models/m', tokenizer_path='/models/m', tp_size={tp}, pp_size=1, dp_size=1, {more}watchdog_timeout=300)"
DIED = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."


def sglang(at_s: float, message: str, place: str = "") -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(T0 + at_s))
    return f"[{stamp}{' ' + place if place else ''}] {message}"


def trtllm(at_s: float, message: str, rank: int | None = 0, level: str = "I") -> str:
    stamp = time.strftime("%m/%d/%Y-%H:%M:%S", time.gmtime(T0 + at_s))
    return f"[{stamp}] [TRT-LLM] {f'[RANK {rank}] ' if rank is not None else ''}[{level}] {message}"


def rust(at_s: float, level: str, message: str) -> str:
    """A line of TGI's or Dynamo's Rust parts."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(T0 + at_s)) + f".123456Z {level:>5} {message}"


def raised(head: str, error: str) -> list[str]:
    """A traceback in the way in which these engines log it: in one message, below its head."""
    frame = '  File "/opt/app/python/engine/worker.py", line 40, in step'
    return [f"{head}Traceback (most recent call last):", frame, "    out = self.model(batch)", error, ""]


def decode(at_s: float, running: int = 3, waiting: int = 0, rate: float = 210.3, place: str = "TP0") -> str:
    said = f"Decode batch, #running-req: {running}, #token: 1234, token usage: 0.05, cuda graph: True, "
    return sglang(at_s, f"{said}gen throughput (token/s): {rate:.2f}, #queue-req: {waiting}", place)


def started(tp: int = 2, at_s: float = -600.0, more: str = "", ranks: range | None = None) -> list[str]:
    """A start of SGLang until its warm-up was answered."""
    lines = [sglang(at_s, ARGS.format(tp=tp, more=more))]
    for rank in ranks or range(tp):
        lines.append(sglang(at_s + 5, "Init torch distributed begin.", f"TP{rank}"))
        lines.append(sglang(at_s + 20, "Load weight begin. avail mem=78.81 GB", f"TP{rank}"))
    lines.append(sglang(at_s + 90, "Capture cuda graph begin. This can take up to several minutes. avail mem=20.67 GB", "TP0"))
    lines.append(sglang(at_s + 120, "INFO:     Application startup complete."))
    lines.append(sglang(at_s + 125, "The server is fired up and ready to roll!"))
    return lines


Look = Callable[..., Told]


def look_in(folder: Path) -> Look:
    """Write files (their names without ".log") and analyse the folder."""

    def look(**files: list[str]) -> Told:
        for name, lines in files.items():
            suffix = "" if "." in name else ".log"
            (folder / f"{name.replace('__', '-')}{suffix}").write_text("\n".join(lines) + "\n")
        return Told(analyze([folder]))

    return look
