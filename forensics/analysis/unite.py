"""One thread, one stack a sample: joins what py-spy, pystack and the kernel say of the same thread.

- Of a process in a pid namespace of its own py-spy gives inner thread ids; the NSpid lines beside the dump turn them into ours.
- Where both readers saw a thread, py-spy's picture stands (qualified names, the thread's own name, activity) and takes over the
  native frames of pystack's (which knows more symbols), if their Python frames agree: the two were taken a second apart, and where
  they disagree the thread has moved and the two halves do not belong together.
- A thread that only pystack saw stays as it is: it runs no Python, or py-spy could not read the process.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from forensics.analysis.case import Case
from forensics.model import Frame, ThreadStack, ThreadWait

_Key = tuple[str, int, int, int | None]
"""(node, pid, sample, thread id of the node)"""


def unite(case: Case) -> None:
    """Replace the stacks of a case by united ones, in the order in which they were read."""
    stacks = case.of(ThreadStack)
    inner: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    states: dict[_Key, str] = {}
    for wait in case.of(ThreadWait):
        if wait.inner is not None:
            inner[wait.node, wait.pid][wait.inner] = wait.tid
        states[wait.node, wait.pid, wait.sample, wait.tid] = wait.state
    if not inner and not any(s.reader == "pystack" for s in stacks):
        return
    names: dict[tuple[str, int, int], str] = {}
    united: dict[object, ThreadStack] = {}
    for index, stack in enumerate(stacks):
        if stack.reader in ("core", "gdb") or stack.tid is None:
            united[index] = stack
            continue
        known = inner.get((stack.node, stack.pid))
        if known and stack.reader != "pystack":
            tid = known.get(stack.tid, stack.tid)
            state = states.get((stack.node, stack.pid, stack.sample, tid))
            # looked up by inner ids every thread seems active: the kernel's word of the same moment is better
            stack = msgspec.structs.replace(stack, tid=tid, active=state == "R" if state else None)
        assert stack.tid is not None
        key: _Key = (stack.node, stack.pid, stack.sample, stack.tid)
        if stack.reader != "pystack" and stack.name:
            names[stack.node, stack.pid, stack.tid] = stack.name
        elif stack.reader == "pystack" and stack.active is None and (state := states.get(key)):
            stack = msgspec.structs.replace(stack, active=state == "R")
        twin = united.get(key)
        if twin is None:
            united[key] = stack
        elif twin.reader != stack.reader:
            united[key] = _join(twin, stack)
        else:  # bare files carry no sample numbers: two dumps of one thread
            united[index] = stack
    done = []
    for stack in united.values():
        name = names.get((stack.node, stack.pid, stack.tid)) if stack.tid is not None and stack.reader == "pystack" else None
        done.append(msgspec.structs.replace(stack, name=name) if name else stack)
    case.replace_all(ThreadStack, done)


def _join(one: ThreadStack, other: ThreadStack) -> ThreadStack:
    ours, theirs = (other, one) if one.reader == "pystack" else (one, other)
    agree = [_place(f) for f in ours.frames] == [_place(f) for f in theirs.frames]
    return msgspec.structs.replace(
        ours,
        mixed=_spelled(theirs.mixed, ours.frames) if agree and theirs.mixed else ours.mixed,
        tags=theirs.tags if agree else (),
        gil=ours.gil if ours.gil is not None else theirs.gil,
    )


def _place(frame: Frame) -> tuple[str, int]:
    """What both readers say alike: pystack has no qualified names, and writes whole paths."""
    return frame.name.rpartition(".")[2], frame.line


def _spelled(mixed: tuple[Frame, ...], python: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A mixed stack with its Python frames as the other reader spells them."""
    spelled = iter(python)
    return tuple(f if f.native else next(spelled, f) for f in mixed)
