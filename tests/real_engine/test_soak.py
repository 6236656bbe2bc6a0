"""The same faults again and again: SOAK_MINUTES (default 40) of it, with a dated record under results/."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.soak, pytest.mark.timeout(0)]

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS = 2
"""Of reversible faults in the life of one server, before a fatal one ends it."""


def test_soak(vllm_home: Path, tmp_path: Path) -> None:
    until = time.monotonic() + 60 * float(os.environ.get("SOAK_MINUTES", "40"))
    rows: list[tuple[str, str, str, str, str]] = []
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    lives = [(fatal, {}) for fatal in scenarios.FATAL]
    lives += [(fatal, {"FF_FORCE_ASYNC": "1"}) for fatal in (scenarios.failure_behind_a_result, *scenarios.FATAL)]
    # both modes early, however short the soak
    order = [life for pair in itertools.zip_longest(lives[: len(scenarios.FATAL)], lives[len(scenarios.FATAL) :]) for life in pair if life]
    for life, (fatal, mode) in enumerate(itertools.cycle(order)):
        if time.monotonic() > until:
            break
        server = Server(tmp_path / str(life), vllm_home, "--tensor-parallel-size", "2", **mode)
        try:
            server.wait_ready().warm_up()
            for scenario in (*scenarios.REVERSIBLE * ROUNDS, fatal):
                rows.append((f"{life}{' async' if mode else ''}", scenario.__name__, *attempt(scenario, server)))
                print("\nsoak:", *rows[-1], flush=True)
        finally:
            server.stop()
            write(began, rows)
    wrong = [row for row in rows if row[-1] != "right"]
    assert rows and not wrong, wrong


def attempt(scenario, server: Server) -> tuple[str, str, str]:
    """(root, seconds of the capture, "right" or what was wrong)."""
    try:
        seen = scenario(server)
    except AssertionError as error:
        return "", "", " ".join(str(error).split())[:300] or repr(error)
    root = seen.root
    named = f"{root['finding']} rank {root['rank']} ({root['grade']})" if root["finding"] else f"none, {seen.state}"
    return named, f"{seen.capture_s:.1f}", "right"


def write(began: str, rows: list[tuple[str, str, str, str, str]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    right = sum(row[-1] == "right" for row in rows)
    lines = [f"# Soak of {began}", "", f"vLLM 0.32 on CPU, two ranks, both modes. {right} of {len(rows)} captures right.", ""]
    lines += ["| server | fault | root in the report | capture, s | judged |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    name = began.replace(" UTC", "").replace(" ", "T").replace(":", "")
    (RESULTS / f"{name}-soak.md").write_text("\n".join(lines) + "\n")
