"""Prometheus exposition text of an engine's metrics endpoint, read through the progress names of the known engines."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._sheets import sheets
from forensics.analysis.parse.dcgm import gpus
from forensics.engines import PROFILES
from forensics.engines.progress import read_progress
from forensics.model import ProgressSample

_SAMPLE = re.compile(r"^[A-Za-z_:][A-Za-z0-9_:]*(?:\{[^{}\n]{0,2000}\})?[ \t]+(?:[+-]?\d[\d.eE+-]*|[+-]?Inf|NaN)(?:[ \t]+-?\d+)?\s*$")
_TYPES = ("# HELP ", "# TYPE ")


def parse(inp: Input, sink: Sink) -> None:
    known = False
    for sheet in sheets(inp):
        known = gpus(sheet.inp, sheet.text, sink) or known
        known = _scrape(sheet.inp, sheet.text, sink) or known
    if not known:
        sink.note(f"{inp.name}: metrics of no engine known here")


def _scrape(inp: Input, text: str, sink: Sink) -> bool:
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
        return True
    return False


def recognise(name: str, head: str) -> bool:
    lines = head.split("\n")
    if len(head) >= 8000:
        lines = lines[:-1]
    if any(line.startswith(_TYPES) for line in lines):
        return True
    # what somebody grepped out of a scrape has no types left
    rows = [line[:4096] for line in lines if line.strip() and not line.startswith("#")]
    fits = sum(bool(_SAMPLE.match(row)) for row in rows)
    return fits > 0 and fits == len(rows) and any("{" in row or ":" in row for row in rows)


PARSER = Parser("prometheus", ("prometheus",), recognise, parse)
