"""Where a foreign Python process finds its modules, told from /proc and from its files, without asking it.

No single source is enough: setproctitle wipes the command line and much of the environment, /proc/PID/exe of a venv names
the interpreter that the venv was made from, and a pure Python process maps no module at all. So the sources are put together.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from collectors._contract import os_error_outcome, read_bounded, resolve_in_root, stat_fields

MAPS_BYTES = 8 * 1024 * 1024
"""The maps of a CUDA process hold tens of thousands of lines."""
ANCESTORS = 8
SITE = re.compile(r"(.*?/(?:site|dist)-packages)/")
VERSION = re.compile(r"python(3\.\d+)")


class Process:
    """What one process tells of its interpreter. What may not be read is empty, and `error` holds the first reason."""

    def __init__(self, pid: int, sysroot: str) -> None:
        self.proc, self.error, self.denied = f"{sysroot}/proc/{pid}", "", False
        fields = stat_fields(f"{self.proc}/stat")
        self.parent, self.start_ticks = int(fields[1]), int(fields[19])
        # addresses of code and stack: random for each exec, kept by fork, shown only to those who may trace
        self.image = fields[23], fields[25]
        self.maps: dict[str, str] = {}
        """Mapped files, each with the address range of its first mapping."""
        for line in self.text("maps").splitlines():
            if "/" in line:
                self.maps.setdefault(line.split(None, 5)[-1], line.partition(" ")[0])
        self.environ = dict(item.split("=", 1) for item in self.text("environ").split("\0") if "=" in item)
        self.argv = self.text("cmdline").split("\0")
        self.exe, self.cwd = self.link("exe"), self.link("cwd")

    def text(self, name: str) -> str:
        try:
            return read_bounded(f"{self.proc}/{name}", MAPS_BYTES)[0].decode("utf-8", "surrogateescape")
        except OSError as error:
            return self.note(error)

    def link(self, name: str) -> str:
        try:
            return os.readlink(f"{self.proc}/{name}")
        except OSError as error:
            return self.note(error)

    def note(self, error: OSError) -> str:
        outcome, reason, _ = os_error_outcome(error)
        self.denied, self.error = self.denied or outcome == "DENIED", self.error or reason
        return ""

    def script_folder(self) -> str:
        """sys.path[0] as the command line gives it. Children of multiprocessing inherit that of their parent instead."""
        for argument in () if "--multiprocessing-fork" in self.argv else self.argv[1:]:
            if argument in ("-m", "-c"):
                return self.cwd
            if argument and not argument.startswith("-"):
                return os.path.dirname(os.path.join(self.cwd, argument))
        return ""

    def prefixes(self) -> Iterator[str]:
        """Where its environment may be rooted. `exe` alone names the interpreter that a venv was made from."""
        yield self.environ.get("VIRTUAL_ENV", "")
        program = self.argv[0]
        if "/" in program:
            yield os.path.dirname(os.path.dirname(os.path.join(self.cwd, program)))
        elif program:
            yield from (os.path.dirname(folder) for folder in self.environ.get("PATH", "").split(":"))
        yield os.path.dirname(os.path.dirname(self.exe))


def lineage(pid: int, sysroot: str) -> list[Process]:
    """The process and those living ancestors that run the same interpreter. Raises OSError when the process is gone."""
    family = [Process(pid, sysroot)]
    while len(family) < ANCESTORS and family[-1].parent > 1:
        try:
            family.append(Process(family[-1].parent, sysroot))
        except OSError:
            break
    return [process for process in family if process.exe == family[0].exe]


def start_times(family: list[Process], sysroot: str) -> tuple[int | None, int | None]:
    """(start of the process, start of the oldest ancestor whose image it still runs, forked and not executed anew)."""
    me = family[0]
    boot_ns = booted_ns(sysroot)
    if boot_ns is None:
        return None, None
    same = [p for p in family if p is me or (p.image == me.image and b"0" not in me.image)]
    started = [boot_ns + p.start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") for p in same]
    return started[0], min(started)


def booted_ns(sysroot: str) -> int | None:
    """Boot in ns since the epoch. Live from the clocks of now, because /proc/stat rounds it to a second."""
    if not sysroot:
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        found = re.search(rb"^btime (\d+)", read_bounded(f"{sysroot}/proc/stat", MAPS_BYTES)[0], re.M)
    except OSError:
        return None
    return int(found[1]) * 1_000_000_000 if found else None


def search_path(family: list[Process], package: str, root: str) -> list[str]:
    """Folders to look for `package` in, likely order of sys.path: what the process has mapped outweighs what we would guess."""
    me = family[0]
    version = next((found[1] for found in map(VERSION.search, [me.exe, *sorted(me.maps)]) if found), "")
    sites = [site for site, _ in Counter(m[1] for m in map(SITE.match, me.maps) if m).most_common()]
    for prefix in dict.fromkeys(prefix for p in family for prefix in p.prefixes() if prefix.startswith("/")):
        for lib in (f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/local/lib"):
            for name in ("python3", f"python{version}") if version else names_in(root, lib):
                sites += [f"{lib}/{name}/site-packages", f"{lib}/{name}/dist-packages"]
    sites = [site for site in dict.fromkeys(sites) if os.path.isdir(resolve_in_root(root, site))]
    first = [entry for p in family for entry in (*p.environ.get("PYTHONPATH", "").split(":"), p.script_folder()) if entry]
    beside = [path[: m.start()] for path in me.maps for m in re.finditer(f"/{re.escape(package)}(?=/)", path)]
    linked = [folder for site in sites for folder in editable(root, site, package)]
    found: dict[tuple[int, int], str] = {}  # by identity: lib64 is often a link to lib
    for folder in (os.path.join(me.cwd, entry) for entry in [*first, *sites, *linked, *sorted(beside), me.cwd]):
        try:
            s = os.stat(resolve_in_root(root, folder))
        except OSError:
            continue
        if folder.startswith("/") and stat.S_ISDIR(s.st_mode):
            found.setdefault((s.st_dev, s.st_ino), folder)
    return list(found.values())


def names_in(root: str, folder: str) -> Iterable[str]:
    try:
        return sorted(os.listdir(resolve_in_root(root, folder)))
    except OSError:
        return ()


def editable(root: str, site: str, package: str) -> Iterator[str]:
    """Folders that .pth files add, and where setuptools' finder of an editable install says that `package` lies."""
    for name in names_in(root, site):
        if name.endswith((".pth", "_finder.py")):
            try:
                text = read_bounded(resolve_in_root(root, f"{site}/{name}"), 65536)[0].decode("utf-8", "replace")
            except OSError:
                continue
            if name.endswith(".pth"):
                yield from (os.path.join(site, line) for line in text.splitlines() if line and not line.startswith(("import", "#")))
            elif found := re.search(rf"^MAPPING\b.*['\"]{re.escape(package)}['\"]: *['\"]([^'\"]+)/[^/'\"]+['\"]", text, re.M):
                yield found[1]
