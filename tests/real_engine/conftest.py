"""These tests start real vLLM servers and take minutes: they run only when this folder is named (`make real-engine`, `make soak`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.register_assert_rewrite("judge", "real_server", "scenarios")  # so that a failed assert shows its values there too

from real_server import KIT  # noqa: E402

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(arg.partition("::")[0]).resolve() for arg in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def vllm_home() -> Path:
    """A folder with a real vLLM and a tiny model, installed when it is not there yet."""
    home = Path(os.environ.get("REAL_VLLM_HOME") or Path.home() / ".cache" / "real-vllm")
    subprocess.run([KIT / "setup.sh", str(home)], check=True, timeout=1500)
    return home
