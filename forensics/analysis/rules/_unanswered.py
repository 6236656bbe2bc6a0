"""A rank that runs and does not answer: calls that it leaves in its ring, or an answer that it does not deliver."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rings import untaken
from forensics.analysis.rules._contract import grade
from forensics.analysis.stacks import AMBIGUOUS, place
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, Severity

FOR_OTHERS = AMBIGUOUS | {"collective"}
"""States in which a rank may be behind because of a peer: it is not named for being behind."""


def untaken_calls(view: View) -> Iterator[Finding]:
    """Calls that other ranks of the node have taken out of the ring, and one that does something of its own leaves there."""
    if view.stall is None or view.stall.grade.strength < Grade.SUPPORTED.strength:
        return
    left = [u for u in untaken(view) if u.taken_by and u.process in view.standing]
    for one in left:
        thread = view.main_thread(one.process)
        if thread is not None and (thread.state in FOR_OTHERS or thread.moved):
            continue
        names = ", ".join(dict.fromkeys(name for name in one.calls if name)) or "calls"
        yield view.finding(
            "rank-not-responding",
            # of a rank whose stack was not read nobody knows whether it waits for a peer
            grade(observed=thread is not None and len(left) == 1, agreeing=2, whole=view.stall.grade is Grade.ESTABLISHED),
            title=f"{view.name(one.process)} has not taken {len(one.calls)} call(s) ({names}) that "
            f"{len(one.taken_by)} other rank(s) took out of the ring",
            because=[*one.refs, *([thread.last.ref] if thread else [])],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT if thread else FindingRole.CASCADE,
            processes=[one.process],
            since=view.stall.since,
            does_not_show="what it does instead: that is in its stack" if not thread else "",
            would_settle=[] if thread else ["its stack"],
        )


def undelivered_answer(view: View) -> Iterator[Finding]:
    """The rank whose answer the core waits for has one in hand: the thread that would deliver it stands inside it."""
    if view.stall is None or not view.stall.live or view.stall.grade.strength < Grade.SUPPORTED.strength:
        return
    asked = [t for c in view.cores if (t := view.main_thread(c)) and t.state in ("rpc-response", "future") and t.steady]
    for worker in view.standing:
        if not asked or not worker.rank or worker.rank.rank != view.output_rank:
            continue
        main = view.main_thread(worker)
        if main is not None and main.state == "collective" and main.steady:
            continue  # it is itself waiting for a peer: its answer is late because that one is
        # of its delivery threads also one at the lock of the queue that it takes from: hence not view.delivering
        carriers = [t for t in view.threads_of(worker) if t.name in view.profile.delivery_threads]
        # a GPU may itself wait for a peer, inside a collective's kernel; so may a line that is no known wait (an event of torch's own)
        elsewhere = {"queue-get"} | (FOR_OTHERS | {"lock", "running"} if len(view.workers) > 1 else set())
        at_a_lock = {tid for lock in view.locks if lock.process is worker for tid in lock.waiters}
        stuck = [t for t in carriers if (t.state not in elsewhere or t.tid in at_a_lock) and t.steady and t.moved is False]
        if stuck:
            frame = place(stuck[0])
            yield view.finding(
                "rank-not-responding",
                grade(agreeing=2),
                title=f"{view.name(worker)} does not deliver the answer that the core waits for: its thread "
                f'"{stuck[0].name}" stands in {frame.name} ({frame.file}:{frame.line})',
                because=[stuck[0].samples[0].ref, stuck[0].last.ref, asked[0].last.ref],
                severity=Severity.CRITICAL,
                role=FindingRole.ROOT,
                processes=[worker],
                since=view.stall.since,
                does_not_show="why the result does not become ready: a device, or a peer behind it",
                would_settle=["native stacks of this process", "the GPU's state"],
            )
