"""Faults that end the server or leave it beyond repair: one start each. (The swallowed exception shares a start with others.)"""

from __future__ import annotations

from pathlib import Path

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@pytest.mark.parametrize("scenario", scenarios.FATAL[1:], ids=lambda each: each.__name__)
def test_fatal(vllm_home: Path, tmp_path: Path, scenario) -> None:
    server = Server(tmp_path, vllm_home, "--tensor-parallel-size", "2")
    try:
        scenario(server.wait_ready().warm_up())
    finally:
        server.stop()
