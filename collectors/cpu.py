"""Who uses the processors: the host's load and pressure, and for every thread of every target its times, state and wait.

Two samples give rates. Per thread: `stat` (state, CPU ticks, processor), `schedstat` (time on a CPU, time *waiting* for one),
`wchan` (kernel function it sleeps in, "0" also where we may not ask) and `syscall` (number and arguments: of a futex, the
address of the lock). The main thread's `status` has the affinity.
"""

from __future__ import annotations

from typing import Any

from collectors._contract import Emitter, FileSet, Request, Target, absence

HOST_FILES = ("/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory")
THREADS_MAX = 4096


def photograph(request: Request, target: Target) -> FileSet:
    photo = FileSet(request.sysroot)
    proc = f"/proc/{target.pid}"
    photo.read(f"{proc}/stat")
    status = photo.read(f"{proc}/status") or ""
    # a process in a pid namespace of its own: stack readers name its threads by the inner number, and this line joins the two
    nested = next((len(line.split()) > 2 for line in status.splitlines() if line.startswith("NSpid:")), False)
    # all four, in each sample: 8 processes of 100 threads take 20 ms together, and "unmoved in two samples" needs both
    names = ["stat", "schedstat", "wchan", "syscall", *(["status"] if nested else [])]
    tids = photo.names(f"{proc}/task")
    for tid in tids[:THREADS_MAX]:
        for name in names:
            photo.read(f"{proc}/task/{tid}/{name}")
        if name_denied(photo, f"{proc}/task/{tid}/syscall"):
            names = [name for name in names if name != "syscall"]  # what one thread refuses, a thousand refuse: one error will do
    if len(tids) > THREADS_MAX:
        photo.truncated.append(f"{proc}/task")
    return photo


def name_denied(photo: FileSet, path: str) -> bool:
    return photo.errors.get(path) in ("EACCES", "EPERM")


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
