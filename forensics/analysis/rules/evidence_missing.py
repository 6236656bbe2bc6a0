"""What was not collected, and which question that leaves open."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._rendezvous import UNSEEN, absences, unseen_nodes
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, Grade, LogSpan, Severity

QUESTIONS = {
    "log": "what each rank said before it stopped",
    "stacks": "where each thread stands, and so which rank the others wait for",
    "metrics": "whether the engine advances, and how many requests it holds",
    "process": "whether every rank is alive and allowed to run",
    "kernel": "whether the machine itself had trouble (Xid, OOM kill, link failure)",
    "memory": "whether memory ran out",
    "cpu": "whether ranks spin or sleep",
}


def evaluate(view: View) -> Iterator[Finding]:
    yield from _absent(view)
    # what is missing matters where something went wrong
    if view.stall is None and not view.feeding("engine-died", "worker-process-died") and not view.case.bundled:
        return
    for source, question in QUESTIONS.items():
        outcome = view.outcome(source)
        if outcome is not None and not outcome.blind:
            continue
        tried = [a for _, a in view.case.attempts if a.outcome.blind and a.collector in (source, _collector(source))]
        said = f"{outcome.value}: {tried[0].reason}" if outcome and tried else "never collected"
        yield _finding(view, f"evidence-missing:{source}", question, said, [a.cure for a in tried[:1] if a.cure])
    spoken = {s.node for s in view.case.of(LogSpan)}
    for node in view.nodes:
        if node not in spoken and spoken and node not in view.case.bundled:
            yield _finding(view, f"evidence-missing:log/{node}", QUESTIONS["log"], "no log of this node", [])


def _absent(view: View) -> Iterator[Finding]:
    """Nodes that a failed rendezvous waited for: their logs say why they did not come."""
    done: set[str] = set()
    for absence in absences(view):
        for node, ref in unseen_nodes(view, absence).items():
            if node not in done:
                done.add(node)
                named = "a node whose name is not known" if node == UNSEEN else node
                said = f"no log of {named}, where ranks of this job belong"
                yield _finding(view, f"evidence-missing:log/{node}", "why its ranks did not come", said, [], ref)


def _collector(source: str) -> str:
    return {"log": "rpclogs", "metrics": "queues"}.get(source, source)


def _finding(view: View, id: str, question: str, said: str, cures: list[str], ref: EvidenceRef | None = None) -> Finding:
    return view.finding(
        id,
        Grade.ESTABLISHED,
        title=f"Nobody saw {question} ({said})",
        because=[EvidenceRef(source="coverage", locator=id.partition(":")[2], quote=said), *([ref] if ref else [])],
        severity=Severity.INFO,
        would_settle=[question],
        next_steps=cures,
    )


TEXTS = {
    "evidence-missing:log": Text(
        says=(
            "This source was denied, timed out or never collected. The question that it leaves open: what each rank said before it stopped."
        ),
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("name its log with --log, or take journalctl or kubectl logs --previous of that node",),
    ),
    "evidence-missing:stacks": Text(
        says=(
            "This source was denied, timed out or never collected. The question that it leaves open: where each thread stands, and so "
            "which rank the others wait for."
        ),
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("run the capture as root or with CAP_SYS_PTRACE, while the processes still live",),
    ),
    "evidence-missing:metrics": Text(
        says=(
            "This source was denied, timed out or never collected. The question that it leaves open: whether the engine advances, and "
            "how many requests it holds."
        ),
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("enable the engine's metrics, and check that this node reaches its port",),
    ),
    "evidence-missing:process": Text(
        says=(
            "This source was denied, timed out or never collected. The question that it leaves open: whether every rank is alive and "
            "allowed to run."
        ),
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("run the capture on every node of the engine",),
    ),
    "evidence-missing:kernel": Text(
        says=(
            "This source was denied, timed out or never collected. The question that it leaves open: whether the machine itself had "
            "trouble (Xid, OOM kill, link failure)."
        ),
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("journalctl -k as root, or CAP_SYSLOG: kernel.dmesg_restrict keeps others out",),
    ),
    "evidence-missing:memory": Text(
        says="This source was denied, timed out or never collected. The question that it leaves open: whether memory ran out.",
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("capture the node, or save /proc/meminfo and the container's memory.events",),
    ),
    "evidence-missing:cpu": Text(
        says="This source was denied, timed out or never collected. The question that it leaves open: whether ranks spin or sleep.",
        establishes="The outcome of the attempt, or that no attempt was made.",
        next_steps=("capture while it stands still: one later look cannot tell",),
    ),
}

RULE = Rule(
    name="evidence_missing",
    texts=TEXTS,
    about="A source of evidence was denied, timed out or never collected.",
    evaluate=evaluate,
    false_positives="A source that does not exist on such a machine is told as absent by its collector, and not here.",
    references=("the attempts of each bundle", "what was found in the folder"),
)
