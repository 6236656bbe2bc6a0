"""What this machine lets us see, asked before anything is wrong. Where a collector exists, it is the probe: the answer is then
exactly what a capture would get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from forensics.capture import _procfs as procfs
from forensics.capture.discovery import Discovery, discover
from forensics.capture.plan import Step, make_plan, request
from forensics.capture.progress import engine_line
from forensics.capture.runner import AttemptLine, EvidenceLine, Runner
from forensics.model import Outcome

CAP_SYS_PTRACE, CAP_SYSLOG = 19, 34
READY_S = 20.0
DISK_BYTES = 1024**3
"""A bundle holds up to 512 MiB, and packing it needs about as much again."""
CLOCK_BOUND_S = 1.0


@dataclass(frozen=True)
class Check:
    """One line. `ok` is None where the question does not arise on this machine."""

    name: str
    ok: bool | None
    detail: str
    cure: str = ""


def examine(out: Path) -> Iterator[Check]:
    """Yield the checks one by one, as they are made. Harmless: it attaches to nothing but a child of its own."""
    yield _rights()
    yield _yama()
    yield _namespace()
    yield _stack_reader()
    yield _native_reader()
    try:
        found = discover()
    except OSError as error:
        yield Check("engines", False, f"/proc cannot be read: {error.strerror or error}", "mount /proc")
        found = Discovery()
    yield from _engines(found)
    yield from _probes(found)
    yield from _logs(found)
    yield _disk(out)


def _rights() -> Check:
    effective = _capabilities()
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    if effective >> CAP_SYS_PTRACE & 1:
        return Check("rights", True, f"{who}, with CAP_SYS_PTRACE: processes of every user can be read")
    cure = "run as root or with CAP_SYS_PTRACE (docker: --cap-add SYS_PTRACE)"
    if os.geteuid() == 0:
        return Check("rights", False, "root without CAP_SYS_PTRACE (a container): stacks and descriptors of other users stay hidden", cure)
    return Check("rights", False, f"{who} without CAP_SYS_PTRACE: only processes of this user can be read", cure)


def _capabilities() -> int:
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _yama() -> Check:
    text = _text("/proc/sys/kernel/yama/ptrace_scope").strip()
    if text in ("", "0"):
        return Check("ptrace", True, "not restricted by yama")
    if text == "3":
        return Check(
            "ptrace", False, "yama forbids ptrace to everybody (ptrace_scope=3)", "reboot with kernel.yama.ptrace_scope=1 or lower"
        )
    if _capabilities() >> CAP_SYS_PTRACE & 1:
        return Check("ptrace", True, f"restricted by yama (ptrace_scope={text}), but we have CAP_SYS_PTRACE")
    return Check(
        "ptrace", False, f"restricted by yama (ptrace_scope={text})", "sysctl kernel.yama.ptrace_scope=0, or run with CAP_SYS_PTRACE"
    )


def _namespace() -> Check:
    """Whether the whole machine is in view. The first pid namespace of a boot has a fixed inode (include/linux/proc_ns.h)."""
    try:
        here = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        here = ""
    if here == "pid:[4026531836]":
        return Check("pid namespace", True, "that of the host: engines in containers are in view too")
    return Check(
        "pid namespace",
        None,
        f"one of its own ({here or 'unknown'}): only processes of this container are in view",
        "to see engines outside: docker --pid host, or --pid container:NAME; Kubernetes: hostPID or shareProcessNamespace",
    )


def _stack_reader() -> Check:
    """Read the stack of a child of ours, as a capture would read an engine's."""
    code = "import sys, time\nprint('ready', flush=True)\ntime.sleep(60)"
    try:
        child = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    except OSError as error:
        return Check("stacks", False, f"no process can be started: {error.strerror}", "free memory, or raise ulimit -u")
    try:
        assert child.stdout
        child.stdout.readline()
        raw = {"pid": child.pid, "role": "worker"}
        attempts, evidence = _run("stacks", {"targets": [raw], "samples": 1}, READY_S)
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()
    good = next((each for each in attempts if each.outcome in (Outcome.OK, Outcome.PARTIAL) and each.evidence), None)
    if good and evidence:
        seconds = (good.ended_ns - good.started_ns) / 1e9
        return Check("stacks", True, f"py-spy reads a child of ours in {seconds:.2f} s")
    worst = attempts[0] if attempts else None
    return Check("stacks", False, worst.reason if worst else "the stack reader said nothing", worst.cure if worst else "pip install py-spy")


def _native_reader() -> Check:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if shutil.which("pystack", path=path):
        return Check("native stacks", True, "pystack is there: of an engine that stands still, NCCL, CUDA and ZMQ threads are read too")
    detail = "pystack is not installed: threads that run no Python (NCCL, CUDA, ZMQ) stay unseen"
    return Check("native stacks", None, detail, "pip install 'inference-forensics[native]'")


def _engines(found: Discovery) -> Iterator[Check]:
    if not found.engines:
        yield Check("engines", None, f"none runs here now ({found.looked_for[-1] if found.looked_for else 'nothing could be read'})")
    for engine in found.engines:
        yield Check("engines", True, engine_line(engine))
    hidden = [info.pid for info in found.processes if info.uid not in (None, os.geteuid()) and not info.exe]
    if hidden or found.denied:
        what = f"pids {', '.join(map(str, hidden[:8]))} of another user" if hidden else found.denied[0]
        yield Check("their processes", False, f"cannot be read: {what}", "run as root or as that user")
    elif found.engines:
        yield Check("their processes", True, "can be read")


def _probes(found: Discovery) -> Iterator[Check]:
    """The collectors that depend on rights or on the machine, one sample each."""
    plan = make_plan(found, "minimal")
    if any(engine.ports for engine in found.engines):
        step = next(step for step in plan.urgent if step.collector == "queues")
        attempts, evidence = _run("queues", {**request(step, found), "samples": 1}, READY_S)
        scraped = [line for line in evidence if line.kind == "prometheus"]
        refused = next(
            (each for each in attempts if each.target.startswith("http") and "metrics" in each.target and not each.evidence), None
        )
        if scraped:
            yield Check("metrics", True, f"{len(scraped)} endpoint answers: {scraped[0].source}")
        elif refused:
            cure = refused.cure or "without counters a stall is told from stacks alone: start the engine with its metrics endpoint"
            if refused.outcome is Outcome.TIMEOUT:
                cure = "its front end does not answer: is it stalled? `forensics capture` looks closer"
            yield Check("metrics", False, f"{refused.target}: {refused.outcome.value} {refused.reason}", cure)
    else:
        yield Check("metrics", None, "no engine with a port to ask")
    for name, title, absent in (("kernel", "kernel log", False), ("gpu", "GPU (NVML)", True)):
        attempts, _ = _run(name, {}, READY_S)
        yield _of(title, attempts, absent_is_fine=absent)
    yield _clock(*_run("clock", {}, READY_S))


def _of(title: str, attempts: list[AttemptLine], *, absent_is_fine: bool) -> Check:
    if not attempts:
        return Check(title, False, "the collector said nothing", "see `forensics collect` for its own words")
    best = min(attempts, key=lambda each: (each.outcome.blind, each.outcome is Outcome.ABSENT))
    detail = f"{best.outcome.value}{': ' + best.reason if best.reason else ''}"
    if best.outcome is Outcome.ABSENT:
        return Check(title, None if absent_is_fine else False, detail, best.cure)
    return Check(title, not best.outcome.blind, detail, best.cure)


def _clock(attempts: list[AttemptLine], evidence: list[EvidenceLine]) -> Check:
    cure = "run chrony or ntpd: without it the order of events across nodes is uncertain"
    for line in evidence:
        if line.kind == "clock":
            try:
                adjusted = msgspec.json.decode(line.data).get("adjtimex") or {}
            except (msgspec.MsgspecError, AttributeError):
                continue
            bound_s = (adjusted.get("maxerror_us") or 0) / 1e6
            if adjusted.get("synchronised") and bound_s < CLOCK_BOUND_S:
                return Check("clock", True, f"synchronised, within {bound_s * 1000:.0f} ms")
            if adjusted:
                return Check("clock", False, "not synchronised", cure)
    return Check("clock", False, attempts[0].reason if attempts else "cannot be asked", cure)


def _logs(found: Discovery) -> Iterator[Check]:
    for engine in found.engines:
        if not engine.log_files:
            streams = {stream for process in engine.processes for stream in (process.info.stdout,) if stream}
            where = ", ".join(sorted(streams)[:3]) or "unknown"
            cure = "journald and container logs are tried; otherwise start the engine with its output in a file, or name one with --log"
            yield Check(f"log of {engine.id}", None, f"stdout is no file: {where}", cure)
            continue
        unreadable = [path for path in engine.log_files if not os.access(path, os.R_OK)]
        if unreadable:
            yield Check(f"log of {engine.id}", False, f"cannot be read: {unreadable[0]}", "run as root or as its owner")
        else:
            yield Check(f"log of {engine.id}", True, ", ".join(engine.log_files[:3]))


def _disk(out: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=out):
            pass
        free = shutil.disk_usage(out).free
    except OSError as error:
        return Check("disk", False, f"cannot write to {out}: {error.strerror or error}", "choose another directory with --out")
    text = f"{free / 1024**3:.1f} GiB free under {out.resolve()}"
    return Check("disk", free >= DISK_BYTES, text, "" if free >= DISK_BYTES else "free some space: a bundle is cut where the disk ends")


class _Kept:
    def __init__(self) -> None:
        self.attempts: list[AttemptLine] = []
        self.lines: list[EvidenceLine] = []

    def evidence(self, step: Step, line: EvidenceLine) -> None:
        self.lines.append(line)

    def attempt(self, step: Step, line: AttemptLine) -> None:
        self.attempts.append(line)

    def ended(self, step: Step, seconds: float) -> list[str]:
        return []


def _run(collector: str, asked: dict[str, Any], deadline_s: float) -> tuple[list[AttemptLine], list[EvidenceLine]]:
    kept = _Kept()
    runner = Runner(kept)
    try:
        runner.start(Step(collector, deadline_s), asked)
        limit = time.monotonic() + deadline_s + 10
        while runner.busy and time.monotonic() < limit:
            runner.turn()
    finally:
        runner.abort("interrupted")
        runner.close()
    return kept.attempts, kept.lines


def _text(path: str) -> str:
    try:
        return procfs.read(path, 16384).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
