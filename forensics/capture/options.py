"""What a capture is asked to do, refused early where it cannot be meant, and how it shows what it does."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from forensics.capture.discovery import Discovery, known_kinds
from forensics.capture.errors import BadRequest, OutputUnusable
from forensics.capture.plan import PROFILES, Step
from forensics.capture.runner import collector_command
from forensics.model import Attempt

FREE_BYTES = 4 * 1024 * 1024
"""Below this not even the volatile evidence fits."""


@dataclass(frozen=True)
class CaptureOptions:
    engine: str = "auto"
    pids: tuple[int, ...] = ()
    logs: tuple[Path, ...] = ()
    """Further log files, named by the operator: of an engine that is gone there is nothing else."""
    out: Path = Path()
    incident: str = ""
    profile: str = "standard"
    deadline_s: float = 60.0
    window_s: float = 15.0
    """How long an engine that stands still is watched before that is believed."""
    trigger: str = ""
    reason: str = ""
    patches: Path | None = None
    keep_directory: bool = False
    sysroot: str = ""
    command: Callable[[str], list[str]] = field(default=collector_command, repr=False)
    """Command line of a collector's child."""


class ProgressSink(Protocol):
    """Shows a capture to somebody. Every method must return at once."""

    def found(self, discovery: Discovery) -> None: ...

    def started(self, step: Step) -> None: ...

    def attempt(self, attempt: Attempt) -> None: ...

    def ended(self, step: Step, seconds: float) -> None: ...

    def note(self, text: str) -> None: ...


class Quiet:
    """A progress sink that shows nothing."""

    def found(self, discovery: Discovery) -> None:
        pass

    def started(self, step: Step) -> None:
        pass

    def attempt(self, attempt: Attempt) -> None:
        pass

    def ended(self, step: Step, seconds: float) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def check(options: CaptureOptions) -> None:
    """Everything that can be refused before anything is touched."""
    if options.engine not in known_kinds():
        raise BadRequest(f"there is no engine kind {options.engine!r}", f"choose one of {', '.join(known_kinds())}")
    if options.profile not in PROFILES:
        raise BadRequest(f"there is no profile {options.profile!r}", f"choose one of {', '.join(PROFILES)}")
    if not (1 <= options.deadline_s < math.inf and 0 <= options.window_s < math.inf):  # NaN is neither
        raise BadRequest(
            "the deadline must be at least 1 s, the window not negative, and both finite", "leave --deadline and --window at their defaults"
        )
    for path in options.logs:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise BadRequest(f"log file {path}: {error.strerror}", "name files that exist and that you may read") from error
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        probe = options.out / f".forensics-{os.getpid()}"
        probe.touch(exist_ok=False)
        probe.unlink()
        disk = os.statvfs(options.out)
    except OSError as error:
        cure = "choose a directory that you may write to, on a disk with room, with --out"
        raise OutputUnusable(f"cannot write to {options.out}: {error.strerror or error}", cure) from error
    if disk.f_bavail * disk.f_frsize < FREE_BYTES:
        raise OutputUnusable(
            f"only {disk.f_bavail * disk.f_frsize >> 10} KiB are free under {options.out}", "choose another disk with --out"
        )


def read_patches(path: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """(text, tables) of patches.toml; ("", []) for None. Raises BadRequest for a file that cannot be read as one."""
    if path is None:
        return "", []
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = path.read_text("utf-8")
        return text, [table for table in tomllib.loads(text).get("patch", []) if isinstance(table, dict)]
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", "name an existing patches.toml with --patches") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadRequest(f"{path} is no TOML: {error}", "one [[patch]] table for each patch; see README") from error
