"""One collector's child process: how it is started, what it may send, how it is ended, and what is said of it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import tempfile
import time
from collections import deque
from typing import IO

import msgspec

from forensics.capture import _procfs as procfs
from forensics.capture.plan import Step
from forensics.model import Outcome

TERM_GRACE_S = 0.5
KILL_GRACE_S = 1.0
"""A child that is still there this long after SIGKILL sleeps in the kernel: nobody can end it, so it is left."""
DRAIN_S = 0.3
"""How long the pipe of a dead child may stay open (a grandchild holds it) before it is closed."""
LINE_LIMIT_BYTES = 8 * 1024 * 1024
GARBAGE_LIMIT_BYTES = 4 * 1024 * 1024
PENDING_LIMIT_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
ENCODING_FACTOR = 6
"""A JSON line is at most this much longer than the bytes in it (\\u0000 for one byte)."""
STDERR_TAIL_BYTES = 2048
MEMORY_BYTES = 2 * 1024**3
"""Private memory of a child. A collector that runs wild must fail, and not the engine beside it."""


class EvidenceLine(msgspec.Struct, tag="evidence", tag_field="type"):
    """A piece of evidence as a collector sends it: see collectors._contract.Emitter."""

    name: str
    kind: str
    text: str | None = None
    b64: bytes | None = None
    more: bool = False
    pid: int | None = None
    sample: int = 0
    source: str = ""
    at_ns: int = 0
    truncated: bool = False

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "surrogatepass") if self.text is not None else self.b64 or b""


class AttemptLine(msgspec.Struct, tag="attempt", tag_field="type"):
    target: str
    outcome: Outcome
    pid: int | None = None
    sample: int = 0
    reason: str = ""
    cure: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    evidence: list[str] = []


decoder = msgspec.json.Decoder(EvidenceLine | AttemptLine)


class Child:
    """A running collector."""

    def __init__(self, step: Step, command: list[str], raw_request: bytes, usual_nice: int = 0) -> None:
        """Start it. Raises OSError when no process can be made."""
        self.step = step
        self.started = time.monotonic()
        self.started_ns = time.time_ns()
        self.stop_at = self.started + step.deadline_s
        self.why = ""
        """Why it is being ended; "" while it may run."""
        self.outcome = Outcome.TIMEOUT
        self.killed = self.abandoned = self.forced = False
        self.attempts = self.garbage = self.garbage_bytes = self.received = self.kept_bytes = 0
        self.first_garbage = b""
        self.partial = bytearray()
        self.skipping = False
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0
        self.stderr = bytearray()
        self.exit_at: float | None = None
        self.returncode: int | None = None
        self._family: dict[int, int] = {}
        self.pid, self.out_fd, error_fd = _spawn(command, raw_request)
        self.fds = {self.out_fd, error_fd}
        with contextlib.suppress(OSError):  # over the user's limit: the default size works too
            fcntl.fcntl(self.out_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with contextlib.suppress(OSError, ValueError):  # a lower limit is in force already
            resource.prlimit(self.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        with contextlib.suppress(OSError):  # not permitted: then at the usual one
            os.setpriority(os.PRIO_PROCESS, self.pid, usual_nice + step.nice)

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it lives."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):  # somebody else reaped it
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def take(self, piece: bytes) -> None:
        """Cut what arrived on stdout into lines; decoding waits until nobody has anything to read."""
        self.received += len(piece)
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self.skipping:
                self.skipping = False
            elif len(self.partial) + len(line) > LINE_LIMIT_BYTES:
                self.reject(bytes(self.partial + line))
            elif self.partial or line:
                whole = bytes(self.partial) + line
                self.pending.append(whole)
                self.pending_bytes += len(whole)
            self.partial.clear()
        if self.skipping:
            self.garbage_bytes += len(rest)
        else:
            self.partial += rest
        if len(self.partial) > LINE_LIMIT_BYTES:
            self.reject(bytes(self.partial))
            self.partial.clear()
            self.skipping = True

    def reject(self, line: bytes) -> None:
        self.garbage += 1
        self.garbage_bytes += len(line)
        self.first_garbage = self.first_garbage or line[:200]

    def signal(self, number: int) -> None:
        """Signal the child's process group; SIGKILL also goes to helpers that made a group of their own (py-spy)."""
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._family |= _descendants(self.pid)
        if self.returncode is None:  # a reaped pid may be somebody else's by now
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            for pid, start_ticks in self._family.items():
                with contextlib.suppress(OSError):
                    if procfs.stat_of(pid).start_ticks == start_ticks:
                        os.kill(pid, number)

    def end(self, why: str, outcome: Outcome = Outcome.TIMEOUT) -> None:
        """Ask it to stop; the loop sees to it that it does."""
        if not self.why:
            self.why, self.outcome = why, outcome
            self.stop_at = time.monotonic() + TERM_GRACE_S
            self.signal(signal.SIGTERM)
            # a stopped child acts on SIGTERM only when it runs again
            self.signal(signal.SIGCONT)


def _spawn(command: list[str], raw_request: bytes) -> tuple[int, int, int]:
    """Start a child; returns (pid, descriptor of its stdout, of its stderr), both non-blocking. Raises OSError.

    A process group of its own, out of reach of a Ctrl-C meant for us, but no session: where the kernel schedules by session
    (sched_autogroup), five new sessions would take five sixths of a busy processor from the engine that we want to see move.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    try:
        with _request_file(raw_request) as stdin:
            pid = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ],
                setpgroup=0,
                setsigdef=[signal.SIGPIPE],
            )
    except OSError:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(out_write)
        os.close(err_write)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return pid, out_read, err_read


def _descendants(pid: int) -> dict[int, int]:
    """Everything below a process, as pid to start ticks (a pid may be reused)."""
    children: dict[int, list[procfs.Glance]] = {}
    for each in procfs.pids():
        try:
            seen = procfs.stat_of(each)
        except OSError:
            continue
        children.setdefault(seen.ppid, []).append(seen)
    found: dict[int, int] = {}
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child.start_ticks
                queue.append(child.pid)
    return found


def _request_file(raw: bytes) -> IO[bytes]:
    """The request as a file at its beginning: a pipe would block us, or the child, on a large one."""
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("request", os.MFD_CLOEXEC), "w+b")
    except (OSError, AttributeError):
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the caller
    file.write(raw)
    file.flush()
    file.seek(0)
    return file


def epitaph(child: Child, cut: list[str]) -> AttemptLine | None:
    """The attempt that records how a child ended, where its own attempts do not say everything."""
    step, code = child.step, child.returncode
    said = f"{child.attempts} attempts had been delivered"
    reasons: list[str] = []
    outcome = Outcome.FAILED
    cure = ""
    if child.why:
        outcome = child.outcome
        reasons.append(f"{child.why}; {said}")
        if child.abandoned:
            reasons.append(f"it cannot be killed and was left behind ({_where(child.pid)})")
    elif code:
        reasons.append(f"it ended with {_status(code)}; {said}")
        cure = "please report this defect of the collector"
    elif not child.attempts:
        reasons.append("it ended without a word")
        cure = "please report this defect of the collector"
    if child.garbage:
        first = child.first_garbage.decode("utf-8", "backslashreplace")
        reasons.append(f"{child.garbage} lines were no records, the first: {first}")
    if cut and not reasons:
        reasons.append("its evidence ends in the middle")
        outcome = Outcome.PARTIAL
    if not reasons:
        return None
    stderr = child.stderr.decode("utf-8", "backslashreplace").strip()
    if stderr:
        reasons.append("stderr: " + stderr[-600:])
    return AttemptLine(
        target=step.collector,
        outcome=outcome,
        sample=step.first_sample,
        reason="; ".join(reasons),
        cure=cure,
        started_ns=child.started_ns,
        ended_ns=time.time_ns(),
        evidence=cut,
    )


def _status(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _where(pid: int) -> str:
    found = []
    for name in ("stat", "wchan"):
        with contextlib.suppress(OSError):
            found.append(f"/proc/{pid}/{name}: {procfs.read(f'/proc/{pid}/{name}', 512).decode('utf-8', 'replace').strip()}")
    return ", ".join(found) or f"pid {pid}"
