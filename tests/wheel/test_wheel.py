"""The wheel, installed into an empty environment with the source tree out of reach, does the main job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

RENDER_EVERYTHING = """
import sys
from pathlib import Path
import forensics
from forensics.analysis import analyze
from forensics.report import FORMATS, render
from forensics.report.templating import environment, template_names

assert Path(forensics.__file__).is_relative_to(sys.prefix), forensics.__file__
names = template_names()
for name in names:
    if name.endswith(".j2"):
        environment().get_template(name)
report = analyze([Path(sys.argv[1])])
for fmt in FORMATS:
    text = render(report, fmt)
    assert report.verdict.sentence[:20] in text, fmt
print("\\n".join(names))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the source, so that nothing is left in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "tests")
    source = Path(shutil.copytree(ROOT, folder / "source", ignore=ignored))
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    shutil.rmtree(source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, nothing else. Returns its bin folder."""
    home = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)
    return home / "bin"


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_holds_code_templates_signatures_and_the_demo_engine(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for expected in ("forensics/py.typed", "collectors/__main__.py", "forensics/_toy_engine/__main__.py"):
        assert expected in inside
    for source, target in (("templates", "forensics/_templates"), ("forensics/signatures", "forensics/signatures")):
        files = [path for path in (ROOT / source).rglob("*") if path.is_file() and not path.name.startswith(".") and path.suffix != ".pyc"]
        assert files
        for path in files:
            assert f"{target}/{path.relative_to(ROOT / source)}" in inside
    strangers = {name.split("/")[0] for name in inside} - {"forensics", "collectors"}
    assert all(name.endswith(".dist-info") for name in strangers), strangers


@pytest.mark.timeout(600)
def test_every_template_renders(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "node0-worker.log"
    log.write_text("2026-01-01 10:00:00,000 ERROR [rank1] worker hit an exception\nTraceback (most recent call last):\nValueError: 1\n")
    command = [str(installed / "python"), "-c", RENDER_EVERYTHING, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean_environment(), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ours = {str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert set(done.stdout.split()) == {name for name in ours if not Path(name).name.startswith(".")}


@pytest.mark.timeout(600)
def test_the_demo_runs(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "forensics"), "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean_environment(), timeout=180, check=False)
    print(done.stdout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    for name in ("report.html", "report.json", "report.md"):
        assert list((tmp_path / "demo").rglob(name)), name
