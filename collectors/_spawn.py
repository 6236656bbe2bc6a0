"""Run short helper programs side by side, each in a process group of its own and under its own bounds.

Why not `subprocess`: it costs a collector 8 ms of start-up, its timeouts wait for ever for a child that cannot be killed
(one stuck in the kernel, state D), and a fork of this process fails where memory is short. posix_spawn shares the
parent's memory until exec, and a child that survives SIGKILL is given up, not waited for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator

STDERR_LIMIT_BYTES = 16 * 1024
KILL_GRACE_S = 0.5
"""How long a killed child may take to die before it is abandoned."""


class Child:
    """A helper program. Once it has ended, `ending` tells how and `stdout`, `stderr` hold what it had written by then."""

    def __init__(self, command: list[str], timeout_s: float, limit_bytes: int) -> None:
        """Start `command` (absolute path first). Raises OSError when it cannot be started."""
        self.command, self.timeout_s = command, timeout_s
        self.stdout, self.stderr = bytearray(), bytearray()
        self.rc: int | None = None
        self.ending = ""
        """exited | timeout | flooded | abandoned"""
        self._limits: dict[int, tuple[bytearray, int]] = {}
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self.started_ns = time.time_ns()
            self.pid = os.posix_spawn(
                command[0],
                command,
                _environment(),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ],
                setpgroup=0,  # a group of its own: killed as a whole, and out of reach of a Ctrl-C meant for us
                setsigmask=(),
                setsigdef=[signal.SIGPIPE],
            )
        except OSError:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        for fd, kept, limit in ((out_read, self.stdout, limit_bytes), (err_read, self.stderr, STDERR_LIMIT_BYTES)):
            os.set_blocking(fd, False)
            self._limits[fd] = kept, limit
        self.deadline = time.monotonic() + timeout_s

    @property
    def fds(self) -> list[int]:
        return list(self._limits)

    def read(self, fd: int) -> None:
        """Take what is there; at the end of the stream, or past the bound, the descriptor is closed."""
        kept, limit = self._limits[fd]
        try:
            piece = os.read(fd, 256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        kept += piece
        if len(kept) > limit:
            del kept[limit:]
            self.kill("flooded")
            piece = b""
        if not piece:
            del self._limits[fd]
            os.close(fd)

    def kill(self, why: str) -> None:
        if not self.ending:
            self.ending = why
            self.deadline = time.monotonic() + KILL_GRACE_S
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except OSError:
                pass  # already dead, which is what we wanted

    def ended(self) -> bool:
        """Whether it is over: reaped after its output ended, or given up as impossible to kill."""
        if not self._limits or self.ending:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.rc = os.waitstatus_to_exitcode(status)
                self.ending = self.ending or "exited"
                self._close()
                return True
        if time.monotonic() > self.deadline:
            if self.ending:
                self.ending = "abandoned"
                self._close()
                return True
            self.kill("timeout")
        return False

    def _close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self._limits.clear()


def _environment() -> dict[str, str]:
    """Ours, for programs whose words we read. One that is written in Python must not import what PYTHONPATH has for an engine, and
    one that looks for symbols must not ask the network for them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DEBUGINFOD"))}
    return {**kept, "RUST_BACKTRACE": "0", "LC_ALL": "C"}


@contextlib.contextmanager
def unstopped() -> Iterator[None]:
    """Put SIGTERM off: a child that was started is in somebody's books before anything is raised."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """The children that run now."""

    def __init__(self) -> None:
        self.active: list[Child] = []

    def start(self, command: list[str], timeout_s: float, limit_bytes: int) -> Child:
        child = Child(command, timeout_s, limit_bytes)
        self.active.append(child)
        return child

    def wait(self) -> list[Child]:
        """Block until at least one child is over and return those that are; [] when none runs."""
        while self.active:
            over = [child for child in self.active if child.ended()]
            if over:
                self.active = [child for child in self.active if child not in over]
                return over
            poll = select.poll()
            owner: dict[int, Child] = {}
            for child in self.active:
                for fd in child.fds:
                    owner[fd] = child
                    poll.register(fd, select.POLLIN)
            # between the end of its output and its own end a child has microseconds to go, and no descriptor tells of it
            exiting = any(child.ending or not child.fds for child in self.active)
            left_s = min(child.deadline for child in self.active) - time.monotonic()
            for fd, _ in poll.poll(1 if exiting else max(0.0, left_s) * 1000 + 1):
                if fd in owner[fd].fds:
                    owner[fd].read(fd)
        return []

    def close(self) -> list[Child]:
        """Kill whatever still runs and return it; the way out when we ourselves are told to stop."""
        for child in self.active:
            child.kill("timeout")
        over: list[Child] = []
        while self.active:
            over += self.wait()
        return over
