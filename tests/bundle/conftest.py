"""A small real bundle, for everybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_samples import HEAD, ORDER, fill

from forensics.bundle import BundleWriter


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A sealed bundle directory; `<it>.tar.gz` lies beside it."""
    with BundleWriter(tmp_path, "node7-20260102T030405Z", head=HEAD) as writer:
        fill(writer)
        writer.seal(ended_ns=9, profile="standard", trigger="operator", reason="a test")
        writer.pack(ORDER, keep=True)
        return writer.path


@pytest.fixture
def packed(sealed: Path) -> Path:
    return sealed.with_name(sealed.name + ".tar.gz")
