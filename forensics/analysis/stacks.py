"""What each thread is doing, whether it moved between samples, and which threads stand at the same place."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from forensics.engines import FramePattern
from forensics.model import CpuSample, Frame, StackGroup, ThreadStack

STATES = {
    "collective": "inside a collective, waiting for the other ranks of its group",
    "rpc-idle": "idle: waiting for the next call from the core",
    "rpc-response": "waiting for a worker's answer",
    "ring-full": "waiting for a free slot in the broadcast ring",
    "core-idle": "idle: waiting for requests",
    "monitor": "watching other processes",
    "gpu-sync": "waiting for the GPU",
    "queue-put": "waiting for room in a bounded queue",
    "queue-get": "waiting for an item of a queue",
    "join": "waiting for a thread to end",
    "future": "waiting for a future",
    "event": "waiting for an event or condition",
    "sleep": "sleeping",
    "poll": "waiting for input",
    "lock": "blocked inside a call of its innermost line: a lock, or native code",
    "running": "executing",
    "unknown": "no Python frames",
}
"""Every state that a FramePattern or this module may give a thread, in words."""

AMBIGUOUS = frozenset({"gpu-sync", "poll", "future", "unknown"})
"""States that fit inside and outside a collective: the GPU that such a thread waits for may be in it, its input may be a peer's."""
_UNKNOWN = frozenset({"lock", "running", "unknown"})
"""States of a thread in which no pattern recognised anything."""
IDLE = frozenset({"rpc-idle", "core-idle", "monitor", "poll", "queue-get", "event", "sleep"})
"""States in which a thread ordinarily spends its life: standing still there says nothing."""


_OPERATION = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier)")
_SPELLINGS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all"}


def operation(thread: ThreadView) -> str:
    """Which collective a thread is inside, by its innermost frames; "" where no name tells."""
    found = next((m[1] for f in thread.last.frames[:8] if (m := _OPERATION.search(f.name))), "")
    return _SPELLINGS.get(found.replace("_", ""), found)


_PLUMBING = re.compile(r"(?:^|/)(?:threading|queue|selectors|_base|connection|popen_\w+)\.py$")


def place(thread: ThreadView) -> Frame:
    """Where the program itself stands: the innermost frame outside the standard library's waiting code."""
    return next((f for f in thread.last.frames if not _PLUMBING.search(f.file)), thread.last.frames[0])


def frame_text(frames: Sequence[Frame]) -> str:
    """One "Qual.name (file)" a line, innermost first: what FramePattern.regex is searched in."""
    return "\n".join(f"{f.name} ({f.file})" for f in frames)


def classify(stack: ThreadStack, patterns: Iterable[FramePattern]) -> tuple[str, str]:
    """(state, what is waited for) of one thread by the first pattern that fits; states are STATES."""
    for pattern in patterns:
        frames = stack.mixed if pattern.native else stack.frames
        if frames and re.search(pattern.regex, frame_text(frames[: pattern.within])):
            return pattern.state, pattern.target
    if not stack.frames:
        return "unknown", ""
    if stack.active is False:
        # not on a CPU, and its innermost Python frame is no known waiting function: it waits inside that very line
        return "lock", "something that its innermost line waits for"
    return "running", ""


@dataclass(frozen=True)
class ThreadView:
    """One thread over all its samples."""

    pid: int
    tid: int | None
    name: str
    samples: tuple[ThreadStack, ...]
    states: tuple[str, ...]
    target: str
    main: bool = False
    """Its process's main thread: the one whose kernel id is that of the process."""
    alone: bool = True
    """No other thread of the process has its name."""

    @property
    def state(self) -> str:
        """Its state in the newest sample."""
        return self.states[-1]

    @property
    def last(self) -> ThreadStack:
        return self.samples[-1]

    @cached_property
    def moved(self) -> bool | None:
        """Whether its frame path changed between samples; None with a single sample."""
        if len(self.samples) < 2:
            return None
        return len({s.path for s in self.samples}) > 1

    @property
    def steady(self) -> bool:
        """The same state in every sample."""
        return len(set(self.states)) == 1

    @property
    def span_s(self) -> float:
        """Time between the first and the last sample, 0 where they carry no time."""
        first, last = self.samples[0].at, self.samples[-1].at
        return (last.latest_ns - first.earliest_ns) / 1e9 if first and last else 0.0

    @property
    def label(self) -> str:
        """Its name, with the id where the name does not tell it from others. A name is whatever a program chose: no quotes in it."""
        name = self.name.replace('"', "'")
        return f'"{name}"' if name and self.alone else f'"{name}" (tid {self.tid})' if name else f"tid {self.tid}"


USES_CPU = 0.1
"""Share of a processor from which on a thread counts as using it: one that sleeps and looks now and then uses less, one that
spins uses all of it, or, on a saturated host, its share."""
STILL_S = 1.0
"""Two looks at one place that are less far apart prove nothing."""


def motion(thread: ThreadView, cpu: Iterable[CpuSample] = ()) -> str | None:
    """ "stuck" (its frame path did not move and it used no CPU), "spinning" (it did not move and used CPU) or "moving".

    `cpu`: samples of this thread (others are ignored); those of the moments of the stacks count. Where there are none, the reader's
    word on whether the thread was on a processor must agree in all samples. None when that is not so, with a single sample, and
    with samples less than a second apart.
    """
    if thread.moved is None:
        return None
    if thread.moved:
        return "moving"
    if any(s.at for s in thread.samples) and thread.span_s < STILL_S:
        return None
    looks = {s.sample for s in thread.samples}
    mine = [c for c in cpu if (c.pid, c.tid) == (thread.pid, thread.tid) and c.at and c.cpu_seconds is not None and c.sample in looks]
    if mine:
        mine.sort(key=lambda c: c.at.earliest_ns if c.at else 0)
        first, last = mine[0], mine[-1]
        seconds = (last.at.earliest_ns - first.at.earliest_ns) / 1e9 if first.at and last.at else 0.0
        if seconds >= STILL_S:
            used = (last.cpu_seconds or 0.0) - (first.cpu_seconds or 0.0)
            return "spinning" if used / seconds >= USES_CPU else "stuck"
    words = {s.active for s in thread.samples}
    return "stuck" if words == {False} else "spinning" if words == {True} else None


def threads(stacks: Iterable[ThreadStack], patterns: Sequence[FramePattern]) -> dict[tuple[str, int], list[ThreadView]]:
    """Group stacks by (node, pid) and thread, samples in order, each classified."""
    grouped: dict[tuple[str, int, int | str], list[ThreadStack]] = defaultdict(list)
    for stack in stacks:
        if stack.reader == "core":  # of a process that died: no sample of a living one
            continue
        # by the kernel's id: a name may come late, and several threads may share one
        grouped[stack.node, stack.pid, stack.name if stack.tid is None else stack.tid].append(stack)
    # most threads of a large engine stand where others stand: each place is classified once
    known: dict[tuple[tuple[Frame, ...], tuple[Frame, ...], bool | None], tuple[str, str]] = {}

    def classified(s: ThreadStack) -> tuple[str, str]:
        key = (s.frames, s.mixed, s.active)
        if key not in known:
            known[key] = classify(s, patterns)
        return known[key]

    out: dict[tuple[str, int], list[ThreadView]] = defaultdict(list)
    known_main = {(node, pid) for node, pid, tid in grouped if tid == pid}
    names = {key: next((s.name for s in reversed(samples) if s.name), "") for key, samples in grouped.items()}
    shared = Counter((node, pid, names[node, pid, tid]) for node, pid, tid in grouped)
    for (node, pid, tid), samples in grouped.items():
        samples.sort(key=lambda s: (s.sample, s.at.earliest_ns if s.at else 0))
        seen = [classified(s) for s in samples]
        # native frames are read in the later looks only: what they tell holds for the same place in the earlier ones
        told = {s.frames: found for s, found in zip(samples, seen, strict=True) if s.mixed and found[0] not in _UNKNOWN}
        seen = [found if s.mixed else told.get(s.frames, found) for s, found in zip(samples, seen, strict=True)]
        name = names[node, pid, tid]
        # where ids are not those of the kernel (a text dump, another pid namespace), the name has to do
        main = tid == pid if (node, pid) in known_main else name == "MainThread"
        states, target = tuple(s for s, _ in seen), seen[-1][1]
        number = samples[-1].tid
        out[node, pid].append(ThreadView(pid, number, name, tuple(samples), states, target, main, shared[node, pid, name] == 1))
    return out


MOST_GROUPS = 1000
"""Exact places that a report lists, those that are not idle first. The tree of all stacks counts every one of them."""


class Placed(NamedTuple):
    """A thread with the names for whom it belongs to."""

    thread: ThreadView
    label: str
    rank: int | None
    cpu: Sequence[CpuSample] = ()


def groups(views: Iterable[Placed], engine: str) -> list[StackGroup]:
    """Put threads that stand at exactly the same place in their newest sample together."""
    grouped: dict[tuple[str, ...], list[Placed]] = defaultdict(list)
    for placed in views:
        grouped[tuple(f"{f.name} ({f.file}:{f.line})" for f in placed.thread.last.shown)].append(placed)
    found = []
    for frames, members in sorted(grouped.items(), key=lambda kv: (kv[1][0].thread.state in IDLE, -len(kv[1])))[:MOST_GROUPS]:
        moved = [m.thread.moved for m in members]
        motions = {motion(m.thread, m.cpu) for m in members}
        found.append(
            StackGroup(
                engine=engine,
                thread=", ".join(dict.fromkeys(m.thread.name or f"tid {m.thread.tid}" for m in members))[:120],
                frames=frames,
                processes=tuple(dict.fromkeys(m.label for m in members)),
                ranks=tuple(sorted({m.rank for m in members if m.rank is not None})),
                samples=max(len(m.thread.samples) for m in members),
                moved=any(moved) if any(m is not None for m in moved) else None,
                motion=(motions.pop() or "") if len(motions) == 1 else "",
            )
        )
    return found
