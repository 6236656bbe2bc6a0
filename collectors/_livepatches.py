"""What one process has in its memory of the functions and constants that somebody asks about, beside what the files say of them.

{"python": "3.11.7" of the process, "ours": "3.11.7", "process_started_ns", "image_started_ns", "error",
 "modules": {module of a patch: the file that it was made from},
 "code": [{…`Functions.look`, each link of its chain with "own_file": whether it lies in the module's own file, null: cannot be told,
                "disk": {…`_disk`} | null: not asked}],
 "constants": [{"patch", …`read_constants`}]}
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from collectors import _imports
from collectors._contract import os_error_outcome, read_bounded, resolve_in_root
from collectors._cpython import OutOfBounds, Process, attach
from collectors._definitions import UNPARSABLE, Source
from collectors._livecode import Functions
from collectors._livevalues import read_constants

SOURCE_BYTES = 2 * 1024 * 1024
"""Of a file that is parsed and compiled: half a second of work."""
READ_BYTES, READ_S = 32 << 20, 3.0
"""Of one process."""
Json = dict[str, Any]
Wanted = dict[tuple[str, str], bool]
"""(module, function) -> whether what its file says is compiled."""


class LivePatches:
    """What is asked of all processes. Files are parsed once for those that share them."""

    def __init__(self, patches: list[Json], declared: object, compare: bool) -> None:
        self._functions = {(str(p["module"]), str(p["function"])): True for p in patches if p.get("module") and p.get("function")}
        self._constants = [
            (str(p.get("name", "")), str(p.get("module") or ""), str(p["live"].get("object", "")), p["live"].get("equals"))
            for p in patches
            if isinstance(p.get("live"), dict)
        ]
        self._modules = [str(p["module"]) for p in patches if p.get("module")]
        self._compare = compare
        self._sources: dict[tuple[int, int, int, int], tuple[Source | None, str]] = {}
        self.wanted = bool(self._modules or self._constants or declared)

    def asks(self, functions: list[Json]) -> bool:
        return bool(self._modules or self._constants or functions)

    def read(self, pid: int, family: list[_imports.Process], functions: list[Json]) -> Json:
        """Raises PeekError where the process cannot be read at all; what is read by the end of its bounds is kept."""
        wanted: Wanted = {(str(one.get("module", "")), str(one.get("function", ""))): self._compare for one in functions} | self._functions
        started_ns, image_started_ns = _imports.start_times(family, "")
        found: Json = {"python": "", "ours": _version(sys.hexversion), "process_started_ns": started_ns}
        found |= {"image_started_ns": image_started_ns, "modules": {}, "code": [], "constants": [], "error": ""}
        with attach(pid) as process:
            try:
                with process.memory.limited(READ_BYTES, READ_S):
                    self._read(process, family[0], wanted, found)
            except OutOfBounds as error:
                found["error"] = str(error)
        return found

    def _read(self, process: Process, me: _imports.Process, wanted: Wanted, found: Json) -> None:
        look = Functions(process, [*(module for module, _ in wanted), *self._modules])
        hexversion, optimize = look.flags["hexversion"], look.flags["optimize"]
        found["python"] = _version(hexversion) if isinstance(hexversion, int) else "{}.{}".format(*process.version)
        files = {module: os.path.join(me.cwd, look.file_of(module)) for module in self._modules}
        found["modules"] = {module: file for module, file in files.items() if file.endswith(".py")}
        # first what is in memory, of one moment as far as that goes; files can wait
        for module, name in wanted:
            found["code"].append({**look.look(module, name), "disk": None})
        if self._constants:
            readings = read_constants(process, [(module, text, equals) for _, module, text, equals in self._constants])
            found["constants"] = [{"patch": patch[0], **reading} for patch, reading in zip(self._constants, readings, strict=True)]
        same = process.version == sys.version_info[:2] and optimize in (0, 1, 2)
        for one in found["code"]:
            for link in one["chain"]:
                link["own_file"] = _same_file(me, link["file"], one["module_file"])
            compare = wanted[one["module"], one["function"]]
            if one["chain"] and not one["inherited_from"] and (compare or one["chain"][0]["own_file"] is False):
                one["disk"] = self._disk(me, one, optimize if compare and same else None)

    def _disk(self, me: _imports.Process, one: Json, optimize: int | None) -> Json:
        """{"path", "changed_ns", "defined": […], "rebound": [line], "compiled", "error"}: see `collectors._definitions.Source`."""
        path = os.path.join(me.cwd, one["module_file"])
        disk: Json = {"path": path, "changed_ns": None, "defined": [], "rebound": [], "compiled": optimize is not None, "error": ""}
        if not path.endswith(".py"):
            return {**disk, "error": "its module was not read from a source file"}
        try:
            where = resolve_in_root(f"{me.proc}/root", path)
            s = os.stat(where)
            disk["changed_ns"] = max(s.st_mtime_ns, s.st_ctime_ns)
            source, disk["error"] = self._source(where, s)
            if source:
                disk["defined"] = source.definitions(one["function"], optimize)
                disk["rebound"] = source.rebound(one["function"])
        except UNPARSABLE as error:
            disk["error"] = f"cannot be compiled here: {type(error).__name__}: {error}"
        except OSError as error:
            disk["error"] = os_error_outcome(error)[1]
        return disk

    def _source(self, where: str, s: os.stat_result) -> tuple[Source | None, str]:
        key = s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size
        if key not in self._sources:
            raw, cut = read_bounded(where, SOURCE_BYTES) if stat.S_ISREG(s.st_mode) else (b"", True)
            try:
                self._sources[key] = (None, f"not a regular file of at most {SOURCE_BYTES} bytes") if cut else (Source(raw), "")
            except UNPARSABLE as error:
                self._sources[key] = None, f"cannot be parsed here: {type(error).__name__}: {error}"
        return self._sources[key]


def _same_file(me: _imports.Process, file: str, module_file: str) -> bool | None:
    """Whether code comes from its module's own file. None for code that was frozen into the interpreter, or a module without a file."""
    if not module_file or file.startswith("<frozen "):
        return None
    one, other = (os.path.normpath(os.path.join(me.cwd, path)) for path in (file, module_file))
    if one == other:
        return True
    try:
        return os.path.samefile(*(resolve_in_root(f"{me.proc}/root", path) for path in (one, other)))
    except OSError:
        return False


def _version(hexversion: int) -> str:
    return f"{hexversion >> 24}.{hexversion >> 16 & 255}.{hexversion >> 8 & 255}"
