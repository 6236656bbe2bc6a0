"""What the kernel itself says of a task that has not run for minutes: it waits in the kernel, and no signal ends that."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import WHOLE_NODE
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import first_at, named_process, part, weight
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, Grade, KernelEvent, Severity


def evaluate(view: View) -> Iterator[Finding]:
    events = view.kernel_feeding("kernel-task-blocked")
    for node in dict.fromkeys(e.node for e in events):
        yield _of_node(view, node, [e for e in events if e.node == node])
    locked = [e for e in view.kernel_feeding("host-stable") if e.signature in LOCKUPS]
    for node in dict.fromkeys(e.node for e in locked):
        yield _locked(view, node, [e for e in locked if e.node == node])


LOCKUPS = ("kernel-soft-lockup", "kernel-hard-lockup", "kernel-rcu-stall")


def _locked(view: View, node: str, events: list[KernelEvent]) -> Finding:
    cpus = list(dict.fromkeys(e.fields["cpu"] for e in events if e.fields.get("cpu")))
    limit = max((float(e.fields["seconds"]) for e in events if e.fields.get("seconds")), default=0.0)
    where = f"CPU {', '.join(cpus[:8])}" if cpus else "a CPU"
    return view.finding(
        "kernel-lockup",
        Grade.ESTABLISHED,
        title=f"The kernel of {node} found {where} stuck{f' for {duration(limit)}' if limit else ''}",
        because=[e.ref for e in events[:8]],
        severity=Severity.WARNING,
        role=FindingRole.AMPLIFIER,
        nodes=[node],
        since=first_at(events),
        does_not_show="why: a driver, memory that is reclaimed without end, or a host that gives a guest no time look the same",
    )


def _of_node(view: View, node: str, events: list[KernelEvent]) -> Finding:
    mine: dict[int, EngineProcess] = {}
    for e in events:
        process = named_process(view, node, e.fields.get("pid"), e.fields.get("comm"))
        if process is not None:
            mine.setdefault(process.pid, process)
    told = [e for e in events if e.fields.get("seconds")]
    ours = [e for e in events if int(e.fields.get("pid", "0")) in mine]
    shown = ours or told or events
    # a task of somebody else, or of a pid that a container counts for itself, shows a machine in trouble and not who began it
    role = part(view, first_at(ours), machine=True) if ours else FindingRole.AMPLIFIER
    names = list(dict.fromkeys(f"{e.fields.get('comm', '?')} (pid {e.fields.get('pid', '?')})" for e in shown))
    limit = max((float(e.fields["seconds"]) for e in shown if e.fields.get("seconds")), default=0.0)
    lasted = f" for more than {duration(limit)}" if limit else ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return view.finding(
        "kernel-task-blocked",
        Grade.ESTABLISHED,
        title=f"The kernel of {node} shows {', '.join(names[:3])}{more} in uninterruptible sleep{lasted}",
        because=[e.ref for e in shown[:8]],
        severity=weight(view, role, first_at(shown)),
        role=role,
        nodes=[node],
        processes=list(mine.values()),
        since=first_at(shown),
        does_not_show="what it waits for: the functions of its stack, below these lines, name the driver or file system"
        + ("" if ours else "; whether the task is of the engine"),
        would_settle=[] if ours else ["which process has this pid on the host"],
    )


TEXTS = {
    "kernel-task-blocked": Text(
        says="The kernel reports a task that has waited in it for minutes.",
        establishes="The kernel's hung task line, with the task.",
        next_steps=(
            "read the stack below the line: nvidia and uvm functions mean the driver, nfs, lustre and fuse ones a file system",
            WHOLE_NODE,
        ),
    ),
    "kernel-lockup": Text(
        says="The kernel reports a CPU that does nothing else: a soft or hard lockup, or an RCU stall.",
        establishes="Its line, with CPU and task.",
        next_steps=("read the stack below the line", WHOLE_NODE),
    ),
}

RULE = Rule(
    name="task_blocked",
    texts=TEXTS,
    about="The kernel reported a task that waits in it and does not run, or a CPU that does nothing else.",
    requires=("kernel",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A slow disk under load holds a task for minutes and lets it go on; the line is printed all the same.",
    references=("Linux kernel/hung_task.c", "Linux kernel/sched/core.c sched_show_task"),
)
