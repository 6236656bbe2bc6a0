"""The kernel's log, raw, from the first source that lets us read it, and the kernel settings that matter to a reader.

`kernel/kmsg.txt` holds /dev/kmsg records, `prio,seq,usec,flags;text` with usec on the monotonic clock since boot
(Documentation/ABI/testing/dev-kmsg); the others hold what dmesg, journalctl or a syslog daemon print.
Every source that was tried and refused leaves its own attempt with the cure.
"""

from __future__ import annotations

import collections
import errno
import os
import stat
import time

from collectors._commands import read_log as read_command_log
from collectors._contract import Emitter, FileSet, Request, Try, os_error_outcome, read_bounded

LOG_BYTES = 2 * 1024 * 1024
"""The newest part that is kept: a log buffer's usual size, and what happened last is what matters."""
PATIENCE_S = 4.0
RECORD_BYTES = 16384
"""A read of /dev/kmsg gives one record whole or EINVAL; the kernel's own bound is 8 KiB with its dictionary."""
CURE = "run as root or with CAP_SYSLOG, or set kernel.dmesg_restrict=0 (docker: --cap-add SYSLOG and the host's /dev/kmsg)"
JOURNAL_CURE = "run as root, or join the group systemd-journal or adm"
COMMANDS = (
    ("dmesg", ("dmesg", "--time-format", "iso"), CURE),
    ("dmesg plain", ("dmesg",), CURE),  # busybox, and util-linux before 2.30, know no --time-format
    ("journalctl", ("journalctl", "-k", "-o", "short-iso", "--no-pager", "-n", "5000"), JOURNAL_CURE),
)
FACTS = (
    "/proc/version",
    "/proc/cmdline",
    "/proc/uptime",
    "/proc/sys/kernel/dmesg_restrict",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hung_task_timeout_secs",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/random/boot_id",
)
PSTORE = "/sys/fs/pstore"


def collect(request: Request, emit: Emitter) -> None:
    with emit.attempt("kernel facts") as attempt:
        facts = FileSet(request.sysroot)
        for path in FACTS:
            facts.read(path)
        list_pstore(facts)
        attempt.end(*facts.outcome())
        if facts.files:
            attempt.evidence.append(
                emit.evidence("kernel/facts.json", "fileset", facts.json(), source="/proc/sys/kernel", at_ns=facts.at_ns)
            )
    if read_log(request, emit, "/dev/kmsg", "kernel/kmsg.txt"):
        return
    if not request.sysroot:  # of a recorded tree, a command would tell about this machine
        for name, argv, cure in COMMANDS:
            if run_log(emit, name, argv, cure):
                return
    read_log(request, emit, "/var/log/kern.log", "kernel/kern.log")


def list_pstore(facts: FileSet) -> None:
    """What the kernel saved of its last crash: the listing, and the newest few texts. An empty listing is a finding too."""
    names = facts.names(PSTORE)
    if PSTORE in facts.errors:
        return
    lines = []
    for name in names[:200]:
        try:
            s = os.lstat(facts.path(f"{PSTORE}/{name}"))
        except OSError as error:
            facts.errors[f"{PSTORE}/{name}"] = errno.errorcode.get(error.errno or 0, "EIO")
            continue
        lines.append((s.st_mtime, name, f"{stat.filemode(s.st_mode)} {s.st_size} {s.st_mtime:.0f} {name}"))
    facts.files[PSTORE] = "".join(line + "\n" for _, _, line in sorted(lines))
    for _, name, _ in sorted(lines)[-16:]:
        facts.read(f"{PSTORE}/{name}", 65536)


def read_log(request: Request, emit: Emitter, path: str, name: str) -> bool:
    """Try one file; True when it gave a log."""
    with emit.attempt(path) as attempt:
        try:
            mode = os.stat(request.sysroot + path).st_mode
            device = stat.S_ISCHR(mode)
            if device and os.stat(request.sysroot + path).st_rdev != os.makedev(1, 11):
                # some container runtimes link /dev/kmsg to the console
                attempt.end("ABSENT", f"{path} is not the kernel's log device here", "")
                return False
            raw, cut = read_kmsg(request.sysroot + path) if device else read_end(request.sysroot + path)
        except OSError as error:
            outcome, reason, cure = os_error_outcome(error)
            attempt.end(outcome, reason, CURE if outcome == "DENIED" else cure)
            return False
        return deliver(emit, attempt, name, raw, path, cut=cut)


def deliver(emit: Emitter, attempt: Try, name: str, raw: bytes, source: str, *, cut: bool) -> bool:
    if not raw.strip():
        attempt.end("EMPTY", f"{source} holds nothing")
        return False
    attempt.evidence.append(emit.evidence(name, "kernel-log", raw, source=source, truncated=cut))
    if cut:
        attempt.end("PARTIAL", f"only the newest part ({len(raw)} bytes) was kept")
    return True


def read_kmsg(path: str) -> tuple[bytes, bool]:
    """Every record of the log device, or the newest LOG_BYTES of them: (raw, older ones were dropped or overwritten)."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kept: collections.deque[bytes] = collections.deque()
    size, cut, deadline = 0, False, time.monotonic() + PATIENCE_S
    try:
        while True:
            if time.monotonic() > deadline:  # a flood: records arrive as fast as we read
                cut = True
                break
            try:
                record = os.read(fd, RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before we came to it; the next read goes on behind the gap
                cut = True
                continue
            if not record:
                break
            kept.append(record)
            size += len(record)
            while size > LOG_BYTES:
                size -= len(kept.popleft())
                cut = True
    except OSError:
        if not kept:
            raise
        cut = True
    finally:
        os.close(fd)
    return b"".join(kept), cut


def read_end(path: str) -> tuple[bytes, bool]:
    """The newest LOG_BYTES of a plain file, from a line start."""
    size = os.stat(path).st_size
    if size <= LOG_BYTES:
        return read_bounded(path, LOG_BYTES)
    with open(path, "rb", buffering=0) as f:
        f.seek(size - LOG_BYTES)
        raw = f.read(LOG_BYTES)
    return raw[raw.find(b"\n") + 1 :], True


def run_log(emit: Emitter, name: str, argv: tuple[str, ...], cure: str) -> bool:
    """Try one command; True when it gave a log."""
    with emit.attempt(name) as attempt:
        log = read_command_log(argv, PATIENCE_S, LOG_BYTES, cure)
        attempt.end(log.outcome, log.reason, log.cure)
        if log.text:
            attempt.evidence.append(
                emit.evidence(f"kernel/{argv[0]}.txt", "kernel-log", log.text, source=" ".join(argv), truncated=log.cut)
            )
        return bool(log.text)
