"""What /proc and its cgroup say of each target: who it is, in what state, under which limits. One fileset a process and sample.

A zombie is worth reading: its `stat` still holds the exit code (field 52). The environment is not copied: only names of an
allow-list leave this process, as a pseudo-file "/proc/PID/environ" of NAME=value lines.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from collectors._contract import Emitter, FileSet, Request, Target, absence, nothing_to_do, read_bounded

FILES = ("status", "stat", "limits", "cgroup", "wchan", "schedstat", "oom_score", "cmdline")
LINKS = ("exe", "cwd", "root", "ns/pid", "ns/mnt", "fd/1", "fd/2")

ENV_ALLOW = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "NODE_RANK", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "PYTHONFAULTHANDLER", "PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "TZ", "HOSTNAME", "VIRTUAL_ENV",
    "VLLM_*", "NCCL_*", "TORCH_*", "TORCHELASTIC_*", "PYTORCH_*", "GLOO_*", "UCX_*", "SGLANG_*", "SGL_*", "TRTLLM_*", "TLLM_*",
    "RAY_*", "NVSHMEM_*", "OMPI_COMM_WORLD_*", "PMI_*", "SLURM_*", "KUBERNETES_NODE_NAME",
)  # fmt: skip
"""Names, or beginnings of names, that say how an engine was set up and are no secret."""
ENV_NEVER = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE")
"""A name with one of these in it stays here, whoever allowed it: better a count of tokens lost than a token sent."""

CGROUP2_FILES = (
    "memory.max", "memory.high", "memory.current", "memory.peak", "memory.swap.current", "memory.events", "memory.events.local",
    "memory.stat", "memory.pressure", "cpu.max", "cpu.stat", "cpu.pressure",
)  # fmt: skip
CGROUP1_FILES = (
    "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control", "memory.stat",
)  # fmt: skip
ABOVE = ("memory.max", "memory.current", "memory.events", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
"""Read of the groups above as well: the limit that kills is often that of the pod, not of the container."""
GROUPS_MAX = 8


def allowed(name: str, extra: tuple[str, ...] = ()) -> bool:
    if any(word in name.upper() for word in ENV_NEVER):
        return False
    return any(name == entry or (entry.endswith("*") and name.startswith(entry[:-1])) for entry in (*ENV_ALLOW, *extra))


def add_environ(photo: FileSet, pid: int, extra: tuple[str, ...]) -> None:
    """Add the allowed part of the environment. Of a process that retitled itself only the tail is left: setproctitle writes over it."""
    path = f"/proc/{pid}/environ"
    try:
        raw, _ = read_bounded(photo.path(path))
    except OSError as error:
        photo.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
        return
    entries = (entry.decode("utf-8", "backslashreplace") for entry in raw.split(b"\0") if b"=" in entry)
    lines = [entry.replace("\n", "\\n") for entry in entries if allowed(entry.partition("=")[0], extra)]
    photo.files[path] = "\n".join(lines)


def cgroup_folders(photo: FileSet, text: str) -> list[str]:
    """The memory cgroup of a process and those above it, as paths under /sys/fs/cgroup; nearest first, [] where not mounted."""
    groups = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    first = next((path for _, names, path in groups if "memory" in names.split(",")), None)
    base = "/sys/fs/cgroup/memory"
    if first is None:  # version 2, or a hybrid whose memory controller sits there
        first, base = next((path for number, _, path in groups if number == "0"), None), "/sys/fs/cgroup"
    if first is None or not os.path.isdir(photo.path(base)):
        return []
    folder = os.path.normpath(base + first)
    if not folder.startswith(base) or not os.path.isdir(photo.path(folder)):
        # We live in a container whose view begins at its own group. Its root is the target's group only if both name the same one.
        try:
            own, _ = read_bounded(photo.path("/proc/self/cgroup"))
        except OSError:
            return []
        return [base] if own.decode("utf-8", "replace") == text else []
    found = [folder]
    while found[-1] != base and len(found) < GROUPS_MAX:
        found.append(os.path.dirname(found[-1]))
    return found


def add_cgroup(photo: FileSet, text: str, cache: dict[str, str]) -> None:
    """Add the memory files of the target's groups. Processes of one container share them: `cache` reads each once a sample."""
    for depth, folder in enumerate(cgroup_folders(photo, text)):
        names = CGROUP1_FILES if folder.startswith("/sys/fs/cgroup/memory") else CGROUP2_FILES
        for name in names if depth == 0 else [name for name in names if name in ABOVE]:
            path = f"{folder}/{name}"
            if path not in cache and os.path.exists(photo.path(path)):  # which of them exist depends on the kernel
                cache[path] = photo.read(path, 64 * 1024) or ""
            if path in cache:
                photo.files[path] = cache[path]


def photograph(request: Request, target: Target, cache: dict[str, str]) -> FileSet:
    photo = FileSet(request.sysroot)
    proc = f"/proc/{target.pid}"
    for name in FILES:
        photo.read(f"{proc}/{name}")
    for name in LINKS:
        photo.link(f"{proc}/{name}")
    photo.read(f"{proc}/task/{target.pid}/children")
    add_environ(photo, target.pid, tuple(request.options.get("env_allow", ())))
    add_cgroup(photo, photo.files.get(f"{proc}/cgroup", ""), cache)
    if photo.files.get(f"{proc}/stat", "").rpartition(")")[2].split()[:1] == ["D"]:
        photo.read(f"{proc}/stack")  # where in the kernel: costs the target nothing, but needs root
    return photo


def collect(request: Request, emit: Emitter) -> None:
    """Options: `env_allow`, further environment names ("NAME" or "PREFIX_*")."""
    if not request.targets:
        nothing_to_do(emit, "process")
        return
    for sample in request.sampling():
        cache: dict[str, str] = {}
        for target in request.targets:
            with emit.attempt(target.name, pid=target.pid, sample=sample) as attempt:
                gone = absence(target, request.sysroot)
                if gone:
                    attempt.end(*gone)
                    continue
                photo = photograph(request, target, cache)
                name = f"process/pid-{target.pid}.{sample}.json"
                about: dict[str, Any] = {"pid": target.pid, "sample": sample, "source": f"/proc/{target.pid}", "at_ns": photo.at_ns}
                attempt.evidence.append(emit.evidence(name, "fileset", photo.json(), truncated=bool(photo.truncated), **about))
                attempt.end(*photo.outcome())
                if absence(target, request.sysroot):
                    attempt.end("PARTIAL", "the process went away while it was read")
