"""A server of two ranks in each of the two modes, several faults one after another: each reversible, except the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]

SLOW_IN_BOTH = (scenarios.slow_steps, scenarios.token_gaps)
"""What takes long and says the same in both modes."""
SYNC = (*scenarios.REVERSIBLE, scenarios.exception_that_nobody_is_told)
ASYNC = (*(each for each in scenarios.REVERSIBLE if each not in SLOW_IN_BOTH), scenarios.killed_under_load)


@pytest.fixture(scope="class")
def server(vllm_home, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """One start for a whole class."""
    server = Server(tmp_path_factory.mktemp("tp2"), vllm_home, "--tensor-parallel-size", "2", **request.cls.mode)
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


class TestSync:
    mode: dict[str, str] = {}

    @pytest.mark.parametrize("scenario", SYNC, ids=lambda each: each.__name__)
    def test_one_server(self, server: Server, scenario) -> None:
        scenario(server)


class TestAsync:
    mode = {"FF_FORCE_ASYNC": "1"}

    @pytest.mark.parametrize("scenario", ASYNC, ids=lambda each: each.__name__)
    def test_one_server(self, server: Server, scenario) -> None:
        scenario(server)
