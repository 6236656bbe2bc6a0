"""The host waits for its GPU, the GPU is busy at low power, and nothing comes: a kernel that may never end."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, GpuSample, Role, Severity

BUSY_PERCENT = 90.0
LOW_POWER = 0.5
"""Of the power limit, or of its own power under load: a kernel that computes draws more; one that polls memory does not."""
SETTLED_NS = 5 * SECOND


def evaluate(view: View) -> Iterator[Finding]:
    found = []
    for process in view.standing:
        thread = view.main_thread(process)
        # with one rank the core may compute itself
        if process.role not in (Role.WORKER, Role.CORE) or thread is None or thread.state != "gpu-sync":
            continue
        if not thread.steady or len(thread.samples) < 2 or thread.moved:
            continue
        gpus = _gpus(view, process)
        if gpus and all(_polls(g, gpus) for g in _since(view, gpus)):
            found.append((process, thread, gpus))
    alone = len(view.workers) <= 1 and view.engine.world_size in (None, 1)
    for process, thread, gpus in found:
        gpu = gpus[-1]
        of_limit = f" of {gpu.power_limit_watts:.0f}" if gpu.power_limit_watts else ""
        yield view.finding(
            "gpu-kernel-not-terminating",
            # a GPU that waits for the CPU or for a peer looks the same from here
            grade(agreeing=2),
            title=f"{view.name(process)} waits for GPU {gpu.index}, which is {gpu.utilization_percent:.0f} % busy at "
            f"{gpu.power_watts:.0f}{of_limit} W: its kernel does not end",
            because=[thread.samples[0].ref, thread.last.ref, *(g.ref for g in gpus[:3])],
            severity=Severity.WARNING,
            # behind a collective that one peer never joined, the GPU of every other rank looks like this
            role=FindingRole.ROOT if alone else FindingRole.CONTEXT,
            processes=[process],
            ranks=[0] if alone and process.role is Role.CORE else [],
            since=view.stall.since if view.stall else None,
            does_not_show="which kernel it is, and whether it waits for the host or for a peer",
            would_settle=["a GPU core dump or cuda-gdb", "the peers' operation counts"],
        )


def _gpus(view: View, process: EngineProcess) -> list[GpuSample]:
    """Samples of the GPU that the process runs on, in order of time: the one that lists it, or the only one of its node."""
    here = sorted((g for g in view.on_nodes(GpuSample) if g.node == process.info.node), key=lambda g: g.at.earliest_ns if g.at else 0)
    listed = [g for g in here if process.pid in g.pids]
    unlisted = not any(g.pids for g in here) and len({g.index for g in here}) == 1
    return listed or (here if unlisted else [])


def _since(view: View, gpus: list[GpuSample]) -> list[GpuSample]:
    """Those of the standstill, the first seconds of which may still show work."""
    began = view.stall.since.earliest_ns + SETTLED_NS if view.stall else 0
    return [g for g in gpus if g.at is None or g.at.earliest_ns >= began] or gpus[-1:]


def _polls(gpu: GpuSample, gpus: list[GpuSample]) -> bool:
    """Busy at low power: measured against its limit, or against what it drew itself when it was as busy before."""
    if gpu.utilization_percent is None or gpu.power_watts is None or gpu.utilization_percent < BUSY_PERCENT:
        return False
    before = [g.power_watts for g in gpus if g.power_watts is not None and (g.utilization_percent or 0) >= BUSY_PERCENT]
    return gpu.power_watts < LOW_POWER * (gpu.power_limit_watts or max(before))


TEXTS = {
    "gpu-kernel-not-terminating": Text(
        says="A kernel on the GPU seems never to end: the rank waits in synchronize while the GPU is busy at low power.",
        establishes="A view from the GPU's side (core dump, cuda-gdb) that names the running kernel.",
        lower=(
            "Supported: two identical stacks in synchronize, frozen tokens, high utilisation, low power. A GPU that waits for the CPU "
            "or for a peer looks the same."
        ),
        next_steps=("check power and clocks (caps, brakes, throttling) before suspecting the hardware",),
        while_lasts=(
            "before the restart, where one is allowed: a user-triggered GPU core dump or cuda-gdb -batch -ex 'info cuda "
            "kernels' names the kernel",
        ),
    ),
}

RULE = Rule(
    name="gpu_kernel",
    texts=TEXTS,
    about="A rank stands in a GPU synchronisation in two samples while its GPU is busy at low power and no token comes.",
    requires=("stacks", "gpu"),
    evaluate=evaluate,
    false_positives="A GPU that waits for the host, or for a peer in a collective, looks the same: supported at most.",
    references=("NCCL kernels poll memory: high utilisation, low power",),
)
