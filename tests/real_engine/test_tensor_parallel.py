"""One server of two ranks, several faults one after another: each reversible, except the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import scenarios
from real_server import Server

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(vllm_home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tp2"), vllm_home, "--tensor-parallel-size", "2")
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


@pytest.mark.parametrize("scenario", scenarios.REVERSIBLE, ids=lambda each: each.__name__)
def test_reversible(server: Server, scenario) -> None:
    scenario(server)


def test_exception_that_nobody_is_told(server: Server) -> None:
    scenarios.exception_that_nobody_is_told(server)
