"""What is really loaded: builds of the engine and of what it stands on, and whether installed files are those of their package.

`builds/pid-PID.json` (kind "builds"): {"pid", "python", "process_started_ns", "image_started_ns", "driver": of the kernel's module,
 "packages": [{"package", "folder": of packages, "version", "commit", "owners": names, "changed_ns", "editable", "inferred", "also"}],
 "libraries": [{"path", "deleted", "preloaded", "build_id", "version", "error"}], "preloaded": [paths]}.
`builds/environment-N.json` (kind "environment"), one for each set of folders that processes share: {"pids", "folders",
 "distributions": [see _installed.Distribution], "checks": [{"distribution", "version", "folder", … see _recorded.Check.result}]}.
Options: `packages`: {engine id: import packages of its own}; `hash_bytes`, `hash_s`: bounds; `everything`: hash libraries and data too.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from collectors._contract import (
    PTRACE_CURE,
    Emitter,
    Request,
    Target,
    absence,
    nothing_to_do,
    read_bounded,
    resolve_in_root,
)
from collectors._environment import Environment, check
from collectors._imports import VERSION, Process, lineage, search_path, start_times
from collectors._installed import Distribution, installed, named_by_itself, owners, version_of_library
from collectors._libraries import Read, mapped, preloads
from collectors._recorded import Budget

HASH_BYTES, HASH_S = 192 << 20, 20.0
"""Sources of an engine and of torch are 90 MB in 5,000 files; one core hashes 0.4 to 2 GB a second."""
ENGINES = ("vllm", "sglang", "sgl_kernel", "tensorrt_llm")
BESIDE = ("torch",)
Json = dict[str, Any]
Place = tuple[tuple[str, str], tuple[str, ...]]
"""(mount namespace, root), folders of packages"""
Folders = dict[tuple[tuple[str, str], str], list[Distribution]]


def collect(request: Request, emit: Emitter) -> None:
    if not request.targets:
        nothing_to_do(emit, "builds")
        return
    environments: dict[Place, Environment] = {}
    libraries: Read = {}
    seen: Folders = {}
    for target in request.targets:
        with emit.attempt(target.name, pid=target.pid) as attempt:
            if gone := absence(target, request.sysroot):
                attempt.end(*gone)
                continue
            told, denied = read_process(request, target, environments, libraries, seen)
            if denied:
                attempt.end("PARTIAL" if told["packages"] or told["libraries"] else "DENIED", denied, PTRACE_CURE)
            elif not told["packages"] and not told["libraries"]:
                attempt.end("EMPTY", "no package of an engine where it imports from, and no library that tells a build")
            name, source = f"builds/pid-{target.pid}.json", f"/proc/{target.pid}/maps"
            attempt.evidence.append(emit.evidence(name, "builds", json.dumps(told), pid=target.pid, source=source))
    budget = Budget(int(request.options.get("hash_bytes", HASH_BYTES)), float(request.options.get("hash_s", HASH_S)))
    for number, environment in enumerate(environments.values(), 1):
        with emit.attempt(
            f"installed files of {', '.join(d.name for d in environment.checked.values()) or 'no engine'} ({number})"
        ) as attempt:
            checks = list(check(environment, budget, bool(request.options.get("everything"))))
            body = {"pids": environment.pids, "folders": environment.folders, "checks": checks}
            body["distributions"] = [d.told() for d in environment.distributions]
            if cut := next((c for c in checks if c["cut"]), None):
                attempt.end("PARTIAL", f"{cut['distribution']}: {cut['hashed']} of {cut['named']} files compared: {cut['cut']}")
            elif not checks:
                attempt.end("EMPTY", "no distribution of an engine is installed there")
            name, source = f"builds/environment-{number}.json", environment.folders[0] if environment.folders else ""
            attempt.evidence.append(emit.evidence(name, "environment", json.dumps(body), source=source))


def read_process(
    request: Request, target: Target, environments: dict[Place, Environment], libraries: Read, seen: Folders
) -> tuple[Json, str]:
    """(what is told of one process, why something of it was denied), its environment added to the others."""
    sysroot = request.sysroot
    family = lineage(target.pid, sysroot)
    me = family[0]
    root = f"{me.proc}/root" if not sysroot or os.path.isdir(f"{me.proc}/root") else sysroot
    asked = dict(request.options.get("packages", {})).get(target.engine, ENGINES)
    wanted = [package for package in (*asked, *BESIDE) if str(package).isidentifier()]
    paths = {package: search_path(family, package, root) for package in wanted}
    view = (me.link("ns/mnt"), me.link("root")) if not sysroot else (root, "")
    found = {folder: _installed(seen, view, root, folder) for folder in dict.fromkeys(folder for path in paths.values() for folder in path)}
    # folders without distributions differ between processes of one environment: that of the script, the working one
    key = view, tuple(folder for folder, distributions in found.items() if distributions)
    environment = environments.setdefault(key, Environment(root, list(key[1]), distributions=[d for each in found.values() for d in each]))
    environment.pids.append(target.pid)
    packages = [told for package in wanted if (told := read_package(me, package, paths[package], environment))]
    python = next((found[1] for found in map(VERSION.search, [me.exe, *sorted(me.maps)]) if found), "")
    started, image_started = start_times(family, sysroot)
    before = preloads(family, root)
    inside = [f"{told['folder']}/{told['package']}" for told in packages]
    told = {"pid": target.pid, "python": python, "process_started_ns": started, "image_started_ns": image_started, "preloaded": before}
    loaded = list(mapped(me, root, inside, before, libraries))
    for library in loaded:
        library["version"] = library["version"] or version_of_library(library["path"], environment.distributions)
    told |= {"driver": driver(sysroot), "packages": packages, "libraries": loaded}
    return told, me.error if me.denied else ""


def _installed(seen: Folders, view: tuple[str, str], root: str, folder: str) -> list[Distribution]:
    if (view, folder) not in seen:
        seen[view, folder] = installed(root, folder)
    return seen[view, folder]


def read_package(me: Process, package: str, path: list[str], environment: Environment) -> Json | None:
    """Where the process imports a package from, and who installed it there; None where no folder holds it."""
    root = environment.root
    holding = [folder for folder in path if os.path.isfile(resolve_in_root(root, f"{folder}/{package}/__init__.py"))]
    if not holding:
        return None
    seen = [folder for folder in holding if any(name.startswith(f"{folder}/{package}/") for name in me.maps)]
    folder = (seen or holding)[0]
    version, commit = named_by_itself(resolve_in_root(root, f"{folder}/{package}"))
    found = list(owners(package, folder, environment.distributions))
    for distribution in found:
        environment.checked.setdefault(distribution.meta, distribution)
        if package in BESIDE:
            environment.beside.add(distribution.meta)
    first = found[0] if found else None
    told: Json = {"package": package, "folder": folder, "version": first.version if first else version, "commit": commit}
    told |= {"owners": [d.name for d in found], "changed_ns": first.changed_ns if first else 0}
    told["editable"] = next((d.editable for d in found if d.editable), "")
    # mapped files prove where it was imported from; else the order of folders is what we would guess
    return {**told, "inferred": not seen and len(holding) > 1, "also": [other for other in holding if other != folder]}


def driver(sysroot: str) -> str:
    """Version of the NVIDIA module that the kernel has loaded, "" where there is none."""
    try:
        text = read_bounded(f"{sysroot}/proc/driver/nvidia/version", 4096)[0].decode("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)*)\s", text)
    return found[1] if found else ""
