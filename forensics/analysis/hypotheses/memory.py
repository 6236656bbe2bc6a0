"""Memory: the host's, the container's limit, /dev/shm, the GPUs', and the KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.hypotheses._contract import NEAR_MEMORY_S, Ask, Suspicion, Told, entry, unread
from forensics.analysis.rules.memory_exhaustion import PLENTY
from forensics.model import FileSystemUse, GpuSample, MemorySample, Observation, ProgressSample

GIB = 2**30
HOST, LIMIT, SHM, GPU, KV = "host memory", "the container's memory limit", "/dev/shm", "GPU memory", "the KV cache"
ROOM = 0.05
"""With this share free nothing waits for a file in /dev/shm or an allocation on a GPU."""
FULL, ROOMY = 0.98, 0.90
"""Fill of the KV cache from which requests may have to wait for blocks, and below which none do."""
BEFORE = ("host-oom-kill", "ray-oom-kill", "driver-alloc-failure", "host-wedge-unified-memory")
BY_PART = {HOST: ("memory-exhaustion", *BEFORE), SHM: ("shm-exhausted", "shm-leak-across-restarts"), GPU: ("gpu-oom",)}


def evaluate(ask: Ask) -> Iterator[Told]:
    for node in ask.view.nodes:
        for part, ids in BY_PART.items():
            yield from ask.from_findings(part, *ids, node=node, window_s=NEAR_MEMORY_S)
        samples = [m for m in ask.on(node, MemorySample) if m.total_bytes and m.available_bytes is not None]
        yield from _host(ask, node, [m for m in samples if m.scope == "host"])
        yield from _limit(ask, node)
        yield from _shm(ask, node, [m for m in samples if m.scope == "shm"])
        if not ask.absent("gpu", node):
            yield from _gpu(ask, node)
    yield from _kv(ask)


def _host(ask: Ask, node: str, samples: list[MemorySample]) -> Iterator[Told]:
    if not samples:
        yield unread(HOST, node=node)
        return
    least = min(ask.nearest(samples, NEAR_MEMORY_S), key=_share)
    figure = f"{(least.available_bytes or 0) / GIB:.0f} GiB ({_share(least):.0%}) of the host's memory was available {ask.when(least.at)}"
    # a kill for lack of memory would stand in the kernel's log, whatever was given back since
    told = ask.near(least.at, NEAR_MEMORY_S) and ask.kernel(node) is not None and not ask.view.kernel_feeding("host-oom-kill")
    if _share(least) < PLENTY:
        yield unread(f"whether more was needed: {figure}", node=node, part=HOST)
    elif ask.of(*BY_PART[HOST], node=node):  # plenty after a kill: what was killed has given it back
        yield "against", entry(figure, node=node, part=HOST, ref=least.ref)
    elif ask.decides(least.at, NEAR_MEMORY_S) or told:
        yield "against", entry(figure, node=node, part=HOST, decides=True, ref=least.ref)
    else:
        yield "against", entry(figure, node=node, part=HOST, ref=least.ref)
        yield unread(f"{HOST} when the trouble began", node=node, part=HOST)


def _limit(ask: Ask, node: str) -> Iterator[Told]:
    groups = [m for m in ask.on(node, MemorySample) if m.scope.startswith("cgroup")]
    kills: dict[str, int] = {}
    for m in groups:
        if (m.oom_kills or 0) > kills.setdefault(m.scope, m.oom_kills or 0):
            yield (
                "for",
                entry(
                    f"the container's count of kills for lack of memory rose to {m.oom_kills}",
                    node=node,
                    part=LIMIT,
                    decides=True,
                    ref=m.ref,
                ),
            )
            return
    capped = [m for m in groups if m.total_bytes and m.available_bytes is not None]
    if capped:
        least = min(ask.nearest(capped, NEAR_MEMORY_S), key=_share)
        figure = f"the container was {(least.available_bytes or 0) / GIB:.1f} GiB below its limit {ask.when(least.at)}"
        if _share(least) >= PLENTY and ask.decides(least.at, NEAR_MEMORY_S):
            yield "against", entry(figure, node=node, part=LIMIT, decides=True, ref=least.ref)
        else:  # a container's use counts the page cache, which is given back on demand
            yield unread(f"how close to its limit the container came: {figure}", node=node, part=LIMIT)
    elif groups:
        yield "against", entry("the container has no memory limit", node=node, part=LIMIT, ref=groups[0].ref)
    elif (span := ask.kernel(node)) is not None:
        yield (
            "against",
            entry(f"no kill for lack of memory in the {span.lines} lines of the kernel's log", node=node, part=LIMIT, ref=span.ref),
        )
    else:
        yield unread(LIMIT, node=node)


def _shm(ask: Ask, node: str, samples: list[MemorySample]) -> Iterator[Told]:
    use = [f for f in ask.on(node, FileSystemUse) if f.mount == "/dev/shm" and f.total_bytes and f.available_bytes is not None]
    read: list[MemorySample | FileSystemUse] = [*samples, *use]
    near = [m for m in read if ask.decides(m.at, NEAR_MEMORY_S)]
    if near:
        least = min(near, key=_share)
        free = f"{(least.available_bytes or 0) / GIB:.1f} GiB of /dev/shm were free {ask.when(least.at)}"
        if _share(least) >= ROOM:
            yield "against", entry(free, node=node, part=SHM, decides=True, ref=least.ref)
        else:
            yield "for", entry(f"only {free}", node=node, part=SHM, ref=least.ref)
    else:
        yield from _silent(ask, node, SHM, "no line of the log says that /dev/shm was full")


def _gpu(ask: Ask, node: str) -> Iterator[Told]:
    samples = [g for g in ask.on(node, GpuSample) if g.memory_total_bytes and g.memory_used_bytes is not None]
    near = [g for g in samples if ask.decides(g.at, NEAR_MEMORY_S)]
    if near:
        free, tight = min(((_free(g), g) for g in near), key=lambda pair: pair[0])
        if free >= ROOM * (tight.memory_total_bytes or 1):
            text = f"at least {free / GIB:.1f} GiB were free on each of {len({g.index for g in near})} GPU(s) {ask.when(tight.at)}"
            yield "against", entry(text, node=node, part=GPU, decides=True, ref=tight.ref)
            return
    # engines fill a GPU on purpose: a full one says nothing, an allocation that fails is always printed
    yield from _silent(ask, node, GPU, "no allocation on a GPU failed in the log")


def _kv(ask: Ask) -> Iterator[Told]:
    yield from ask.from_findings(KV, "kv-blocks-not-freed-after-abort", "scheduler-head-of-line-unschedulable", decide=False)
    if not ask.view.profile.progress.kv_usage:
        return
    # the gauge and the stats line stand at their last value while nothing moves
    known = [s for s in ask.view.progress.samples if s.kv_usage is not None and ask.near(s.at, NEAR_MEMORY_S)]
    if not known:
        # whose metrics were read and hold no gauge of it has none
        if not any(s.via == "metrics" for s in ask.view.progress.samples) or any(s.kv_usage is not None for s in ask.view.progress.samples):
            yield unread(KV)
        return
    most: ProgressSample = max(known, key=lambda s: (s.kv_usage or 0, s.waiting or 0))
    figure = f"the KV cache was at most {most.kv_usage or 0:.0%} full"
    if (most.kv_usage or 0) >= FULL and most.waiting:
        yield "for", entry(f"{figure}, with {most.waiting:g} waiting", part=KV, ref=most.ref)
    elif (most.kv_usage or 0) < ROOMY:
        yield "against", entry(figure, part=KV, decides=True, ref=most.ref)
    else:
        yield "against", entry(figure, part=KV, ref=most.ref)


def _silent(ask: Ask, node: str, part: str, words: str) -> Iterator[Told]:
    if (span := ask.heard(node)) is not None:
        yield "against", entry(words, node=node, part=part, ref=span.ref)
    else:
        yield unread(part, node=node)


def _share(m: Observation) -> float:
    assert isinstance(m, (MemorySample, FileSystemUse))
    return (m.available_bytes or 0) / (m.total_bytes or 1)


def _free(g: GpuSample) -> int:
    return (g.memory_total_bytes or 0) - (g.memory_used_bytes or 0)


SUSPICION = Suspicion(
    name="memory",
    claim="Memory ran out: the host's, a container's, /dev/shm, a GPU's or the KV cache",
    always=True,
    evaluate=evaluate,
    does_not_show="that it began the trouble",
)
