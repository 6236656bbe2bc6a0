"""Faults that end the server or leave it beyond repair: one start each. (Others share a start with reversible ones.)"""

from __future__ import annotations

from pathlib import Path

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("scenario", "environ"),
    [
        (scenarios.reentrant_deadlock, {}),
        (scenarios.queue_full, {}),
        (scenarios.failure_behind_a_result, {"FF_FORCE_ASYNC": "1"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_fatal(vllm_home: Path, tmp_path: Path, scenario, environ: dict[str, str]) -> None:
    server = Server(tmp_path, vllm_home, "--tensor-parallel-size", "2", **environ)
    try:
        scenario(server.wait_ready().warm_up())
    finally:
        server.stop()
