from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.analysis import analyze
from tests.analysis.conftest import Told
from tests.analysis.layers.folder import Node


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Told]:
    def run(**files: str | Node) -> Told:
        for name, content in files.items():
            # "n1__kernel_log" is n1.kernel.log
            node, _, rest = name.partition("__")
            (tmp_path / f"{node.replace('_', '-')}.{rest.replace('_', '.')}").write_text(
                content.text if isinstance(content, Node) else content
            )
        return Told(analyze([tmp_path]))

    return run
