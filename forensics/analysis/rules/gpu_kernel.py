"""The host waits for its GPU, the GPU is busy at low power, and nothing comes: a kernel that may never end."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, grade
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, GpuSample, Role, Severity

BUSY_PERCENT = 90.0
LOW_POWER = 0.5
"""Of the power limit: a kernel that computes draws more; one that polls memory does not."""


def evaluate(view: View) -> Iterator[Finding]:
    found = []
    for worker in (p for p in view.standing if p.role is Role.WORKER):
        thread = view.main_thread(worker)
        if thread is None or thread.state != "gpu-sync" or not thread.steady or len(thread.samples) < 2 or thread.moved:
            continue
        gpus = [g for g in view.on_nodes(GpuSample) if g.node == worker.info.node and worker.pid in g.pids]
        if gpus and all(_polls(g) for g in gpus):
            found.append((worker, thread, gpus))
    for worker, thread, gpus in found:
        gpu = gpus[-1]
        yield view.finding(
            "gpu-kernel-not-terminating",
            # a GPU that waits for the CPU or for a peer looks the same from here
            grade(agreeing=2),
            title=f"{view.name(worker)} waits for GPU {gpu.index}, which is {gpu.utilization_percent:.0f} % busy at "
            f"{gpu.power_watts:.0f} of {gpu.power_limit_watts:.0f} W: its kernel does not end",
            because=[thread.samples[0].ref, thread.last.ref, *(g.ref for g in gpus[:2])],
            severity=Severity.WARNING,
            # behind a collective that one peer never joined, the GPU of every other rank looks like this
            role=FindingRole.ROOT if len(view.workers) == 1 and view.engine.world_size in (None, 1) else FindingRole.CONTEXT,
            processes=[worker],
            since=view.stall.since if view.stall else None,
            does_not_show="which kernel it is, and whether it waits for the host or for a peer",
            would_settle=["a GPU core dump or cuda-gdb", "the peers' operation counts"],
        )


def _polls(gpu: GpuSample) -> bool:
    if gpu.utilization_percent is None or gpu.power_watts is None or not gpu.power_limit_watts:
        return False
    return gpu.utilization_percent >= BUSY_PERCENT and gpu.power_watts < LOW_POWER * gpu.power_limit_watts


RULE = Rule(
    name="gpu_kernel",
    emits=("gpu-kernel-not-terminating",),
    about="A rank stands in a GPU synchronisation in two samples while its GPU is busy at low power and no token comes.",
    requires=("stacks", "gpu"),
    evaluate=evaluate,
    false_positives="A GPU that waits for the host, or for a peer in a collective, looks the same: supported at most.",
    references=("NCCL kernels poll memory: high utilisation, low power",),
)
