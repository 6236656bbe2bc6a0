"""What we know of the py-spy program: where it lies, and what its failures mean."""

from __future__ import annotations

import os
import re

from collectors import _programs
from collectors._contract import PTRACE_CURE
from collectors._look import Look

Verdict = tuple[str, str, str]
"""(outcome, reason, cure)"""

GONE: Verdict = ("ABSENT", "no such process: it is gone", "")
REUSED: Verdict = ("ABSENT", "the pid belongs to another process now: the target is gone", "")
ZOMBIE: Verdict = ("ABSENT", "a zombie has no stack: it has exited and its parent has not collected it", "")
KERNEL: Verdict = ("ABSENT", "a kernel thread has no Python stack", "")
NOT_PYTHON: Verdict = ("ABSENT", "not a Python process", "")
DENIED: Verdict = ("DENIED", "not permitted to read this process", PTRACE_CURE)
TRACED: Verdict = ("DENIED", "another tracer (debugger, profiler) holds the process", "detach the other tracer")
UNPAUSED: Verdict = ("TIMEOUT", "the process could not be paused", "")
NO_PAUSE = (TRACED, UNPAUSED)
"""Cured by reading without a pause, and by nothing else."""
FINAL = (GONE, REUSED, ZOMBIE, KERNEL, NOT_PYTHON, DENIED)
"""Not cured by another try in another mode."""
NOT_FOUND: Verdict = ("SKIPPED", "the py-spy program was not found", "install py-spy next to this interpreter, or put it on PATH")
NO_INTERPRETER = "no interpreter state was found: it is starting, or a stack has more than 4096 frames"
_INSIDE = "capture inside the container, or start py-spy through nsenter -t PID -m -p -r -w"

FAILURES: tuple[tuple[str, Verdict], ...] = (
    # EACCES of /proc/PID/exe: rights are lacking, but without the hint of the next row
    (r"executable name(?s:.*)os error 13\b", DENIED),
    # yama, dropped capabilities, another user
    (r"^Permission Denied: Try running again", DENIED),
    # gone, zombie and kernel thread look alike to py-spy; our own look at /proc tells them apart where it is in time
    (r"executable name(?s:.*)os error 2\b", GONE),
    (r"os error 3\b|ESRCH", ("ABSENT", "the process went away while it was read", "")),
    (r"Failed to find python version", NOT_PYTHON),
    (r"Unsupported version of Python", ("UNSUPPORTED", "this py-spy is older than the Python of the process", "upgrade py-spy")),
    # EPERM once we may attach at all: somebody else holds it. Reads like a lack of rights and is none
    (r"suspend process(?s:.*)EPERM", TRACED),
    # stopped by a signal between our look and py-spy's
    (r"suspend process", UNPAUSED),
    (r"UNW_EBADREG", ("UNSUPPORTED", "native stacks across pid namespaces", _INSIDE)),
    (r"native stack traces with the --nonblocking", ("UNSUPPORTED", "native stacks need blocking mode", "")),
    # not far enough into its start, or a thread with more than 4096 frames: py-spy tries each candidate by reading its stacks
    (r"Failed to find a python interpreter", ("UNSUPPORTED", NO_INTERPRETER, "")),
    (r"Max frame recursion depth reached", ("UNSUPPORTED", "a stack of more than 4096 frames", "")),
    # the two views disagree on how many Python frames there are
    (r"Failed to merge native and python frames", ("UNSUPPORTED", "native and Python frames do not fit together", "")),
    # a plain chroot: /proc/PID/exe already includes the root, and py-spy puts it in front once more
    (r"^Error: No such file or directory \(os error 2\)", ("UNSUPPORTED", "the interpreter lies behind a chroot", _INSIDE)),
    (r"os error 1[3]?\b", DENIED),
)
"""What py-spy (0.4) writes on stderr, as (regular expression, verdict). First match wins: a cause stands above what wraps it."""


def classify(stderr: str) -> Verdict:
    """The verdict on a py-spy that failed with this text."""
    for pattern, verdict in FAILURES:
        if re.search(pattern, stderr, re.MULTILINE):
            return verdict
    first = next((line for line in stderr.splitlines() if line.strip()), "no message")
    return "UNSUPPORTED", f"py-spy failed: {first[:200]}", ""


def find(told: str = "") -> str | None:
    """The py-spy program; see collectors._programs."""
    return _programs.find("py-spy", told)


_descriptor: dict[str, int] = {}


def command(program: str, flags: tuple[str, ...], pid: int, look: Look | None = None, entry: list[str] | None = None) -> list[str]:
    """The command that dumps `pid`; behind `entry` (see collectors._nested) by its inner pid. Raises OSError."""
    if not entry or look is None:
        return [program, "dump", "--json", "--pid", str(pid), *flags]
    if program not in _descriptor:
        # inherited by every reader that we start from now on, which is harmless: it is open for reading
        _descriptor[program] = os.open(program, os.O_RDONLY)
        os.set_inheritable(_descriptor[program], True)
    return [*entry, f"/proc/self/fd/{_descriptor[program]}", "dump", "--json", "--pid", str(look.inner), *flags]


def judge(rc: int | None, stdout: bytes, stderr: str) -> Verdict:
    """The verdict on a py-spy that ended by itself."""
    if rc != 0:
        return classify(stderr)
    if not stdout.lstrip().startswith(b"["):
        return "UNSUPPORTED", "py-spy printed something else than JSON", ""
    if not stdout.strip(b"[] \n"):
        return "EMPTY", "py-spy found no Python thread", ""
    return "OK", "", ""
