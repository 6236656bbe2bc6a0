"""Who uses the processors: the host's load and pressure, and for every thread of every target its times and state.

Two samples give rates. Per thread: `stat` (state, CPU ticks, processor), `schedstat` (time on a CPU, time *waiting* for one) and
`wchan` (kernel function it sleeps in, "0" also where we may not ask). The main thread's `status` has the affinity. What a thread
waits for (`syscall`, `stack`) is worth most beside its stack: the stacks collector reads it, right before each dump.
"""

from __future__ import annotations

from typing import Any

from collectors._contract import Emitter, FileSet, Request, Target, absence

HOST_FILES = ("/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory")
THREAD_FILES = ("stat", "schedstat", "wchan")
"""In each sample: 8 processes of 100 threads take 15 ms together, and "unmoved in two samples" needs both."""
THREADS_MAX = 4096


def photograph(request: Request, target: Target) -> FileSet:
    photo = FileSet(request.sysroot)
    proc = f"/proc/{target.pid}"
    photo.read(f"{proc}/stat")
    photo.read(f"{proc}/status")
    tids = photo.names(f"{proc}/task")
    for tid in tids[:THREADS_MAX]:
        for name in THREAD_FILES:
            photo.read(f"{proc}/task/{tid}/{name}")
    if len(tids) > THREADS_MAX:
        photo.truncated.append(f"{proc}/task")
    return photo


def collect(request: Request, emit: Emitter) -> None:
    """Takes no options."""
    for sample in request.sampling():
        with emit.attempt("node", sample=sample) as attempt:
            host = FileSet(request.sysroot)
            for path in HOST_FILES:
                host.read(path)
            name = f"cpu/host.{sample}.json"
            attempt.evidence.append(emit.evidence(name, "fileset", host.json(), sample=sample, source="/proc", at_ns=host.at_ns))
            attempt.end(*host.outcome())
        for target in request.targets:
            with emit.attempt(target.name, pid=target.pid, sample=sample) as attempt:
                gone = absence(target, request.sysroot)
                if gone:
                    attempt.end(*gone)
                    continue
                photo = photograph(request, target)
                name = f"cpu/pid-{target.pid}.{sample}.json"
                about: dict[str, Any] = {"pid": target.pid, "sample": sample, "source": f"/proc/{target.pid}/task", "at_ns": photo.at_ns}
                attempt.evidence.append(emit.evidence(name, "fileset", photo.json(), truncated=bool(photo.truncated), **about))
                attempt.end(*photo.outcome())
                if absence(target, request.sysroot):
                    attempt.end("PARTIAL", "the process went away while it was read")
