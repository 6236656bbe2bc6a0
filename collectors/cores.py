"""Core files that lie on the node: where the kernel puts them, in systemd's and apport's folders, in the targets' own folders.

`cores/list.json` (kind cores): {"core_pattern", "looked": [folders], "cores": [{"path", "size_bytes", "mtime_ns", "executable",
"pid", "signal", "compression", "error"}]}, newest first. The newest few of an engine's interpreter are read with pystack, where it
is installed: the stacks of a process that is gone. A core file itself is never copied: it holds everything that the process knew.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

from collectors import _pystack
from collectors._commands import run_bounded
from collectors._contract import Emitter, Request, read_bounded, resolve_in_root
from collectors._elfcore import compression, identify

PATTERN_FILE = "/proc/sys/kernel/core_pattern"
FOLDERS = ("/var/lib/systemd/coredump", "/var/lib/apport/coredump", "/var/crash")
USUAL = re.compile(r"core(?:[._-].*)?|.*[._-]core")
"""The kernel's own name, and what people make of it. What is no core by its content is left out in any case."""
SYSTEMD = re.compile(r"core\.(?P<comm>.*)\.(?P<uid>\d+)\.[0-9a-f]{32}\.(?P<pid>\d+)\.\d+(?:\.\w+)?")
"""core.COMM.UID.BOOT.PID.TIME: systemd-coredump(8)."""
_NUMBER = re.compile(r"\.\d+\Z")
INTERPRETERS = ("python", "pt_main_thread", "VLLM", "vllm", "sglang", "trtllm", "ray::")
ENTRIES_MAX, FOLDERS_MAX, LISTED_MAX, READ_MAX = 10_000, 64, 64, 3
PATIENCE_S = 10.0
OUTPUT_BYTES = 16 * 1024 * 1024


Named = Callable[[str], object]
"""Whether a file may be a core by its name."""


def pattern_name(pattern: str) -> Named:
    """What files are called that the kernel writes by a core_pattern ("/var/cores/%e.%p")."""
    # no regular expression: ".*" after ".*" takes ages over a name that was made for it, and any user may name a file
    first, *rest = re.split(r"%[A-Za-z]", pattern.rpartition("/")[2].replace("%%", "%"))

    def fits(name: str) -> bool:
        if not rest:
            return name == first
        at = len(first)
        for part in rest[:-1]:
            found = name.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return name.startswith(first) and name.endswith(rest[-1]) and at <= len(name) - len(rest[-1])

    # the kernel adds .PID where core_uses_pid is set
    return lambda name: fits(name) or fits(_NUMBER.sub("", name))


def folders(request: Request, pattern: str) -> Iterator[tuple[str, str, Named]]:
    """(how the node calls the folder, how we reach it, what cores are called there), without repetitions by name."""
    piped = pattern.startswith("|")
    kernel = os.path.dirname(pattern) if pattern.startswith("/") else ""
    for folder in FOLDERS:
        yield folder, resolve_in_root(request.sysroot, folder), USUAL.fullmatch
    kernels = pattern_name(pattern)
    if kernel:
        yield kernel, resolve_in_root(request.sysroot, kernel), kernels
    for target in request.targets:
        proc = f"{request.sysroot}/proc/{target.pid}"
        try:
            cwd = os.readlink(f"{proc}/cwd")
            # what is written by a relative pattern, and what was put there by hand (gcore)
            names = USUAL.fullmatch if piped or kernel else lambda name: USUAL.fullmatch(name) or kernels(name)
            if request.sysroot:
                yield cwd, resolve_in_root(request.sysroot, cwd), names
                continue
            inside = os.readlink(f"{proc}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
            root = f"/proc/{target.pid}/root" if inside else ""
            yield root + cwd, f"{proc}/cwd", names
            if kernel and inside:  # the pattern is applied in the root of the process that dies
                yield root + kernel, resolve_in_root(root, kernel), kernels
        except OSError:
            continue  # the target is gone, or not ours to look at: the process collector says so


class Finder:
    """Looks into folders, each once, and remembers each core once."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.denied: list[str] = []
        self.cores: dict[tuple[int, int], dict[str, Any]] = {}
        self._seen: set[tuple[int, int]] = set()

    def look(self, label: str, folder: str, names: Named) -> None:
        try:
            at = os.stat(folder)
            if (at.st_dev, at.st_ino) in self._seen or len(self._seen) >= FOLDERS_MAX:
                return
            entries = os.scandir(folder)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self.denied.append(label)
            return
        self._seen.add((at.st_dev, at.st_ino))
        self.looked.append(label)
        with entries:
            for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
                if names(entry.name):
                    self.consider(f"{label}/{entry.name}", entry.path)

    def consider(self, label: str, path: str) -> None:
        try:
            about = os.lstat(path)
            if not stat.S_ISREG(about.st_mode) or not about.st_size:
                return
        except OSError:
            return  # deleted since it was listed
        core = {"path": label, "open": path, "size_bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "error": ""}
        core |= {"executable": "", "pid": None, "signal": None, "compression": ""}
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                known = identify(lambda offset, length: os.pread(fd, length, offset))
                core["compression"] = compression(os.pread(fd, 8, 0))
            finally:
                os.close(fd)
            if known:
                core |= {"executable": known.executable, "pid": known.pid or None, "signal": known.signal or None}
            elif not core["compression"]:
                return  # called like a core and none: core.py, core.log
        except OSError as error:
            core["error"] = errno.errorcode.get(error.errno or 0, "EIO")
        if (match := SYSTEMD.fullmatch(path.rpartition("/")[2])) and not core["executable"]:
            core |= {"executable": match["comm"], "pid": int(match["pid"])}
        self.cores[about.st_dev, about.st_ino] = core


def collect(request: Request, emit: Emitter) -> None:
    """Options: `pystack`, path of the program; `patience_s` of one reading."""
    finder = Finder()
    with emit.attempt("core files") as attempt:
        try:
            pattern = read_bounded(request.sysroot + PATTERN_FILE, 1024)[0].decode("utf-8", "replace").strip()
        except OSError:
            pattern = ""
        for label, folder, names in folders(request, pattern):
            finder.look(label, folder, names)
        cores = sorted(finder.cores.values(), key=lambda core: -core["mtime_ns"])
        listed = [{name: value for name, value in core.items() if name != "open"} for core in cores[:LISTED_MAX]]
        if not pattern and not finder.looked:
            attempt.end("ABSENT", "no core_pattern, and no folder where core files go")
        else:
            text = json.dumps({"core_pattern": pattern, "looked": finder.looked, "cores": listed}, indent=1)
            attempt.evidence.append(emit.evidence("cores/list.json", "cores", text, source=PATTERN_FILE))
            if finder.denied:
                attempt.end("PARTIAL", "not permitted: " + ", ".join(finder.denied[:4]), "run as root")
            elif not cores:
                attempt.end(
                    "EMPTY", f"no core file in {', '.join(finder.looked[:8]) or 'any folder'}; core_pattern is {pattern or 'not readable'}"
                )
            elif len(cores) > LISTED_MAX:
                attempt.end("PARTIAL", f"the newest {LISTED_MAX} of {len(cores)} core files are listed")
    if not request.sysroot:
        read(request, emit, cores)


def read(request: Request, emit: Emitter, cores: list[dict[str, Any]]) -> None:
    """The stacks of the newest few cores that an engine's interpreter left."""
    comms = set()
    for target in request.targets:
        try:
            comms.add(read_bounded(f"/proc/{target.pid}/comm", 64)[0].decode("utf-8", "replace").strip())
        except OSError:
            continue
    ours = [core for core in cores if core["executable"].startswith(INTERPRETERS) or core["executable"] in comms][:READ_MAX]
    program = _pystack.find(str(request.options.get("pystack", ""))) if ours else None
    patience_s = float(request.options.get("patience_s", PATIENCE_S))
    for number, core in enumerate(ours, 1):
        with emit.attempt(f"core {core['path']}") as attempt:
            if core["compression"]:
                attempt.end("UNSUPPORTED", f"packed by {core['compression']}", "unpack it (coredumpctl dump) and run pystack core on it")
            elif core["error"]:
                attempt.end("DENIED", f"{core['error']}: not permitted to read it", "run as root")
            elif program is None:
                attempt.end("SKIPPED", "pystack was not found: listed only", _pystack.CURE)
            else:
                with _pystack.deep_stack():
                    ran = run_bounded([program, "--no-color", "core", "--native-all", core["open"]], patience_s, OUTPUT_BYTES)
                if ran.status is None and not ran.out:
                    attempt.end("TIMEOUT", f"pystack gave no answer within {patience_s:g} s")
                else:
                    attempt.end(*_pystack.judge(ran.status, ran.out, ran.err.decode("utf-8", "replace")))
                if b"(most recent call last):" in ran.out:
                    name = f"cores/pystack-pid-{core['pid'] or 0}.{number}.txt"
                    about: dict[str, Any] = {"pid": core["pid"], "at_ns": core["mtime_ns"], "truncated": ran.cut}
                    attempt.evidence.append(emit.evidence(name, "pystack-text", ran.out, source=f"pystack core {core['path']}", **about))
