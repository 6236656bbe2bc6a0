"""A process of the engine was ended by its own machine code: a segmentation fault, an abort, a bus error."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import ENDS, grave, named_process, ours_by_name, part, troubles
from forensics.analysis.rules._ray import of_lost_actors
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import CoreFile, EngineProcess, EvidenceRef, Finding, FindingRole, Grade, KernelEvent, LogHit, Severity, TimeRange

NEAR_NS = 15 * SECOND
CONSEQUENCES = ("nccl-watchdog-timeout", "heartbeat-monitor-abort", "symptom-rpc-timeout", "symptom-peer-loss")
STATUS = {"sigsegv": ("-11", "139"), "native-crash": ("-6", "-7", "-4", "-8", "134", "135", "132", "136")}


def evaluate(view: View) -> Iterator[Finding]:
    faults = {(e.node, e.fields.get("pid")) for e in view.kernel_feeding("sigsegv")}
    for id, codes in STATUS.items():
        kernel = [e for e in view.kernel_feeding(*STATUS) if _kind(e, faults) == id]
        mine = [(e, named_process(view, e.node, e.fields.get("pid"), e.fields.get("comm"))) for e in kernel]
        mine = [(e, p) for e, p in mine if p is not None or _near_end(view, e)]
        said = [*view.feeding(id), *of_lost_actors(view, id)]
        died = [h for h in view.events("worker-death") if h.fields.get("exit_code") in codes]
        cores = [c for c in view.on_nodes(CoreFile) if (c.signal == signal.SIGSEGV) == (id == "sigsegv") and c.signal and _ours(view, c)]
        if mine or said or died:
            yield _finding(view, id, mine, said, died, cores)


def _kind(event: KernelEvent, faults: set[tuple[str, str | None]]) -> str:
    """What a line is about: an audit record names the signal, and a core is dumped of every crash."""
    segfault = event.fields.get("signal") == "11" or (event.node, event.fields.get("pid")) in faults
    return "sigsegv" if segfault else event.feeds


def _finding(
    view: View,
    id: str,
    kernel: list[tuple[KernelEvent, EngineProcess | None]],
    said: list[LogHit],
    died: list[LogHit],
    cores: list[CoreFile],
) -> Finding:
    times = [t for t in (*(e.at for e, _ in kernel), *(h.at for h in (*said, *died))) if t]
    at = min(times, key=lambda t: t.earliest_ns, default=None)
    known = {p.rank.rank for _, p in kernel if p and p.rank and p.rank.rank is not None}
    known |= {int(h.fields["rank"]) for h in died if h.fields.get("rank", "").isdigit()}
    known |= {r for h in said if (r := h.rank if h.rank is not None else view.rank_of(h.node, h.pid)) is not None}
    if not known and at and sum(h.count for h in said) == 1:
        # one nameless line, and one worker that ended at that moment
        ends = [h for h in view.events("worker-death") if h.at and -2 * SECOND <= h.at.latest_ns - at.latest_ns <= NEAR_NS]
        known = {int(h.fields["rank"]) for h in ends if h.fields.get("rank", "").isdigit()} if len(ends) == 1 else known
        died = [*died, *(h for h in ends if h not in died)]
    role = _part(view, at, id)
    if at is None and role is FindingRole.CONTEXT and any(view.before(h, e) for h in said for e in view.events(*ENDS)):
        role = FindingRole.ROOT  # a log that tells no time: by its order the end came after
    sure = bool(kernel or died or id == "sigsegv" or cores or any(h.signature != "abort-terminate" for h in said))
    what = next((e.fields.get("library") for e, _ in kernel if e.fields.get("library")), "")
    word = "a segmentation fault" if id == "sigsegv" else next((h.fields["what"] for h in said if h.fields.get("what")), "a fatal signal")
    refs: list[EvidenceRef] = [*(e.ref for e, _ in kernel[:3]), *(h.ref for h in (*said, *died)[:5]), *(c.ref for c in cores[:2])]
    who = f"Rank {next(iter(known))}" if len(known) == 1 else "A process of the engine"
    return view.finding(
        id,
        Grade.ESTABLISHED if sure else Grade.SUPPORTED,
        title=f"{who} crashed in machine code: {word}" + (f" in {what}" if what else ""),
        because=refs,
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=list(dict.fromkeys([*(e.node for e, _ in kernel), *(h.node for h in (*said, *died))])),
        ranks=sorted(known) if len(known) == 1 else [],
        since=at,
        does_not_show="the bug: where it crashed is where bad memory was used, not where it was made bad",
        would_settle=["a native stack of the core file (gdb, pystack core)"] if cores else ["a core file: ulimit -c unlimited"],
    )


def _part(view: View, at: TimeRange | None, id: str) -> FindingRole:
    """A watchdog ends its process by an abort: then the abort is how it ends, not why."""
    for hit in (*view.feeding(*CONSEQUENCES), *view.events("fatal", "stop", "timeout", "hang")):
        if at is not None and hit.at is not None and hit.at.earliest_ns <= at.latest_ns and (id == "native-crash" or hit.at.before(at)):
            return FindingRole.TEARDOWN
    if id == "native-crash" and view.feeding("cuda-illegal-access", "gpu-oom", "shm-exhausted"):
        return FindingRole.CASCADE
    role = part(view, at)
    return FindingRole.ROOT if role is FindingRole.CONTEXT and at is None and troubles(view) else role


def _near_end(view: View, event: KernelEvent) -> bool:
    """A crash of somebody whose name could be ours, at the moment at which the engine lost a worker."""
    ours, _ = ours_by_name(event.fields.get("comm", ""))
    ends = [h.at for h in view.events("worker-death", "fatal", "death-told") if h.at]
    return bool(ours and event.at and any(-2 * SECOND <= t.latest_ns - event.at.earliest_ns <= NEAR_NS for t in ends))


def _ours(view: View, core: CoreFile) -> bool:
    return view.process(core.node, core.pid) is not None


TEXTS = {
    "sigsegv": Text(
        says="A process of the engine crashed with SIGSEGV, in machine code.",
        establishes="The crash handler's own lines, the kernel's segfault line, or exit status -11 of that process.",
        lower="Supported: exit status 139 without knowing whose. Ray's guess is none.",
        next_steps=(
            "keep the core file and the exact libraries it used",
            "look at the innermost native frame, and at extensions that differ from the last good build",
        ),
    ),
    "native-crash": Text(
        says="A process of the engine ended by a signal of machine code: abort, bus error, illegal instruction.",
        establishes="The signal and a core, a crash handler's frames, or the kernel's line.",
        false_positives="torch's watchdog aborts its process after a timeout: SIGABRT then is a consequence.",
        next_steps=("keep the core file and the exact libraries it used",),
    ),
}

RULE = Rule(
    name="native_crash",
    texts=TEXTS,
    about="A process of the engine crashed in machine code.",
    any_of=("log", "kernel"),
    evaluate=evaluate,
    false_positives="Ray's guess names SIGSEGV for every dead actor; a watchdog of torch aborts its process after a timeout.",
    references=("CPython faulthandler", "Linux arch/x86/mm/fault.c"),
)
