"""The platform restarted the engine's container, and what it says of the end before."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.model import ContainerStatus, Finding, FindingRole, Grade, PlatformEvent, Severity

RESTARTS = ("BackOff", "CrashLoopBackOff", "Killing")
SAYS = ("restarting failed container", "failed liveness probe")
MEANING = {
    137: "SIGKILL, whoever sent it",
    139: "a segmentation fault",
    143: "SIGTERM: it was asked to stop",
    134: "an abort",
    1: "its own error",
}


def evaluate(view: View) -> Iterator[Finding]:
    yield from _evicted(view)
    engines = {n for e in view.case.engines for n in e.nodes}
    mine = [c for c in view.case.of(ContainerStatus) if c.node in view.nodes or (c.node not in engines and len(view.case.engines) == 1)]
    again = [c for c in mine if c.restarts]
    events = [p for p in view.on_nodes(PlatformEvent) if p.reason in RESTARTS]
    if not again and not any(w in p.text for p in events for w in SAYS):
        return
    first = again[0] if again else None
    how = ""
    if first and (first.reason or first.exit_code is not None):
        code = f"exit code {first.exit_code}" + (f": {MEANING[first.exit_code]}" if first.exit_code in MEANING else "")
        how = "; it ended last with " + ", ".join(w for w in (first.reason, code if first.exit_code is not None else "") if w)
    started = f", the last time at {iso(first.started.earliest_ns)}" if first and first.started else ""
    unwell = any(SAYS[1] in p.text for p in events)
    times = f"{first.restarts} times" if first and first.restarts else "for a liveness probe that failed" if unwell else "after it failed"
    yield view.finding(
        "container-restarted",
        Grade.ESTABLISHED,
        title=f"The platform restarted the container {times}{started}{how}",
        because=[*(c.ref for c in again[:4]), *(p.ref for p in events[:4])],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        nodes=list(dict.fromkeys(c.node if c.node in view.nodes else view.nodes[0] for c in again)) or list(view.nodes),
        since=first.started if first else next((p.at for p in events if p.at), None),
        does_not_show="why it ended: the log of the container before this one tells (kubectl logs --previous)",
    )


def _evicted(view: View) -> Iterator[Finding]:
    gone = [p for p in view.on_nodes(PlatformEvent) if p.reason == "Evicted"]
    if not gone:
        return
    about = ", ".join(dict.fromkeys(p.about for p in gone if p.about)) or "a pod"
    yield view.finding(
        "pod-evicted",
        Grade.ESTABLISHED,
        title=f"The platform evicted {about[:120]}: {gone[0].text[:200]}",
        because=[p.ref for p in gone[:6]],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        nodes=list(dict.fromkeys(p.node for p in gone)),
        since=next((p.at for p in gone if p.at), None),
        does_not_show="who used up what the node lacked: the pod that is evicted is the one that may go first",
    )


def _applies(view: View) -> str:
    told = bool(view.case.of(ContainerStatus)) or bool(view.case.of(PlatformEvent))
    return "" if told else "no platform told of a container"


TEXTS = {
    "container-restarted": Text(
        says="The platform restarted the container that the engine runs in.",
        establishes="The pod's own status or event: its restart count, with the state that the previous container ended in.",
        next_steps=("kubectl logs --previous and kubectl describe pod, before the next restart overwrites them",),
    ),
    "pod-evicted": Text(
        says="The platform evicted the pod: the node ran short of something and this pod was over its requests.",
        establishes="The eviction in the pod's status or in an event, with its reason.",
        next_steps=("give the pod requests that it keeps to, and look at what else ran on the node",),
    ),
}

RULE = Rule(
    name="container",
    texts=TEXTS,
    about="The container that the engine runs in was restarted by its platform.",
    applies=_applies,
    of_nodes=True,
    evaluate=evaluate,
    false_positives="Restarts that are counted over the life of a pod may be weeks old.",
    references=("Kubernetes API: ContainerStatus.restartCount, lastState.terminated",),
)
