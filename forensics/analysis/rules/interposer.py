"""A library that stands between the program and the CUDA driver (sharing or metering GPUs), and threads that wait inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST
from forensics.analysis.rules._contract import CannotTell, Rule, Text
from forensics.analysis.rules._machine import troubles
from forensics.analysis.view import View
from forensics.model import (
    ConfigValue,
    EvidenceRef,
    Finding,
    FindingRole,
    Frame,
    Grade,
    MappedLibrary,
    Outcome,
    Severity,
    ThreadStack,
    TimeRange,
)

_DRIVER_CALL = re.compile(r"^cu(?!da|blas|dnn|rand|fft|sparse|solver|pti|tensor)[A-Z]\w+|^nvmlDevice\w+|^_?dlsym_hook")
_DRIVER = re.compile(
    r"^(?:lib(?:cuda|cudart|nvidia-ml|nvrtc|cupti|cudadebugger|nvidia-[a-z-]+)(?:[-_.]?static)?(?:-[\w.]+)?(?:\.so|$)|libtorch|libcublas|libc10|\[)",
    re.I,
)

_HINT = re.compile(r"vgpu|cuda|gpu|hami|nvshare|gemini|cgpu|mps", re.I)
_PLAIN = re.compile(
    r"jemalloc|tcmalloc|mimalloc|gomp|iomp|asan|tsan|stdc\+\+|numa|hugetlb|libnccl|tbb|mkl|libc\.so|eatmydata|faketime", re.I
)
_LOCK = re.compile(r"lock_wait|mutex_lock|lll_lock|futex_wait|futex_abstimed|sem_wait|pthread_cond|rwlock|spin_lock|flock|semop")
_NCCL = re.compile(r"libnccl", re.I)


def evaluate(view: View) -> Iterator[Finding]:
    preloaded = {
        p: c for c in view.on_nodes(ConfigValue) + _nameless(view) if c.name == "LD_PRELOAD" for p in re.split(r"[:\s]+", c.value) if p
    }
    mapped: dict[str, list[MappedLibrary]] = {}
    for m in view.case.of(MappedLibrary):
        if m.node in view.nodes:
            mapped.setdefault(_base(m.path), []).append(m)
    stacks = [s for s in view.case.of(ThreadStack) if s.node in view.nodes and s.mixed]
    framed: dict[str, list[ThreadStack]] = {}
    for s in stacks:
        for name in {_base(f.file) for f in s.mixed if f.native and _between(f)}:
            framed.setdefault(name, []).append(s)
    # a capture that read every process whole read their environments; a list of processes holds none
    captured = any(n in view.case.bundled for n in view.nodes) and view.outcome("process") is Outcome.OK
    if not (captured or mapped or stacks or any(c.via == "environ" for c in view.on_nodes(ConfigValue) + _nameless(view))):
        raise CannotTell("neither the environment nor the maps nor native stacks of its processes were read", "process")
    names = {_base(p) for p in preloaded} | set(framed)
    for name in sorted(n for n in names if n and not _PLAIN.search(n) and not _DRIVER.match(n)):
        env = [c for p, c in preloaded.items() if _base(p) == name]
        maps, frames = mapped.get(name, []), framed.get(name, [])
        sure = bool(frames and (maps or env)) or bool(maps and env and _HINT.search(name))
        if not sure and not (maps or frames) and not _HINT.search(name):
            continue
        waiting = [s for s in frames if _waits_inside(s, name)]
        refs = [*(m.ref for m in maps[:3]), *(c.ref for c in env[:2]), *(s.ref for s in frames[:3])]
        yield _interposed(view, name, sure, len({bool(maps), bool(env), bool(frames)}) > 1, refs, bool(env))
        if waiting:
            yield _deadlock(view, name, waiting, refs)


def _nameless(view: View) -> list[ConfigValue]:
    """An environment in a file that names no node is that of the only engine."""
    engines = {n for e in view.case.engines for n in e.nodes}
    return [c for c in view.case.of(ConfigValue) if c.node not in engines and len(view.case.engines) == 1]


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _between(frame: Frame) -> bool:
    """A call of the driver's interface that some other library answers."""
    return bool(_DRIVER_CALL.match(frame.name)) and not _DRIVER.match(_base(frame.file)) and not _NCCL.search(frame.file)


def _waits_inside(stack: ThreadStack, name: str) -> bool:
    """Innermost a wait for a lock, then the library, and NCCL above it."""
    at = next((i for i, f in enumerate(stack.mixed) if _base(f.file) == name), None)
    if at is None or not any(_LOCK.search(f.name) for f in stack.mixed[:at]):
        return False
    return any(_NCCL.search(f.file) or f.name.startswith("nccl") for f in stack.mixed[at:])


def _interposed(view: View, name: str, sure: bool, agree: bool, refs: list[EvidenceRef], preloaded: bool) -> Finding:
    return view.finding(
        "interposed-cuda-library",
        Grade.ESTABLISHED if sure else Grade.SUPPORTED if agree else Grade.POSSIBLE,
        title=f"{name} stands between the program and the CUDA driver" + (" (LD_PRELOAD)" if preloaded else ""),
        because=refs,
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        does_not_show="that it is at fault",
    )


def _deadlock(view: View, name: str, waiting: list[ThreadStack], refs: list[EvidenceRef]) -> Finding:
    began = _began(view, waiting)
    stuck = bool(troubles(view) or view.starting or view.feeding("comm-init-stuck"))
    return view.finding(
        "interposer-deadlock",
        Grade.SUPPORTED if stuck else Grade.POSSIBLE,
        title=f"A thread that came from NCCL waits for a lock inside {name}, which stands between it and the CUDA driver",
        because=[*(s.ref for s in waiting[:4]), *refs[:4]],
        severity=Severity.CRITICAL if stuck else Severity.WARNING,
        role=FindingRole.ROOT if stuck else FindingRole.CONTEXT,
        since=began,
        does_not_show="who holds that lock; each process that loads the library runs into it, so no rank is named",
        would_settle=["native stacks of all threads of that process", "a start without the library"],
    )


def _began(view: View, waiting: list[ThreadStack]) -> TimeRange | None:
    """The last step of the creation of communicators that was logged before the stack was taken; else that moment."""
    seen = min((s.at for s in waiting if s.at), key=lambda t: t.earliest_ns, default=None)
    steps = [
        h.at
        for h in view.hits
        if h.at and (h.feeds == "comm-init-stuck" or h.signature in ("vllm-nccl-version", "nccl-init-start", "nccl-version"))
    ]
    before = [t for t in steps if seen is None or t.earliest_ns <= seen.earliest_ns]
    return max(before, key=lambda t: t.earliest_ns, default=seen)


TEXTS = {
    "interposed-cuda-library": Text(
        says="A library stands between the program and the CUDA driver (LD_PRELOAD or a replaced libcuda). A circumstance.",
        establishes="Its path in the process's maps or environment.",
        next_steps=("start once without it: if the trouble is gone, report it to its makers",),
    ),
    "interposer-deadlock": Text(
        says="Threads wait inside the library that stands between the program and CUDA.",
        establishes="Native stacks of both waiters inside that library in two samples.",
        lower="Supported: one waiter, or one sample.",
        next_steps=("start once without it: if the trouble is gone, report it to its makers",),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="interposer",
    texts=TEXTS,
    about="A library between the program and the CUDA driver, and whether threads wait inside it.",
    applies=lambda view: (
        ""
        if any(view.case.of(k) for k in (MappedLibrary, ThreadStack, ConfigValue)) or view.outcome("process") not in (None, Outcome.ABSENT)
        else "no maps, stacks or environment"
    ),
    evaluate=evaluate,
    false_positives="LD_PRELOAD of an allocator (jemalloc, tcmalloc) has nothing to do with CUDA.",
    references=("HAMi-core libvgpu.so",),
)
