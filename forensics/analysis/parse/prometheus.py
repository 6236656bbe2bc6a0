"""Prometheus exposition text of an engine's metrics endpoint, read through the progress names of the known engines."""

from __future__ import annotations

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.engines import PROFILES
from forensics.engines.progress import read_progress
from forensics.model import ProgressSample


def parse(inp: Input, sink: Sink) -> None:
    text = inp.text()
    for profile in PROFILES:
        readings = read_progress(text, profile.progress)
        if not readings:
            continue
        for r in readings:
            quote = ", ".join(f"{k}={v:g}" for k, v in r.counters.items())
            held = f"running={r.running:g} waiting={r.waiting or 0:g} " if r.running is not None else ""
            sink.add(
                ProgressSample(
                    node=inp.node,
                    at=inp.at,
                    ref=inp.ref(f"sample {inp.sample}", held + quote),
                    pid=inp.pid,
                    via="metrics",
                    dp_rank=r.replica,
                    counters=dict(r.counters),
                    running=r.running,
                    waiting=r.waiting,
                    kv_usage=r.kv_usage,
                    mean_step_s=r.mean_step_s,
                    token_gaps=r.token_gaps,
                    sample=inp.sample,
                )
            )
        return
    sink.note(f"{inp.name}: metrics of no engine known here")


def recognise(name: str, head: str) -> bool:
    return head.startswith(("# HELP ", "# TYPE ")) or "\n# TYPE " in head


PARSER = Parser("prometheus", ("prometheus",), recognise, parse)
