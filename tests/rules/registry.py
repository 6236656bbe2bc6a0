"""What a fixture is: evidence of one incident, and what may be said of it.

No scene is made twice: a fixture is the input of a test that exists (`scene_of`), a folder of files that `made` makes (`mailed`), or a
bundle that was recorded from real processes (`recorded`).
"""

from __future__ import annotations

import inspect
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from forensics.analysis import ingest
from tests.analysis.collectives.lines import read_in
from tests.analysis.conftest import Told
from tests.analysis.engines.folder import look_in
from tests.analysis.layers.folder import told_in
from tests.analysis.made import Files
from tests.analysis.scene import Scene

Build = Callable[[Path], Sequence[Path]]
"""Writes the evidence into an empty folder; returns what is to be analysed."""
RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True, kw_only=True)
class Fixture:
    name: str
    build: Build
    fires: Mapping[str, str] = field(default_factory=dict)
    """Finding id to the grade that it must have: what this fixture is there to show."""
    also: frozenset[str] = frozenset()
    """Further findings that are true of it."""
    clear: tuple[str, ...] = ()
    """Rules that look at it and find nothing: where there is a look-alike, it is here."""
    unclear: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that it does not let decide, with what they say is missing."""
    recorded: bool = False
    """From real processes."""
    healthy: bool = False
    """Nothing is wrong with this engine."""


class _Taken(Exception):
    def __init__(self, paths: Sequence[str | Path]) -> None:
        super().__init__("what a test was about to have analysed")
        self.paths = [Path(p) for p in paths]


def scene_of(test: Callable[..., object], nth: int = 1, **arguments: Any) -> Build:
    """What a test has analysed the `nth` time that it asks for a report. `arguments` are those of its parametrisation."""

    def build(folder: Path) -> Sequence[Path]:
        read, asked = ingest.read_inputs, 0

        def take(paths: Sequence[str | Path]) -> Any:
            nonlocal asked
            asked += 1
            if asked == nth:
                raise _Taken(paths)
            return read(paths)

        ways = {
            "tmp_path": folder,
            "scene": lambda **how: Scene(folder, **how),
            "tell": lambda scene: Told(analyzed(scene.bundle())),
            "told": getattr(inspect.getmodule(test), "told_in", told_in)(folder),
            "read": read_in(folder),
            "look": look_in(folder),
        }
        wanted = {name: ways[name] for name in inspect.signature(test).parameters if name in ways}
        with patch.object(ingest, "read_inputs", take):
            try:
                test(**wanted, **arguments)
            except _Taken as taken:
                return taken.paths
        raise AssertionError(f"{test.__name__} asked for {asked} reports")

    return build


def analyzed(path: Path) -> Any:
    from forensics.analysis import analyze

    return analyze([path])


def mailed(make: Callable[[], Files]) -> Build:
    """A folder of these files."""

    def build(folder: Path) -> Sequence[Path]:
        for name, content in make().items():
            (folder / name).write_text(content)
        return [folder]

    return build


def recorded(name: str) -> Build:
    """A bundle that record.py recorded, unpacked, so that a test can take something out of it."""

    def build(folder: Path) -> Sequence[Path]:
        with tarfile.open(RECORDED / f"{name}.tar.gz") as bundle:
            bundle.extractall(folder, filter="data")
        return list(folder.iterdir())

    return build


def of(
    test: Callable[..., object],
    fires: Mapping[str, str] | None = None,
    *,
    also: Sequence[str] = (),
    clear: Sequence[str] = (),
    unclear: Mapping[str, tuple[str, ...]] | None = None,
    healthy: bool = False,
    nth: int = 1,
    **arguments: Any,
) -> Fixture:
    """A fixture that is the scene of a test, and bears its name."""
    which = "".join(f"[{value}]" if isinstance(value, str | int) else "" for value in arguments.values())
    return Fixture(
        name=f"{test.__name__.removeprefix('test_')}{which}{f'#{nth}' if nth > 1 else ''}",
        build=scene_of(test, nth, **arguments),
        fires=fires or {},
        also=frozenset(also),
        clear=tuple(clear),
        unclear=unclear or {},
        healthy=healthy,
    )


def bundle(
    name: str,
    *,
    fires: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
    clear: Sequence[str] = (),
    unclear: Mapping[str, tuple[str, ...]] | None = None,
    healthy: bool = False,
) -> Fixture:
    """A fixture that is a recorded bundle."""
    return Fixture(
        name=f"recorded-{name}",
        build=recorded(name),
        fires=fires or {},
        also=frozenset(also),
        clear=tuple(clear),
        unclear=unclear or {},
        recorded=True,
        healthy=healthy,
    )
