"""What the files that a patch touches hold now, as each process sees them: `patches/pid-PID.json`, one reading per patch.

Option "patches": the tables of patches.toml (name; module or file; contains | sha256 | function; …). A reading is
{"patch", "pid", "path": as the process names it, "sysroot_path": as it was opened, "exists", "mtime_ns", "ctime_ns",
 "process_started_ns", "image_started_ns", "size", "sha256": of the file, "contains": true | false | null (not asked, not read),
 "function": {"name", "found", "source_sha256"} | null, "also": other copies behind it, "searched": […], "error"}.
source_sha256 is that of the last definition's text in UTF-8, from `def` or `class` to its last line, without decorators,
with \\n as line end. Whether the patch is live is for the analysis to say: what changed after `image_started_ns` may not be.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

from collectors._contract import PTRACE_CURE, Emitter, Request, absence, nothing_to_do, os_error_outcome, read_bounded, resolve_in_root
from collectors._imports import lineage, search_path, start_times

SOURCE_BYTES = 8 * 1024 * 1024
"""No Python source that matters is larger."""
Json = dict[str, Any]


def collect(request: Request, emit: Emitter) -> None:
    # everything as text: an operator may have written a number where a text belongs
    tables = [{key: str(value) for key, value in patch.items()} for patch in request.options.get("patches", ())]
    patches = [patch for patch in tables if patch.get("module") or patch.get("file")]
    if not patches:
        with emit.attempt("patches") as attempt:
            attempt.end("ABSENT", "no patches.toml, or none of its patches names a module or a file")
        return
    if not request.targets:
        nothing_to_do(emit, "patches")
        return
    cache: dict[tuple[Any, ...], Json] = {}
    for target in request.targets:
        with emit.attempt(target.name, pid=target.pid) as attempt:
            if gone := absence(target, request.sysroot):
                attempt.end(*gone)
                continue
            readings = read_process(target.pid, patches, request.sysroot, cache)
            wrong = [r["error"] for r in readings if r["error"]]
            denied = [r["error"] for r in readings if r.pop("denied")]
            if denied:
                attempt.end("DENIED" if len(denied) == len(readings) else "PARTIAL", denied[0], PTRACE_CURE)
            elif wrong:
                attempt.end("PARTIAL", wrong[0])
            name, source = f"patches/pid-{target.pid}.json", f"/proc/{target.pid}/root"
            attempt.evidence.append(emit.evidence(name, "patch-witness", json.dumps(readings), pid=target.pid, source=source))


def read_process(pid: int, patches: list[dict[str, str]], sysroot: str, cache: dict[tuple[Any, ...], Json]) -> list[Json]:
    family = lineage(pid, sysroot)
    me = family[0]
    root = f"{me.proc}/root" if not sysroot or os.path.isdir(f"{me.proc}/root") else sysroot
    started_ns, image_started_ns = start_times(family, sysroot)
    readings = []
    for patch in patches:
        reading: Json = {"patch": patch.get("name", ""), "pid": pid, "path": "", "sysroot_path": "", "exists": False, "error": ""}
        reading |= {"process_started_ns": started_ns, "image_started_ns": image_started_ns, "also": [], "denied": False}
        reading |= dict.fromkeys(("mtime_ns", "ctime_ns", "size", "sha256", "contains", "function"))
        module = patch.get("module", "").replace(".", "/")
        names = [f"{module}.py", f"{module}/__init__.py"] if module else [patch["file"]]
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


def read_file(where: str, patch: dict[str, str], cache: dict[tuple[Any, ...], Json]) -> Json:
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
        source = importlib.util.decode_source(raw)
        found: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"function": None, "error": f"cannot be parsed here: {type(error).__name__}: {error}"}
    for part in name.split("."):
        found = [node for outer in found for node in definitions(outer) if getattr(node, "name", "") == part]
    text = ast.get_source_segment(source, found[-1]) if found else None
    sha256 = None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"function": {"name": name, "found": text is not None, "source_sha256": sha256}}


def definitions(outer: ast.AST) -> Iterator[ast.AST]:
    """Functions and classes of one scope, those under `if` and `try` included."""
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        else:
            yield from definitions(node)
