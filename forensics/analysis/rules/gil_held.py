"""One thread keeps the interpreter's lock inside native code, and the other threads of its process cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.stacks import ThreadView, frame_text, motion, place
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, Role, Severity

_TAKES = r"(?m)^(?:take_gil|_?PyEval_(?:AcquireThread|RestoreThread)|PyGILState_Ensure|acquire_gil) \("
"""Native frames of a thread that waits for the lock."""
_TAG = "Waiting for the GIL"
"""What pystack makes of them."""


def evaluate(view: View) -> Iterator[Finding]:
    for process in view.standing:
        if process.role not in (Role.CORE, Role.WORKER) or view.stopped(process):
            continue  # a stopped process keeps its lock as it keeps everything
        threads = view.threads_of(process)
        holding = [t for t in threads if len(t.samples) > 1 and all(s.gil for s in t.samples) and t.moved is False]
        waiting = [t for t in threads if t not in holding and len(t.samples) > 1 and t.moved is False and _takes(t)]
        if len(holding) == 1 and waiting:
            yield _held(view, process, holding[0], waiting)
        elif len(holding) == 1 and not holding[0].main and view.stall and not _native(threads) and (blocked := _blocked(threads)):
            yield _maybe(view, process, holding[0], blocked)


def _takes(thread: ThreadView) -> bool:
    """In its last look: native frames are read only once an engine is known to stand still."""
    last = thread.last
    return _TAG in last.tags or re.search(_TAKES, frame_text(last.shown[:12])) is not None


def _native(threads: list[ThreadView]) -> bool:
    """Whether native frames were read: then a thread that waits for the lock would show it."""
    return any(s.mixed or any(".so" in f.file for f in s.shown) for t in threads for s in t.samples)


def _blocked(threads: list[ThreadView]) -> ThreadView | None:
    """The main thread, where it did not get on and stands at no place at which a thread ordinarily waits: perhaps for the GIL."""
    main = next((t for t in threads if t.main), None)
    return main if main and main.state == "lock" and main.moved is False and len(main.samples) > 1 else None


def _maybe(view: View, process: EngineProcess, holder: ThreadView, blocked: ThreadView) -> Finding:
    """Python frames alone: the same thread owned the lock at the same place in each look, and the main thread did not get on."""
    frame = place(holder)
    return view.finding(
        "gil-held",
        Grade.POSSIBLE,
        title=f"Thread {holder.label} of {view.name(process)} owned the GIL in each of {len(holder.samples)} looks, in {frame.name} "
        f"({frame.file}:{frame.line}), and the main thread stood still",
        because=[holder.samples[0].ref, holder.last.ref, blocked.last.ref],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        processes=[process],
        since=view.stall.since if view.stall else None,
        does_not_show="what the main thread waits for: a lock of the program looks the same",
        would_settle=["native frames of both threads (py-spy dump --native)"],
    )


def _idle(view: View, process: EngineProcess, waiting: list[ThreadView]) -> bool:
    return all(motion(t, view.cpu_of(process, t.tid)) == "stuck" for t in waiting)


def _held(view: View, process: EngineProcess, holder: ThreadView, waiting: list[ThreadView]) -> Finding:
    frame = place(holder) if holder.last.frames else None
    where = f" in {frame.name} ({frame.file}:{frame.line})" if frame else ""
    return view.finding(
        "gil-held",
        # between two looks the lock may have been handed over; a waiter seen in two of them that used no processor was not
        grade(observed=sum(_TAG in s.tags or bool(s.mixed) for s in waiting[0].samples) > 1 and _idle(view, process, waiting), agreeing=2),
        title=f"Thread {holder.label} of {view.name(process)} keeps the GIL{where}, and {len(waiting)} other(s) wait for it",
        because=[holder.samples[0].ref, holder.last.ref, *(t.last.ref for t in waiting[:4])],
        severity=Severity.CRITICAL if any(t.main for t in waiting) else Severity.WARNING,
        role=FindingRole.ROOT if any(t.main for t in waiting) else FindingRole.CONTEXT,
        processes=[process],
        since=view.stall.since if view.stall else None,
        does_not_show="what the native code waits for",
        would_settle=["native frames of the holder"],
    )


TEXTS = {
    "gil-held": Text(
        says="One thread holds Python's global lock in native code while other threads of the process wait for it.",
        establishes="Two samples with the same owner at the same place and a waiter in take_gil.",
        lower="Supported: one sample, or no native stack of a waiter.",
        next_steps=("release the GIL around the blocking call (Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release)",),
        while_lasts=(EVIDENCE_FIRST,),
    ),
}

RULE = Rule(
    name="gil_held",
    texts=TEXTS,
    about="In every sample the same thread owns the GIL at the same place, and others stand in native code that takes it.",
    requires=("stacks",),
    evaluate=evaluate,
    false_positives="A thread that computes in Python owns the GIL whenever one looks; without a waiter nothing is claimed.",
    references=("CPython Python/ceval_gil.c: take_gil waits in turns of the switch interval",),
)
