"""Which build of which component runs, and whether its files are those that were installed."""

from __future__ import annotations

from forensics.model.observations import Observation
from forensics.model.records import Record

START_NS = 20_000_000
"""The start of a process is known to a tick of the kernel (10 ms), and the clock that it counts from to another."""


class BuildReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One component of one process, read from its files or from the libraries that it has mapped."""

    component: str
    """"vllm", "torch", "nccl", "cudart", "driver", …: an import package, or a library by its common name."""
    version: str = ""
    build_id: str = ""
    """Of a library its ELF build id, of a package the commit that it names itself."""
    path: str = ""
    via: str = "metadata"
    """metadata (what is installed where the process imports from) | maps (a library that it has mapped) | kernel (its module)"""
    image_started_ns: int | None = None
    """When the program image that the process runs was started."""
    stale: bool = False
    """The file was replaced after the process started: it may run another build than the one that lies there now."""
    inferred: bool = False
    """Several folders hold it and nothing mapped shows which of them it was imported from."""
    editable: str = ""
    """Of a package that is imported from a source folder: that folder. No record names its files."""


class ChangedFile(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A file that is not as the package's own record says."""

    path: str
    """Relative to the folder of the installed packages."""
    changed_ns: int | None = None
    """The later of mtime and ctime; None of a missing file."""


class CodeCheck(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """The installed files of one distribution against the hashes of its own record (RECORD in *.dist-info)."""

    distribution: str
    version: str = ""
    folder: str = ""
    installer: str = ""
    """"pip", "uv", "conda": as it signs itself."""
    pids: tuple[int, ...] = ()
    """Processes that import from this folder."""
    named: int = 0
    """Files that the record names with a hash, without compiled bytecode and the package's own metadata."""
    hashed: int = 0
    """Of those: compared with their hash, or known to differ by their size alone."""
    sources: int = 0
    """How many of the named are Python sources."""
    sources_hashed: int = 0
    modified: tuple[ChangedFile, ...] = ()
    missing: tuple[ChangedFile, ...] = ()
    added: tuple[ChangedFile, ...] = ()
    """Python files inside its packages that no record names."""
    differing: int = 0
    """All of these together: the lists are bounded."""
    walked: bool = True
    """False where added files were not looked for to the end."""
    cut: str = ""
    """Why not everything that should be was looked at; "" where it was."""


class Build(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One distinct build of one component, and who has it."""

    component: str
    version: str = ""
    build_id: str = ""
    path: str = ""
    """Where it was read first; other nodes may have it elsewhere."""
    via: str = ""
    """maps | metadata | kernel | packages (the name of its metadata folder) | log"""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
