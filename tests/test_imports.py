"""Who may import whom, and what a start of the command may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROBE_LIBRARIES = {"psutil", "pynvml"}

MAY_IMPORT = {
    "model": set(),
    "engines": {"model"},
    "bundle": {"model"},
    "capture": {"model", "engines", "bundle"},
    "analysis": {"model", "engines", "bundle", "signatures"},
    "report": {"model"},
    "history": {"model"},
    "signatures": set(),
}
"""What each part of forensics may import of the other parts. cli is missing: it may import everything, and nothing imports it."""
RICH_AT = {"cli", "report/terminal.py", "capture/progress.py"}
JINJA_AT = {"report/templating.py"}


class Import(NamedTuple):
    file: Path
    line: int
    name: str
    at_start: bool
    """False inside a function, or where only a type checker looks."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.name}"


def imports(file: Path) -> Iterator[Import]:
    """Every import of a file with its absolute name."""
    package = file.relative_to(ROOT).parts[:-1]

    def walk(node: ast.AST, at_start: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = at_start and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = False
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, at_start)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(package[: len(package) - child.level + 1]) if child.level else ""
                module = ".".join(filter(None, (base, child.module)))
                for alias in child.names:
                    # `from forensics import engines` imports a part as surely as `import forensics.engines`
                    yield Import(file, child.lineno, f"{module}.{alias.name}", at_start)
            else:
                yield from walk(child, inner)

    yield from walk(ast.parse(file.read_text("utf-8"), str(file)), True)


FORENSICS = sorted((ROOT / "forensics").rglob("*.py"))
COLLECTORS = sorted((ROOT / "collectors").rglob("*.py"))


def part(file: Path) -> str:
    return file.relative_to(ROOT / "forensics").parts[0].removesuffix(".py")


def first(name: str) -> str:
    return name.partition(".")[0]


def test_the_tree_is_there() -> None:
    assert len(FORENSICS) > 20 and len(COLLECTORS) > 10
    assert {part(file) for file in FORENSICS} >= {"model", "engines", "capture", "cli"}


def test_parts_import_only_what_they_may() -> None:
    wrong = []
    for file in FORENSICS:
        allowed = MAY_IMPORT.get(part(file))
        for one in imports(file):
            words = one.name.split(".")
            if words[0] != "forensics" or len(words) < 2 or words[1].startswith("__"):
                continue
            if words[1] == "cli":
                fine = part(file) in ("cli", "__main__")
            else:
                fine = allowed is None or words[1] == part(file) or words[1] in allowed
            if not fine:
                wrong.append(str(one))
    assert not wrong, "\n".join(wrong)


def test_no_part_is_unknown_to_this_table() -> None:
    parts = {file.parent.relative_to(ROOT / "forensics").parts[0] for file in FORENSICS if file.parent != ROOT / "forensics"}
    known = {*MAY_IMPORT, "cli", "_templates", "_toy_engine"}
    assert parts <= known, f"say in MAY_IMPORT what {parts - known} may import"


def test_collectors_are_never_imported_at_start() -> None:
    wrong = [str(one) for file in FORENSICS for one in imports(file) if first(one.name) == "collectors" and one.at_start]
    assert not wrong, "\n".join(wrong)


def test_collectors_stand_on_their_own() -> None:
    wrong = []
    for file in COLLECTORS:
        probes = set()
        for one in imports(file):
            name = first(one.name)
            if name == "collectors":
                inner = one.name.split(".")[1]
                if not inner.startswith("_") and one.name != "collectors.NAMES":
                    wrong.append(str(one))
            elif name in PROBE_LIBRARIES:
                probes.add(name)
            elif name not in sys.stdlib_module_names and name != "__future__":
                wrong.append(str(one))
        if len(probes) > 1:
            wrong.append(f"{file.name} uses {probes}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("library", "places"), [("rich", RICH_AT), ("jinja2", JINJA_AT)])
def test_presentation_stays_at_the_edges(library: str, places: set[str]) -> None:
    wrong = []
    for file in FORENSICS:
        here = file.relative_to(ROOT / "forensics").as_posix()
        if here in places or part(file) in places:
            continue
        wrong += [str(one) for one in imports(file) if first(one.name) == library]
    assert not wrong, "\n".join(wrong)


def test_nothing_but_the_command_line_imports_typer() -> None:
    wrong = [str(one) for file in FORENSICS if part(file) != "cli" for one in imports(file) if first(one.name) == "typer"]
    assert not wrong, "\n".join(wrong)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['forensics', '--help']\nfrom forensics.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        "print('\\n'.join(['MODULES', *sorted(sys.modules)]))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    text, _, modules = done.stdout.partition("MODULES\n")
    assert "capture" in text and "doctor" in text
    loaded = set(modules.split())
    heavy = {"pydantic", "jinja2", "rich.table", "rich.progress", "psutil", "msgspec", "collectors", "forensics.model", "forensics.capture"}
    assert not heavy & loaded, heavy & loaded
