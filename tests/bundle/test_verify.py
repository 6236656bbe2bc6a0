"""verify: what changed, what is missing, what was added; and exit codes that mean something."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from forensics.bundle import NotABundle, verify_bundle
from forensics.cli.verify import verify_command


def test_an_untouched_bundle_is_ok(sealed: Path, packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (sealed, packed):
        result = verify_bundle(path)
        assert result.ok and result.sealed and result.checked == 12
        assert verify_command(path) == 0
        assert capsys.readouterr().out.endswith("12 files checked\nOK\n")


def test_every_kind_of_change_is_named(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = sealed / "stacks" / "pid-7.1.json"
    victim.write_bytes(victim.read_bytes().replace(b"f1", b"f2", 1))
    (sealed / "rpclogs" / "node-3.log").unlink()
    (sealed / "rpclogs" / "planted\x1b[31m.log").write_text("x")
    result = verify_bundle(sealed)
    assert not result.ok
    assert result.mismatches == ("stacks/pid-7.1.json",)
    assert result.missing == ("rpclogs/node-3.log",)
    assert result.extra == ("rpclogs/planted\\x1b[31m.log",)
    assert verify_command(sealed) == 3
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for line in ("CHANGED  stacks/pid-7.1.json", "MISSING  rpclogs/node-3.log", "ADDED  rpclogs/planted", "NOT OK"):
        assert line in out
    check = subprocess.run(["sha256sum", "-c", "manifest-sha256.txt"], cwd=sealed, capture_output=True, check=False)
    assert check.returncode == 1  # and sha256sum agrees


def test_a_change_of_same_size_inside_the_archive_is_found(sealed: Path, tmp_path: Path) -> None:
    log = sealed / "rpclogs" / "node-0.log"
    log.write_bytes(log.read_bytes().replace(b"step", b"stop"))
    with tarfile.open(tmp_path / "repacked.tar.gz", "w:gz") as tar:
        tar.add(sealed, arcname=sealed.name)
    result = verify_bundle(tmp_path / "repacked.tar.gz")
    assert result.mismatches == ("rpclogs/node-0.log",) and not result.ok


def test_even_the_records_are_covered(sealed: Path) -> None:
    for name in ("manifest.json", "attempts.jsonl"):
        path = sealed / name
        before = path.read_bytes()
        path.write_bytes(before.replace(b"pid 7", b"pid 8"))
        assert verify_bundle(sealed).mismatches == (name,)
        path.write_bytes(before)
    assert verify_bundle(sealed).ok


def test_cut_and_unsealed_bundles_are_not_ok(sealed: Path, packed: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(packed.read_bytes()[:-400])
    assert verify_command(cut) == 3
    assert not verify_bundle(cut).sealed
    os.unlink(sealed / "manifest-sha256.txt")
    result = verify_bundle(sealed)
    assert not result.ok and not result.sealed and result.checked == 10 and result.mismatches == ()


@pytest.mark.parametrize("content", [b"", b"just a log\n", b"\x1f\x8b garbage"])
def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(content)
    for path in (tmp_path / "x", tmp_path, tmp_path / "absent"):
        assert verify_command(path) == 4
        assert capsys.readouterr().err.count("\n") == 2
    with pytest.raises(NotABundle):
        verify_bundle(tmp_path / "x")
