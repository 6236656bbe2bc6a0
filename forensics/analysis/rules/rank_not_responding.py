"""One rank does not answer while the others do or wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import EVIDENCE_FIRST, TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._unanswered import undelivered_answer, untaken_calls
from forensics.analysis.rules.process_state import stays
from forensics.analysis.stall import WORKING
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, QueueDepth, Severity

BUSY = WORKING - {"collective"}


def evaluate(view: View) -> Iterator[Finding]:
    cannot = []
    for worker in view.workers:
        last = view.state_of(worker)
        if last and (view.stopped(worker) or (stays(view.states_of(worker)) and not (view.moving or view.starting))):
            cannot.append((worker, last))
    waiting = [t.last.ref for w in view.workers if (t := view.main_thread(w)) and t.state == "collective"][:4]
    if cannot and len(cannot) < max(len(view.workers), 2):
        for worker, last in cannot:
            # a rank on another node takes its calls from a socket: what it left there, the kernel counts
            sockets = [q for q in view.of(QueueDepth) if q.kind == "socket-recv" and (q.node, q.pid) == (worker.info.node, worker.pid)]
            sockets = [q for q in sockets if q.sample == max(each.sample for each in sockets)]
            unread = f"; {sum(q.depth for q in sockets)} bytes lie unread in its sockets" if sockets else ""
            yield view.finding(
                "rank-not-responding",
                grade(observed=True),
                title=f"{view.name(worker)} cannot take work: the kernel keeps it in state {last.state}{unread}",
                because=[last.ref, *(q.ref for q in sockets[:2]), *waiting],
                severity=Severity.CRITICAL,
                role=FindingRole.CASCADE,
                processes=[worker],
                since=view.stall.since if view.stall else last.at,
            )
        return
    if left := list(untaken_calls(view)):
        yield from left
        return
    if held := list(undelivered_answer(view)):
        yield from held
        return
    if len(view.workers) != 1 or view.engine.world_size not in (None, 1) or view.moving:
        return
    if view.stall is None or not view.stall.live or view.stall.grade.strength < Grade.SUPPORTED.strength:
        return
    # a world of one: no peer can tell, but the core's wait and the worker's stack can
    worker = view.workers[0]
    thread = view.main_thread(worker)
    waits = [t for c in view.cores if (t := view.main_thread(c)) and t.state in ("rpc-response", "future") and t.steady]
    if thread is not None and thread.steady and thread.state in BUSY and thread.moved is not True and waits:
        yield view.finding(
            "rank-not-responding",
            grade(agreeing=2),
            title=f"{view.name(worker)} took a call and does not return from it: {thread.state}",
            because=[thread.last.ref, waits[0].last.ref],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            processes=[worker],
            since=view.stall.since,
            does_not_show="what its innermost line waits for",
            would_settle=["native stacks of this process"],
        )


TEXTS = {
    "rank-not-responding": Text(
        says="One rank has not taken, or not finished, work that the others took.",
        establishes="Ring flags or a missing response of that rank alone, or its process stopped, dead or in D state.",
        lower="Supported: no second look, or a peer that was not seen.",
        next_steps=("look at that rank's stack and its last log lines; the ranks that spin wait for it",),
        while_lasts=(EVIDENCE_FIRST,),
        over_nodes=(TOGETHER,),
    ),
}

RULE = Rule(
    name="rank_not_responding",
    texts=TEXTS,
    about="One rank does not take or finish work that the others took or wait for.",
    any_of=("process", "stacks", "rings"),
    optional=("metrics", "sockets"),
    evaluate=evaluate,
    false_positives="A rank that is merely slow: while any counter moves nothing is claimed.",
    references=(
        "vllm distributed/device_communicators/shm_broadcast.py ShmRingBuffer",
        "vllm v1/executor/multiproc_executor.py get_response",
    ),
)
