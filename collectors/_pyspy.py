"""What we know of the py-spy program: where it lies, and what its failures mean."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from collectors._contract import PTRACE_CURE

Verdict = tuple[str, str, str]
"""(outcome, reason, cure)"""

GONE: Verdict = ("ABSENT", "no such process: it is gone", "")
REUSED: Verdict = ("ABSENT", "the pid belongs to another process now: the target is gone", "")
ZOMBIE: Verdict = ("ABSENT", "a zombie has no stack: it has exited and its parent has not collected it", "")
KERNEL: Verdict = ("ABSENT", "a kernel thread has no Python stack", "")
NOT_PYTHON: Verdict = ("ABSENT", "not a Python process", "")
DENIED: Verdict = ("DENIED", "not permitted to read this process", PTRACE_CURE)
FINAL = (GONE, REUSED, ZOMBIE, KERNEL, NOT_PYTHON, DENIED)
"""Not cured by another try in another mode."""
NOT_FOUND: Verdict = ("SKIPPED", "the py-spy program was not found", "install py-spy next to this interpreter, or put it on PATH")
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
    (r"suspend process(?s:.*)EPERM", ("DENIED", "another tracer (debugger, profiler) holds the process", "detach the other tracer")),
    # stopped by a signal between our look and py-spy's
    (r"suspend process", ("TIMEOUT", "the process could not be paused", "")),
    (r"UNW_EBADREG", ("UNSUPPORTED", "native stacks across pid namespaces", _INSIDE)),
    (r"native stack traces with the --nonblocking", ("UNSUPPORTED", "native stacks need blocking mode", "")),
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
    """The py-spy program: as told, next to this interpreter, on PATH, or where its distribution was installed."""

    def candidates() -> Iterator[str]:
        if told:
            yield told
            return
        yield os.path.join(os.path.dirname(sys.executable), "py-spy")
        # hardly ever reached, and these imports cost milliseconds
        import sysconfig

        yield os.path.join(sysconfig.get_path("scripts"), "py-spy")
        yield from (os.path.join(folder, "py-spy") for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
        from importlib import metadata

        try:
            for file in metadata.files("py-spy") or ():
                if file.name == "py-spy":
                    yield os.path.realpath(str(file.locate()))
        except metadata.PackageNotFoundError:
            pass  # the last place to look

    return next((path for path in candidates() if os.path.isfile(path) and os.access(path, os.X_OK)), None)
