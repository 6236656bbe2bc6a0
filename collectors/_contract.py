"""What a collector is given, what it may emit, and how errors become outcomes.

A child reads one JSON request on stdin and writes one JSON object a line on stdout:

    {"type": "evidence", "name": "stacks/pid-4243.1.json", "kind": "pyspy-json", "text": "…" | "b64": "…", "more": false, …}
    {"type": "attempt", "target": "pid 4243", "outcome": "OK", "reason": "", "cure": "", "evidence": ["stacks/pid-4243.1.json"], …}

Evidence goes through the pipe and never to disk, because the parent redacts it while writing. A line is flushed as soon
as it is made, so whatever a child delivered before it hung or died is kept. Large files come in pieces ("more": true).
Nothing here imports anything but the standard library: a collector must start in milliseconds where nothing is installed.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

FILE_LIMIT_BYTES = 256 * 1024
"""Bound of one /proc or /sys file. The largest honest one (maps of a CUDA process) is cut; the cut is recorded."""
CHUNK_BYTES = 512 * 1024
"""A larger piece of evidence is sent in pieces of this size, so that a death in the middle loses only the rest."""

URGENCY = {"worker": 0, "core": 1, "coordinator": 2, "api": 3}
"""Whose stacks and objects are read first: what broke is mostly a worker."""
PTRACE_CURE = "run as root or with CAP_SYS_PTRACE (docker: --cap-add SYS_PTRACE --pid host; yama: kernel.yama.ptrace_scope=0)"


class Target:
    """A process to look at, as discovery found it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.pid: int = int(raw["pid"])
        self.start_ticks: int | None = raw.get("start_ticks")
        self.title: str = raw.get("title", "")
        self.role: str = raw.get("role", "")
        self.rank: int | None = raw.get("rank")
        self.engine: str = raw.get("engine", "")
        self.ports: tuple[int, ...] = tuple(raw.get("ports", ()))
        self.log_files: tuple[str, ...] = tuple(raw.get("log_files", ()))

    @property
    def name(self) -> str:
        return f"pid {self.pid}"


class Request:
    """What to collect. Every field has a default, so that `python -m collectors NAME` alone does something sensible."""

    def __init__(self, raw: dict[str, Any] | None = None) -> None:
        raw = raw or {}
        self.targets = [Target(t) for t in raw.get("targets", ())]
        self.sysroot: str = raw.get("sysroot", "") or ""
        """Prefix of every path: "" on a live node, a recorded tree in tests."""
        self.samples: int = max(1, int(raw.get("samples", 2)))
        self.first_sample: int = int(raw.get("first_sample", 1))
        self.interval_s: float = float(raw.get("interval_s", 1.0))
        """Time from the start of one sample to the start of the next."""
        self.max_bytes: int = int(raw.get("max_bytes", 64 * 1024 * 1024))
        """Bound of all evidence of this collector together."""
        self.options: dict[str, Any] = dict(raw.get("options", {}))

    def in_order(self) -> list[Target]:
        """The targets as they are read where the order counts: workers first, by rank."""
        return sorted(self.targets, key=lambda t: (URGENCY.get(t.role, len(URGENCY)), t.rank if t.rank is not None else 1 << 30))

    def sampling(self) -> Iterator[int]:
        """Yield sample numbers, sleeping so that samples *start* `interval_s` apart."""
        began = time.monotonic()
        for i in range(self.samples):
            if i:
                time.sleep(max(0.0, began + i * self.interval_s - time.monotonic()))
            yield self.first_sample + i


class Try:
    """One attempt in progress. It becomes exactly one attempt record when its `with` block ends."""

    def __init__(self, target: str, pid: int | None, sample: int) -> None:
        self.target = target
        self.pid = pid
        self.sample = sample
        self.outcome = "OK"
        self.reason = ""
        self.cure = ""
        self.evidence: list[str] = []

    def end(self, outcome: str, reason: str = "", cure: str = "") -> None:
        self.outcome, self.reason, self.cure = outcome, reason, cure


class Emitter:
    """Writes records to the parent, one flushed line each, and keeps the byte bound."""

    def __init__(self, collector: str, out: IO[str] | None = None, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.collector = collector
        self._out = out or sys.stdout
        self._left = max_bytes

    def _line(self, record: dict[str, Any]) -> None:
        # ensure_ascii keeps a lone surrogate or a stray control character from ever breaking a line
        self._out.write(json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n")
        self._out.flush()

    def evidence(
        self,
        name: str,
        kind: str,
        data: str | bytes,
        *,
        pid: int | None = None,
        sample: int = 0,
        source: str = "",
        at_ns: int | None = None,
        truncated: bool = False,
    ) -> str:
        """Send one file of evidence and return its name. Beyond the byte bound it is cut and says so."""
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        if len(raw) > self._left:
            raw, truncated = raw[: self._left], True
        self._left -= len(raw)
        head = {"type": "evidence", "name": name, "kind": kind, "pid": pid, "sample": sample, "source": source}
        head["at_ns"] = time.time_ns() if at_ns is None else at_ns
        for start in range(0, max(len(raw), 1), CHUNK_BYTES):
            piece = raw[start : start + CHUNK_BYTES]
            more = start + CHUNK_BYTES < len(raw)
            try:
                body = {"text": piece.decode("utf-8")}
            except UnicodeDecodeError:
                body = {"b64": base64.b64encode(piece).decode("ascii")}
            self._line({**head, **body, "more": more, "truncated": truncated})
        return name

    @contextlib.contextmanager
    def attempt(self, target: str, *, pid: int | None = None, sample: int = 0, started_ns: int | None = None) -> Iterator[Try]:
        """Try one thing; whatever happens inside, exactly one attempt record leaves.

        `started_ns`: when the try began, for work that ran beside other work and is only reported here.
        """
        this = Try(target, pid, sample)
        started = time.time_ns() if started_ns is None else started_ns
        try:
            yield this
        except OSError as error:
            this.end(*os_error_outcome(error))
        except Exception as error:
            this.end("FAILED", f"{type(error).__name__}: {error}", "please report this defect of the collector")
        self._line(
            {
                "type": "attempt",
                "target": this.target,
                "pid": this.pid,
                "sample": this.sample,
                "outcome": this.outcome,
                "reason": this.reason,
                "cure": this.cure,
                "started_ns": started,
                "ended_ns": time.time_ns(),
                "evidence": this.evidence,
            }
        )


def os_error_outcome(error: OSError) -> tuple[str, str, str]:
    """Translate an OSError to (outcome, reason, cure). The one place where errno values become our words."""
    name = errno.errorcode.get(error.errno or 0, "") or type(error).__name__
    where = f" {error.filename}" if error.filename else ""
    reason = f"{name}{where}: {error.strerror or error}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "DENIED", reason, PTRACE_CURE if "/proc/" in str(error.filename or "") else "run as root"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO):
        return "ABSENT", reason, ""
    if error.errno == errno.ESRCH:  # /proc files of a process that died between open and read
        return "ABSENT", reason + " (the process is gone)", ""
    if error.errno in (errno.ETIMEDOUT, errno.EAGAIN) or isinstance(error, TimeoutError):
        return "TIMEOUT", reason, ""
    if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
        return "UNSUPPORTED", reason, ""
    if error.errno == errno.ECONNREFUSED:  # nobody listens: an answer in itself
        return "EMPTY", reason, ""
    return "PARTIAL", reason, ""


def read_bounded(path: str, limit: int = FILE_LIMIT_BYTES) -> tuple[bytes, bool]:
    """Read at most `limit` bytes; returns (content, was cut). Never blocks on a FIFO; raises OSError.

    A read that dies half-way (a process exiting under us gives ESRCH) keeps what it already had.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        left = limit
        while left > 0:
            try:
                piece = os.read(fd, min(left, 65536))
            except OSError:
                if parts:
                    return b"".join(parts), True
                raise
            if not piece:
                return b"".join(parts), False
            parts.append(piece)
            left -= len(piece)
        return b"".join(parts), bool(os.read(fd, 1))
    finally:
        os.close(fd)


def resolve_in_root(root: str, path: str) -> str:
    """Where `path` of another root (a container, a recorded tree) lies for us. Raises OSError on a loop of links.

    Symbolic links are followed inside `root`: opened naively, an absolute link in a container leads to *our* file of that
    name. The result may not exist. With root "" the path is returned as it is.
    """
    if not root:
        return path
    done: list[str] = []
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink("/".join([root, *done, part]))
        except OSError:  # no link, or not there, or not readable: the open that follows will say which
            done.append(part)
            continue
        links += 1
        if links > 40:  # the kernel's own bound
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done.clear()
        todo += target.split("/")[::-1]
    return "/".join([root.rstrip("/"), *done])


class FileSet:
    """A photograph of several small files at one moment: {"at_ns", "files", "links", "errors", "truncated"}.

    Paths are those of the node (without the sysroot). One kind of evidence, "fileset", for everything under /proc and /sys.
    """

    def __init__(self, sysroot: str = "") -> None:
        self.sysroot = sysroot.rstrip("/")
        self.at_ns = time.time_ns()
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.truncated: list[str] = []

    def path(self, path: str) -> str:
        return self.sysroot + path

    def read(self, path: str, limit: int = FILE_LIMIT_BYTES) -> str | None:
        """Read `path` into the set and return its text, or record the error and return None."""
        try:
            raw, cut = read_bounded(self.path(path), limit)
        except OSError as error:
            self.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
            return None
        if cut:
            self.truncated.append(path)
        self.files[path] = text = raw.decode("utf-8", "backslashreplace")
        return text

    def link(self, path: str) -> str | None:
        try:
            self.links[path] = target = os.readlink(self.path(path))
        except OSError as error:
            self.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
            return None
        return target

    def names(self, path: str) -> list[str]:
        """Directory entries, sorted with numbers in numeric order; an error is recorded and gives []."""
        try:
            found = os.listdir(self.path(path))
        except OSError as error:
            self.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
            return []
        return sorted(found, key=lambda name: (len(name), name) if name.isdigit() else (0, name))

    @property
    def denied(self) -> list[str]:
        return [path for path, name in self.errors.items() if name in ("EACCES", "EPERM")]

    def outcome(self) -> tuple[str, str, str]:
        """(outcome, reason, cure) of the whole set."""
        if self.files or self.links:
            if self.denied:
                return "PARTIAL", "not permitted: " + ", ".join(self.denied[:4]), PTRACE_CURE
            return ("PARTIAL", "cut: " + ", ".join(self.truncated[:4]), "") if self.truncated else ("OK", "", "")
        if self.denied:
            return "DENIED", "not permitted: " + ", ".join(self.denied[:4]), PTRACE_CURE
        return "ABSENT", "no such file: " + ", ".join(list(self.errors)[:4]), ""

    def json(self) -> str:
        body: dict[str, Any] = {"at_ns": self.at_ns, "files": self.files, "links": self.links, "errors": self.errors}
        return json.dumps({**body, "truncated": self.truncated}, ensure_ascii=True)


def stat_fields(path: str) -> list[bytes]:
    """Fields of a process's or thread's stat file behind its name: [0] state, [1] parent, [6] flags, [19] start ticks.

    Raises OSError when it is gone.
    """
    raw, _ = read_bounded(path, 4096)
    return raw[raw.rindex(b")") + 2 :].split()  # the name may hold spaces and parentheses


def same_process(pid: int, start_ticks: int | None, sysroot: str = "") -> bool:
    """Whether `pid` is still the process that discovery saw (a reused pid has other start ticks). Raises OSError when gone."""
    if start_ticks is None:
        return True
    return int(stat_fields(f"{sysroot}/proc/{pid}/stat")[19]) == start_ticks


def absence(target: Target, sysroot: str = "") -> tuple[str, str, str] | None:
    """(outcome, reason, cure) when the target is gone or its pid is another process now; None while it is there, zombies included."""
    try:
        read_bounded(f"{sysroot}/proc/{target.pid}/stat", 4096)
        if same_process(target.pid, target.start_ticks, sysroot):
            return None
    except OSError as error:
        outcome, reason, cure = os_error_outcome(error)
        return outcome, "no such process: it is gone" if outcome == "ABSENT" else reason, cure
    return "ABSENT", "the pid belongs to another process now: the target is gone", ""


def nothing_to_do(emit: Emitter, what: str) -> None:
    """The one attempt of a collector that was given no target."""
    with emit.attempt(what) as attempt:
        attempt.end("SKIPPED", "no target process was given", 'name them on stdin: {"targets": [{"pid": N}]}')
