"""A server of two ranks in each of the two modes, several faults one after another: each reversible, except the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]

MODES = {"sync": {}, "async": {"FF_FORCE_ASYNC": "1"}}
# a fault that is fatal comes last, and shares the start with those that are not
ROUNDS = [("sync", each) for each in (*scenarios.REVERSIBLE, scenarios.exception_that_nobody_is_told)]
SLOW_IN_BOTH = (scenarios.slow_steps, scenarios.token_gaps)
"""What takes long and says the same in both modes."""
ROUNDS += [("async", each) for each in (*scenarios.REVERSIBLE, scenarios.killed_under_load) if each not in SLOW_IN_BOTH]


@pytest.fixture(scope="module", params=MODES)
def server(vllm_home, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tp2"), vllm_home, "--tensor-parallel-size", "2", **MODES[request.param])
    try:
        yield server.wait_ready().warm_up()
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def normal_afterwards(server: Server) -> Iterator[None]:
    """What a failed test leaves behind is no concern of the next one."""
    yield
    server.fire("")
    server.drop_loads()


@pytest.mark.parametrize(("server", "scenario"), ROUNDS, ids=lambda each: getattr(each, "__name__", each), indirect=["server"])
def test_one_server(server: Server, scenario) -> None:
    scenario(server)
