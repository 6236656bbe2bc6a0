"""What we know of the pystack program, an optional extra: it alone shows threads that never run Python (NCCL, CUDA, ZMQ).

It holds its target while it reads: some 0.5 s for 100 threads, where py-spy takes 12 ms. Hence only where nothing moves.
`--no-block` stops nothing, shows Python frames only, and reads stacks that are too deep for py-spy.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator

from collectors import _programs
from collectors._contract import PTRACE_CURE
from collectors._pyspy import GONE, NOT_PYTHON, Verdict

STACK_BYTES = 1 << 30
"""pystack follows a stack by recursion: with the usual 8 MiB of its own it dies at 5,000 frames, with this it reads 10,000."""
CURE = "pip install 'inference-forensics[native]' (or pystack, next to this interpreter or on PATH)"
NOT_FOUND: Verdict = ("SKIPPED", "pystack was not found: threads that run no Python are not shown", CURE)
NESTED: Verdict = ("UNSUPPORTED", "pystack does not read across pid namespaces", "capture inside the container")
ASLEEP: Verdict = ("SKIPPED", "a thread is in uninterruptible sleep: pystack would hold all others until it wakes", "")
HELD: Verdict = ("DENIED", "another tracer holds the process", "detach the other tracer")
SPENT: Verdict = ("SKIPPED", "the time for native stacks was spent on processes before it", "raise the option native_budget_s")

FAILURES: tuple[tuple[str, Verdict], ...] = (
    (r"Could not read the contents of /proc|No such process", GONE),
    (r"Operation not permitted|Permission denied", ("DENIED", "not permitted to read this process", PTRACE_CURE)),
    (r"Could not determine python version", NOT_PYTHON),
    (r"unwinding failed", ("UNSUPPORTED", "native frames could not be unwound", "")),
)
"""What pystack (1.7) writes on stderr. First match wins."""


@functools.cache
def find(told: str = "") -> str | None:
    """The pystack program; see collectors._programs."""
    return _programs.find("pystack", told)


def command(program: str, flags: tuple[str, ...], pid: int) -> list[str]:
    return [program, "--no-color", "remote", *flags, str(pid)]


@contextlib.contextmanager
def deep_stack() -> Iterator[None]:
    """What is started inside may use a stack of STACK_BYTES. The limit is inherited at the start and costs nothing by itself."""
    import resource  # where pystack is not used, its milliseconds are saved

    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def judge(rc: int | None, stdout: bytes, stderr: str) -> Verdict:
    """The verdict on a pystack that ended by itself. Its text lists threads one by one: what came before a failure is whole."""
    seen = stdout.count(b"(most recent call last):")
    if rc == 0:
        return ("OK", "", "") if seen else ("EMPTY", "pystack found no thread with a stack", "")
    if seen:
        return "PARTIAL", f"pystack ended early, after {seen} threads: {_first(stderr) or f'status {rc}'}", ""
    for pattern, verdict in FAILURES:
        if re.search(pattern, stderr):
            return verdict
    if rc is not None and rc < 0:
        return "UNSUPPORTED", f"pystack died of signal {-rc}", ""
    return "UNSUPPORTED", f"pystack failed: {_first(stderr) or 'no message'}", ""


def _first(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # a Python traceback tells its reason last, everything else first
    return (lines[-1] if lines and lines[0].startswith("Traceback") else lines[0] if lines else "")[:200]
