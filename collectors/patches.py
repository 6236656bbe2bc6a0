"""What patches touch, as each process has it: files as they are now, functions and constants as they are in its memory.

`patches/pid-PID.json`, kind "patch-witness": one reading of each patch of option "patches" (the tables of patches.toml) that names a file:
{"patch", "pid", "path": as the process names it, "sysroot_path": as it was opened, "exists", "mtime_ns", "ctime_ns",
 "process_started_ns", "image_started_ns", "size", "sha256": of the file, "contains": true | false | null (not asked, not read),
 "function": {"name", "found", "source_sha256"} | null, "denied", "also": other copies behind it, "searched": […], "error"}.
source_sha256 is that of the last definition's text in UTF-8, from `def` or `class` to its last line, without decorators,
with \\n as line end.

`patches/live-PID.json`, kind "patch-live": what the process has in memory, see `collectors._livepatches`: functions of patches, those that
option "functions" declares [{"module", "function", "role", "engine"}], constants. `compare`: compile what the files say of those, too;
for patches that is done always.

Whether a patch is live is for the analysis to say: when a file changed after `image_started_ns`, the process may run what was there before.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import Any

from collectors._contract import PTRACE_CURE, Emitter, Request, absence, nothing_to_do, os_error_outcome, read_bounded, resolve_in_root
from collectors._cpython import PeekError
from collectors._definitions import UNPARSABLE, Source
from collectors._imports import Process, lineage, search_path, start_times
from collectors._livepatches import LivePatches
from collectors._values import declared

SOURCE_BYTES = 8 * 1024 * 1024
"""No Python source that matters is larger."""
NOT_LIVE = "ABSENT", "no live processes in a recorded tree", ""
NOTHING_DECLARED = "ABSENT", "no function of such a process is declared", ""
Json = dict[str, Any]
Cache = dict[tuple[Any, ...], Json]


def collect(request: Request, emit: Emitter) -> None:
    given = [patch for patch in request.options.get("patches", ()) if isinstance(patch, dict)]
    # everything as text: an operator may have written a number where a text belongs
    tables = [{key: str(value) for key, value in patch.items() if not isinstance(value, (dict, list))} for patch in given]
    files = [patch for patch in tables if patch.get("module") or patch.get("file")]
    live = LivePatches(given, request.options.get("functions"), bool(request.options.get("compare")))
    if not files and not live.wanted:
        with emit.attempt("patches") as attempt:
            attempt.end("ABSENT", "no patches.toml, or none of its patches names a module or a file")
        return
    if not request.targets:
        nothing_to_do(emit, "patches")
        return
    cache: Cache = {}
    for target in request.targets:
        with emit.attempt(target.name, pid=target.pid) as attempt:
            if gone := absence(target, request.sysroot):
                attempt.end(*gone)
                continue
            family = lineage(target.pid, request.sysroot)
            about: Json = {"pid": target.pid, "source": f"/proc/{target.pid}/root"}
            functions = declared(request.options.get("functions"), target.role, target.engine)
            found, verdict = None, NOT_LIVE if request.sysroot else NOTHING_DECLARED
            if live.asks(functions) and not request.sysroot:
                try:
                    found = live.read(target.pid, family, functions)
                    verdict = ("PARTIAL", found["error"], "") if found["error"] else ("OK", "", "")
                except PeekError as error:
                    verdict = error.outcome, str(error), error.cure
            if files:
                readings = read_process(family, target.pid, files, request.sysroot, cache, found["modules"] if found else {})
                name = f"patches/pid-{target.pid}.json"
                attempt.evidence.append(emit.evidence(name, "patch-witness", json.dumps(readings), **about))
                verdict = _of_files(readings) or (("PARTIAL", *verdict[1:]) if verdict[0] not in ("OK", "ABSENT") else ("OK", "", ""))
            if found:
                attempt.evidence.append(emit.evidence(f"patches/live-{target.pid}.json", "patch-live", json.dumps(found), **about))
            attempt.end(*verdict)


def _of_files(readings: list[Json]) -> tuple[str, str, str] | None:
    denied = [r["error"] for r in readings if r["denied"]]
    wrong = [r["error"] for r in readings if r["error"]]
    if denied:
        return "DENIED" if len(denied) == len(readings) else "PARTIAL", denied[0], PTRACE_CURE
    return ("PARTIAL", wrong[0], "") if wrong else None


def read_process(
    family: list[Process], pid: int, patches: list[dict[str, str]], sysroot: str, cache: Cache, known: dict[str, str]
) -> list[Json]:
    """`known`: the files that the process itself says its modules are of; others are looked for where modules usually lie."""
    me = family[0]
    root = f"{me.proc}/root" if not sysroot or os.path.isdir(f"{me.proc}/root") else sysroot
    started_ns, image_started_ns = start_times(family, sysroot)
    readings = []
    for patch in patches:
        reading: Json = {"patch": patch.get("name", ""), "pid": pid, "path": "", "sysroot_path": "", "exists": False, "error": ""}
        reading |= {"process_started_ns": started_ns, "image_started_ns": image_started_ns, "also": [], "denied": False}
        reading |= dict.fromkeys(("mtime_ns", "ctime_ns", "size", "sha256", "contains", "function"))
        module = patch.get("module", "").replace(".", "/")
        mine = known.get(patch.get("module", ""), "")
        names = [mine] if mine else [f"{module}.py", f"{module}/__init__.py"] if module else [patch["file"]]
        reading["searched"] = ["/"] if names[0].startswith("/") else search_path(family, names[0].split("/")[0], root)
        for path in (os.path.join(folder, name) for folder in reading["searched"] for name in names):
            try:
                where = resolve_in_root(root, path)
                if reading["exists"] and os.path.exists(where):
                    reading["also"].append(path)
                elif not reading["exists"]:
                    reading |= {**read_file(where, patch, cache), "path": path, "sysroot_path": where, "exists": True}
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                outcome, reason, _ = os_error_outcome(error)
                reading |= {"path": path, "error": reason, "denied": outcome == "DENIED"}
        if not reading["exists"] and not reading["error"] and (me.denied or not reading["searched"]):
            reading |= {"error": me.error or "nothing tells where its modules lie", "denied": me.denied}
        readings.append(reading)
    return readings


def read_file(where: str, patch: dict[str, str], cache: Cache) -> Json:
    """The file's part of a reading. Ranks that share a file share the reading."""
    s = os.stat(where)
    key = (s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size, patch.get("contains"), patch.get("function"))
    if key not in cache:
        reading: Json = {"mtime_ns": s.st_mtime_ns, "ctime_ns": s.st_ctime_ns, "size": s.st_size}
        raw, cut = read_bounded(where, SOURCE_BYTES) if stat.S_ISREG(s.st_mode) else (b"", True)
        if cut:
            reading["error"] = f"not a regular file of at most {SOURCE_BYTES} bytes"
        else:
            reading["sha256"] = hashlib.sha256(raw).hexdigest()
            reading["contains"] = patch["contains"].encode() in raw if "contains" in patch else None
            reading |= read_function(raw, patch["function"]) if "function" in patch else {}
        cache[key] = reading
    return cache[key]


def read_function(raw: bytes, name: str) -> Json:
    """Find the definition `name` ("f", "Class.method") by parsing; nothing is imported or run."""
    try:
        return {"function": Source(raw).function(name)}
    except UNPARSABLE as error:
        return {"function": None, "error": f"cannot be parsed here: {type(error).__name__}: {error}"}
