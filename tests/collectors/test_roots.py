"""Paths of another root: a container's links must not lead into ours."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from collectors._contract import resolve_in_root


def tree(root: Path) -> str:
    (root / "data/real").mkdir(parents=True)
    (root / "data/real/file").write_text("inside")
    (root / "absolute").symlink_to("/data/real")
    (root / "relative").symlink_to("data/real")
    (root / "climbing").symlink_to("../../../../data/real/file")
    (root / "chain").symlink_to("/absolute/../real/file")
    (root / "loop").symlink_to("/loop")
    return str(root)


@pytest.mark.parametrize(
    "path", ["/absolute/file", "/relative/file", "/climbing", "/chain", "//data/./real//file", "/../../data/real/file"]
)
def test_every_link_stays_inside(tmp_path: Path, path: str) -> None:
    found = resolve_in_root(tree(tmp_path), path)
    assert Path(found).read_text() == "inside" and found == f"{tmp_path}/data/real/file"


def test_a_loop_is_an_error_and_a_missing_file_is_left_to_the_open(tmp_path: Path) -> None:
    root = tree(tmp_path)
    with pytest.raises(OSError) as caught:
        resolve_in_root(root, "/loop/file")
    assert caught.value.errno == errno.ELOOP
    assert resolve_in_root(root, "/data/none/file") == f"{root}/data/none/file"


def test_without_a_root_the_path_is_the_nodes_own() -> None:
    assert resolve_in_root("", "/etc/../etc/localtime") == "/etc/../etc/localtime"
