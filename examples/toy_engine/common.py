"""What the three kinds of process share: log lines, child processes, noticing that a parent is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path


def logger(who: str) -> logging.Logger:
    """A logger on stdout: `2026-09-01 10:02:00,123 INFO [rank1] message`."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s [{who}] %(message)s"))
    log = logging.getLogger(who)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    return log


def spawn(role: str, args: Namespace, fds: tuple[int, ...], **options: object) -> subprocess.Popen[bytes]:
    """Start a part of the engine; `fds` are inherited under their own numbers. Its command line says what it is."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    if "rank" in options:  # as two words, the way launchers write it
        flags = ["--rank", str(options["rank"]), "--world-size", str(options["world_size"]), f"--shm={options['shm']}"]
    command = [sys.executable, str(Path(__file__).resolve().parent), "--role", role, *flags, f"--control={args.control}"]
    command += [f"--rpc-timeout={args.rpc_timeout}", f"--step-time={args.step_time}", f"--fds={','.join(map(str, fds))}"]
    return subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL)


def when_closed(fd: int, then: Callable[[], None], name: str) -> None:
    """Call `then` from a thread when the other end of this pipe is closed, which happens when its holder dies."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(fd, 1):
                pass
        then()

    threading.Thread(target=wait, name=name, daemon=True).start()


def kill(pid: int, control: str) -> None:
    """SIGKILL a part of this engine (a stopped process obeys no other signal), unless the pid now means something else."""
    with contextlib.suppress(OSError):
        if control.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
